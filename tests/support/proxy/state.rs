//! What a proxy and its connections share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::command::Command;
use super::counters::{Counters, Recorded};
use super::fault::Fault;

pub(super) type Hook = Arc<dyn Fn(&Command) -> Fault + Send + Sync>;

pub(super) struct Shared {
    pub(super) upstream: Mutex<String>,
    pub(super) hook: Mutex<Hook>,
    /// `KILL` does not arrive.
    pub(super) ignores_kills: AtomicBool,
    pub(super) link: Mutex<Link>,
    pub(super) counters: Mutex<Counters>,
    /// `None` while nothing is recorded.
    pub(super) recorded: Mutex<Option<Vec<Recorded>>>,
    pub(super) switches: watch::Sender<Switches>,
    /// How many connections are there now.
    pub(super) open: watch::Sender<usize>,
}

/// How long bytes are on their way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Link {
    pub(super) to_server: Duration,
    pub(super) to_client: Duration,
    pub(super) jitter: Duration,
}

/// What holds for all connections of a proxy.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Switches {
    pub(super) paused: bool,
    pub(super) refusing: bool,
    /// How often all connections were cut: one that began before the last time is over.
    pub(super) cuts: u64,
}

impl Shared {
    pub(super) fn new(upstream: String) -> Self {
        Self {
            upstream: Mutex::new(upstream),
            hook: Mutex::new(Arc::new(|_| Fault::Pass)),
            ignores_kills: AtomicBool::new(false),
            link: Mutex::default(),
            counters: Mutex::default(),
            recorded: Mutex::default(),
            switches: watch::Sender::default(),
            open: watch::Sender::default(),
        }
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut locked(&self.counters));
    }

    /// Asks the hook, and counts the fault that it wants.
    pub(super) fn decide(&self, command: &Command) -> Fault {
        let kill = command.sql().is_some_and(|sql| sql.starts_with(b"KILL "));
        if kill && self.ignores_kills.load(Ordering::Relaxed) {
            return Fault::Undone;
        }
        // The hook runs outside of the lock: it may set another hook.
        let hook = Arc::clone(&locked(&self.hook));
        let fault = hook(command);
        if let Some(kind) = fault.kind() {
            self.count(|counters| *counters.faults.entry(kind).or_default() += 1);
        }
        fault
    }

    /// Counts and records a command that is on its way to the server.
    pub(super) fn forwarded(&self, command: &Command) {
        self.count(|counters| counters.count_command(command));
        if let Some(recorded) = locked(&self.recorded).as_mut() {
            recorded.push(command.into());
        }
    }
}

/// Locks, also behind a hook's panic: each value is whole between any two statements.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
