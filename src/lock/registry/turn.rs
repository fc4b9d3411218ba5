//! A task's turn with a lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Locks;
use super::lease::Lease;
use crate::metric::Hold;

/// One task's hold of a lock. Dropping it gives the lock to the next.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) lease: Arc<Lease>,
    /// The fencing token of this turn.
    pub(crate) fence: u64,
    /// One task's part in a lease that several have together.
    pub(crate) part: Option<Arc<Part>>,
    armed: bool,
}

/// One task's part in a lease: it ends before the lease does.
#[derive(Debug, Default)]
pub(crate) struct Part {
    over: AtomicBool,
    hold: Hold,
}

impl Part {
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

impl Turn {
    /// The lease's current turn.
    pub(crate) fn current(lease: &Arc<Lease>) -> Self {
        if lease.is_joint() {
            lease.parts.fetch_add(1, Ordering::AcqRel);
        }
        Self {
            lease: Arc::clone(lease),
            fence: lease.current_turn(),
            part: lease.is_joint().then(Arc::default),
            armed: true,
        }
    }

    /// Its task has it from here on.
    pub(crate) fn begin(&self) {
        match &self.part {
            Some(part) => part.hold.begin(),
            None => self.lease.hold.begin(),
        }
    }

    /// Takes the turn's end into the caller's hands.
    pub(crate) fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            part.over.store(true, Ordering::Release);
            self.lease.parts.fetch_sub(1, Ordering::AcqRel);
            part.hold.end();
        }
        if self.armed
            && let Some(locks) = self.lease.locks.upgrade()
        {
            let _ = Locks::end_turn(&locks, &self.lease, false);
        }
    }
}
