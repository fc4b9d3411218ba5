//! A process group: COMMAND and what it started.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// How often it is looked at whether anybody is left.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// A process group, by the process id of its first process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group(Pid);

impl Group {
    pub(super) fn of(leader: i32) -> Option<Self> {
        // 1 would be everybody, by kill(2).
        Pid::from_raw(leader)
            .filter(|pid| pid.as_raw_nonzero().get() > 1)
            .map(Self)
    }

    pub(super) fn pid(self) -> Pid {
        self.0
    }

    /// Sends a signal to all of them. That nobody is left is no error.
    pub(super) fn signal(self, signal: Signal) {
        let _ = kill_process_group(self.0, signal);
    }

    /// Sends a signal that is to be heard also by those that are stopped: they would hear of it only when they go on.
    pub(super) fn tell(self, signal: Signal) {
        self.signal(signal);
        self.signal(Signal::CONT);
    }

    /// Asks all of them to end.
    pub(super) fn terminate(self) {
        self.tell(Signal::TERM);
    }

    pub(super) fn kill(self) {
        self.signal(Signal::KILL);
    }

    /// Whether anybody is left.
    pub(super) fn exists(self) -> bool {
        test_kill_process_group(self.0) != Err(Errno::SRCH)
    }
}
