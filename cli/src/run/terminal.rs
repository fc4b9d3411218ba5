//! The terminal: COMMAND has it while it runs, if this program had it.
//!
//! COMMAND's process group is not that of this program: without this, a COMMAND that reads the terminal would be stopped by the kernel, and
//! would hold the lock for ever.

use std::io::IsTerminal;
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::path::Path;

use nix::sys::signal::{SigSet, Signal as Held};
use rustix::process::{Pid, WaitId, WaitIdOptions, getpgrp, waitid};
use rustix::stdio::stdin;
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::group::Group;
use crate::exit::tell;

/// Whose the terminal was, if it was lent.
pub(super) struct Terminal(Option<Pid>);

impl Terminal {
    /// If this program's group has the terminal, COMMAND is to take it when it begins, by [`take`].
    pub(super) fn lend() -> Self {
        let own = getpgrp();
        if !std::io::stdin().is_terminal() || tcgetpgrp(stdin()) != Ok(own) {
            return Self(None);
        }
        let _ = touching().thread_block();
        Self(Some(own))
    }

    pub(super) fn is_lent(&self) -> bool {
        self.0.is_some()
    }

    /// Continues a COMMAND that Ctrl-Z stopped: it would hold the lock, and whoever pressed it would not get the terminal back.
    pub(super) fn wake(&self, group: Group, as_json: bool) {
        if self.0.is_some() && (is_stopped(group) || starts_what_is_stopped(group)) {
            tell(
                "the command goes on: stopped, it would hold the lock",
                as_json,
            );
            group.signal(rustix::process::Signal::CONT);
        }
    }

    /// Takes the terminal back.
    pub(super) fn take_back(self) {
        if let Some(own) = self.0 {
            let _ = tcsetpgrp(stdin(), own);
            let _ = touching().thread_unblock();
        }
    }
}

/// Whether its first process was stopped since this was asked last.
fn is_stopped(group: Group) -> bool {
    let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::Pid(group.pid()), stopped), Ok(Some(_)))
}

/// Whether its first process waits for a child that was stopped before it became another program: in vfork(2), by which shells start programs. It
/// waits without being stopped itself, so nobody is told of it.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn starts_what_is_stopped(group: Group) -> bool {
    let tasks = format!("/proc/{}/task", group.pid().as_raw_nonzero());
    let Ok(tasks) = std::fs::read_dir(tasks) else {
        return false;
    };
    tasks.flatten().any(|task| {
        let children = std::fs::read_to_string(task.path().join("children"));
        let mut children = children.iter().flat_map(|all| all.split_whitespace());
        state(&task.path()) == Some('D')
            && children.any(|child| state(&Path::new("/proc").join(child)) == Some('T'))
    })
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn starts_what_is_stopped(_group: Group) -> bool {
    false
}

/// The state of a process or of a thread, by its directory: see proc_pid_stat(5).
#[cfg(any(target_os = "linux", target_os = "android"))]
fn state(directory: &Path) -> Option<char> {
    let stat = std::fs::read_to_string(directory.join("stat")).ok()?;
    // Its name stands before, in parentheses, and may have some of its own.
    let (_, behind) = stat.rsplit_once(')')?;
    behind.trim_start().chars().next()
}

/// Takes the terminal for this process's group.
pub(super) fn take() {
    let _ = touching().thread_block();
    let _ = tcsetpgrp(stdin(), getpgrp());
    let _ = touching().thread_unblock();
}

/// The signal that stops who takes the terminal without having it, or, if the terminal is set so, who writes to it: unless that signal
/// is held off.
fn touching() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Held::SIGTTOU);
    signals
}
