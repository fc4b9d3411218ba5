//! The terminal: COMMAND has it while it runs, if this program had it.
//!
//! COMMAND's process group is not that of this program: without this, a COMMAND that reads the terminal would be stopped by the kernel, and
//! would hold the lock for ever.
//!
//! This program's group is also that of its neighbours in a pipeline (`| less` needs the terminal), or of a script that has started it beside
//! others. There COMMAND gets it when it asks for it, which is when the kernel has stopped it for that.

use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::AsFd;
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::path::Path;

use nix::sys::signal::{SigSet, Signal as Held};
use rustix::fs::{FileType, fstat};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgid, getpgrp, kill_process_group, waitid,
};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::group::Group;
use crate::exit::tell;

/// The terminal that this program was started from, and whether COMMAND has it.
pub(super) struct Terminal {
    /// None where there is none: a service's, cron's.
    own: Option<File>,
    is_lent: bool,
    /// It was told that COMMAND waits for it.
    is_wanted: bool,
}

impl Terminal {
    /// If this program's group has the terminal, COMMAND is to take it when it begins, by [`take`].
    pub(super) fn lend() -> Self {
        let mut terminal = Self {
            own: controlling(),
            is_lent: false,
            is_wanted: false,
        };
        let is_alone = std::io::stdin().is_terminal() && !is_pipe(&std::io::stdout());
        if is_alone && terminal.is_ours() {
            terminal.lent();
        }
        terminal
    }

    pub(super) fn is_lent(&self) -> bool {
        self.is_lent
    }

    /// Continues a COMMAND that was stopped and would hold the lock: one that Ctrl-Z stopped (whoever pressed it would not get the
    /// terminal back), and one that needs the terminal, as soon as it is this program's to give.
    pub(super) fn wake(&mut self, group: Group, as_json: bool) {
        let stopped_by = stopped_by(group);
        if stopped_by.is_some_and(asks_for_terminal) {
            if self.is_ours() || self.is_of(group.pid()) {
                self.continues(group);
            } else if self.own.is_some() && !std::mem::replace(&mut self.is_wanted, true) {
                without_stopping(|| {
                    tell(
                        "the command waits for the terminal: bring this job to the foreground",
                        as_json,
                    );
                });
            }
        } else if self.is_lent && (stopped_by.is_some() || starts_what_is_stopped(group)) {
            tell(
                "the command goes on: stopped, it would hold the lock",
                as_json,
            );
            self.continues(group);
        }
    }

    /// Continues COMMAND, with the terminal if this program has it.
    fn continues(&mut self, group: Group) {
        if self.is_ours() {
            self.lent();
            self.give_to(group.pid());
        }
        group.signal(Signal::CONT);
    }

    /// Takes the terminal back, if COMMAND's group still has it: where this job was sent to the background it is the shell's.
    pub(super) fn take_back(self, group: Group) {
        if !self.is_lent {
            return;
        }
        if self.is_of(group.pid()) {
            self.give_to(getpgrp());
            // A neighbour may have asked for it meanwhile, and was stopped.
            let _ = kill_process_group(getpgrp(), Signal::CONT);
        }
        let _ = touching().thread_unblock();
    }

    /// Whether this program's group has it.
    fn is_ours(&self) -> bool {
        self.is_of(getpgrp())
    }

    fn is_of(&self, group: Pid) -> bool {
        let has_it = self.own.as_ref().and_then(|own| tcgetpgrp(own).ok());
        has_it == Some(group)
    }

    /// From now on this program may write to it, and take it back, without having it.
    fn lent(&mut self) {
        let _ = touching().thread_block();
        self.is_lent = true;
    }

    fn give_to(&self, group: Pid) {
        if let Some(own) = &self.own {
            let _ = tcsetpgrp(own, group);
        }
    }
}

/// The terminal of this process's session.
fn controlling() -> Option<File> {
    File::open("/dev/tty").ok().filter(File::is_terminal)
}

fn is_pipe(stream: &impl AsFd) -> bool {
    fstat(stream).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

/// Whether this signal stops who needs the terminal and does not have it.
fn asks_for_terminal(signal: i32) -> bool {
    [Signal::TTIN, Signal::TTOU]
        .map(Signal::as_raw)
        .contains(&signal)
}

/// The number of the signal that has stopped the group's first process, if it is stopped.
fn stopped_by(group: Group) -> Option<i32> {
    // It is asked, and left as it is: it can be asked again.
    let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(group.pid()), stopped)
        .ok()??
        .stopping_signal()
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

/// Takes the terminal for this process's group, if that of its parent has it: a shell may have it by now.
pub(super) fn take(parent: Pid) {
    let has_it = |terminal: &File| {
        let lender = getpgid(Some(parent)).ok();
        lender.is_some() && tcgetpgrp(terminal).ok() == lender
    };
    if let Some(terminal) = controlling().filter(has_it) {
        without_stopping(|| {
            let _ = tcsetpgrp(&terminal, getpgrp());
        });
    }
    let _ = touching().thread_unblock();
}

/// Does what would stop this process if it has not the terminal.
fn without_stopping(work: impl FnOnce()) {
    let _ = touching().thread_block();
    work();
    let _ = touching().thread_unblock();
}

/// The signal that stops who takes the terminal without having it, or, if the terminal is set so, who writes to it: unless that signal
/// is held off.
fn touching() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Held::SIGTTOU);
    signals
}
