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
        let has_it = std::io::stdin().is_terminal() && tcgetpgrp(stdin()) == Ok(own);
        Self(has_it.then_some(own))
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
            give_to(own);
        }
    }
}

/// Gives the terminal to this process's group.
pub(super) fn take() {
    give_to(getpgrp());
}

fn give_to(group: Pid) {
    // Whoever gives it away without having it is stopped, unless this signal is held off.
    let mut held = SigSet::empty();
    held.add(Held::SIGTTOU);
    let _ = held.thread_block();
    let _ = tcsetpgrp(stdin(), group);
    let _ = held.thread_unblock();
}
