//! The terminal: COMMAND has it while it runs, if this program had it.
//!
//! COMMAND's process group is not that of this program: without this, a COMMAND that reads the terminal would be stopped by the kernel, and
//! would hold the lock for ever.

use std::io::IsTerminal;

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
    pub(super) fn wake(&self, group: Group) {
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        if self.0.is_some() && matches!(waitid(WaitId::Pid(group.pid()), stopped), Ok(Some(_))) {
            tell(
                "the command goes on: stopped, it would hold the lock",
                false,
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
