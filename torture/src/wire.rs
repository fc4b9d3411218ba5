//! A worker's proxy, with faults that wait for the next command they fit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::history::Unavailable;
use crate::instant::now;
use crate::proxy::{Command, Fault, Hold, Proxy};

/// How long a client may wait for the answer of a connection that has fallen silent, before it sends the packet again: the time limit of
/// those that wait for rows, which is 3 s and the workers' time limit of a packet, and something for the next connection. What everybody
/// reads who waits for a lock goes over one connection.
const SILENCE: Duration = Duration::from_millis(5_500);
/// The same behind an answer that came late.
const AGAIN: Duration = Duration::from_millis(500);

/// A fault that waits for its command.
struct Armed {
    name: &'static str,
    fits: fn(&Command) -> bool,
    fault: Fault,
}

/// The proxy, and what waits in it.
pub struct Wire {
    /// The proxy itself, for faults of the whole link.
    pub proxy: Proxy,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Most commands pass without a look at the list.
    waiting: AtomicBool,
    /// How many sessions were to be killed.
    kills: AtomicUsize,
    armed: Mutex<Vec<Armed>>,
    struck: Mutex<BTreeMap<&'static str, u64>>,
    /// Whose packets pass; 0 before the first worker.
    worker: AtomicU32,
    silences: Mutex<Vec<Unavailable>>,
}

impl Wire {
    /// Takes over a proxy.
    #[must_use]
    pub fn new(proxy: Proxy) -> Self {
        let shared = Arc::<Shared>::default();
        let hook = Arc::clone(&shared);
        proxy.on_command(move |command| hook.decide(command));
        Self { proxy, shared }
    }

    /// From now on the packets of this worker pass.
    pub fn belongs_to(&self, worker: u32) {
        self.shared.worker.store(worker, Ordering::Relaxed);
    }

    /// Lets a fault strike the next command that it fits.
    pub fn arm(&self, name: &'static str, fits: fn(&Command) -> bool, fault: Fault) {
        let mut armed = self
            .shared
            .armed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // One of a kind is enough: while a worker is stopped, they would heap up.
        if armed.iter().any(|armed| armed.name == name) {
            return;
        }
        armed.push(Armed { name, fits, fault });
        self.shared.waiting.store(true, Ordering::Relaxed);
    }

    /// Takes back what still waits.
    pub fn disarm(&self) {
        let mut armed = self
            .shared
            .armed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        armed.clear();
        self.shared.waiting.store(false, Ordering::Relaxed);
    }

    /// How often each armed fault has struck.
    #[must_use]
    pub fn struck(&self) -> BTreeMap<&'static str, u64> {
        self.shared
            .struck
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// When connections were silent.
    #[must_use]
    pub fn silences(&self) -> Vec<Unavailable> {
        self.shared
            .silences
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// For how long a connection on which this fault strikes may keep its client waiting.
fn silence(fault: &Fault) -> Option<Duration> {
    match fault {
        Fault::HalfOpen => Some(SILENCE),
        Fault::HoldCommand(Hold::For(time)) => Some((*time + AGAIN).min(SILENCE)),
        _ => None,
    }
}

impl Shared {
    fn decide(&self, command: &Command) -> Fault {
        // Each second one does not arrive: what was sent to a session that its client gave up may still run.
        if command.sql().is_some_and(|sql| sql.starts_with(b"KILL "))
            && self.kills.fetch_add(1, Ordering::Relaxed).is_multiple_of(2)
        {
            return Fault::Undone;
        }
        if !self.waiting.load(Ordering::Relaxed) {
            return Fault::Pass;
        }
        let mut armed = self.armed.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = armed.iter().position(|armed| (armed.fits)(command)) else {
            return Fault::Pass;
        };
        let Armed { name, fault, .. } = armed.swap_remove(at);
        self.waiting.store(!armed.is_empty(), Ordering::Relaxed);
        let mut struck = self.struck.lock().unwrap_or_else(PoisonError::into_inner);
        *struck.entry(name).or_default() += 1;
        if let Some(time) = silence(&fault) {
            let from = now();
            let silence = Unavailable {
                worker: Some(self.worker.load(Ordering::Relaxed)),
                stopped: false,
                silent: true,
                from,
                to: from + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
            };
            let mut silences = self.silences.lock().unwrap_or_else(PoisonError::into_inner);
            silences.push(silence);
        }
        fault
    }
}
