//! Signals that stop a process, while it begins.
//!
//! What is started leaves this program's process group before it becomes a program, and was in it until then. One that Ctrl-Z stopped in that
//! instant would stay so, since what continues the group does not reach it any more; and this program would wait for it for ever, in vfork(2).

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Signal as Sent, getpid, kill_process};

/// While this lives, what stops this program waits, and does not stop what it starts. That calls [`let_through`].
pub(super) struct HeldOff(());

pub(super) fn hold_off() -> HeldOff {
    let _ = stopping().thread_block();
    HeldOff(())
}

impl Drop for HeldOff {
    fn drop(&mut self) {
        let _ = stopping().thread_unblock();
    }
}

/// From now on this process can be stopped. What was to stop it before is forgotten: that was meant for the group which it has left.
pub(super) fn let_through() {
    // It has that effect by itself: signal(7), "SIGCONT".
    let _ = kill_process(getpid(), Sent::CONT);
    let _ = stopping().thread_unblock();
}

fn stopping() -> SigSet {
    [Signal::SIGTSTP, Signal::SIGTTIN].into_iter().collect()
}
