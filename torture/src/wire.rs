//! A worker's proxy, with faults that wait for the next command they fit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::proxy::{Command, Fault, Proxy};

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
        fault
    }
}
