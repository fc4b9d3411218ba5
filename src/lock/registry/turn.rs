//! A task's turn with a lease.

use std::sync::Arc;

use super::Locks;
use super::lease::Lease;

/// One task's hold of a lock. Dropping it gives the lock to the next.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) lease: Arc<Lease>,
    /// The fencing token of this turn.
    pub(crate) fence: u64,
    armed: bool,
}

impl Turn {
    /// The lease's current turn.
    pub(crate) fn current(lease: &Arc<Lease>) -> Self {
        Self {
            lease: Arc::clone(lease),
            fence: lease.current_turn(),
            armed: true,
        }
    }

    /// Takes the turn's end into the caller's hands.
    pub(crate) fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.armed
            && let Some(locks) = self.lease.locks.upgrade()
        {
            let _ = Locks::end_turn(&locks, &self.lease, false);
        }
    }
}
