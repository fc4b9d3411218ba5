//! A task's turn with a lease.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

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
    /// Fires if the lease is lost while this part of it is held.
    signal: CancellationToken,
    hold: Hold,
}

impl Part {
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(crate) fn signal(&self) -> &CancellationToken {
        &self.signal
    }
}

impl Lease {
    /// A task more has it, together with others.
    pub(super) fn begin_part(&self) -> Arc<Part> {
        let part = Arc::<Part>::default();
        self.parts().push(Arc::clone(&part));
        // Lost in this moment: either it is seen here, or `lose` finds the part.
        if self.is_lost() {
            part.signal().cancel();
        }
        part
    }

    /// A task is done with it: what becomes of the lease concerns it no more. Whether it was the last one.
    pub(super) fn end_part(&self, part: &Arc<Part>) -> bool {
        let mut parts = self.parts();
        if let Some(at) = parts.iter().rposition(|other| Arc::ptr_eq(other, part)) {
            parts.swap_remove(at);
        }
        parts.is_empty()
    }

    pub(super) fn parts(&self) -> MutexGuard<'_, Vec<Arc<Part>>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// The lease's current turn.
    pub(crate) fn current(lease: &Arc<Lease>) -> Self {
        Self {
            lease: Arc::clone(lease),
            fence: lease.current_turn(),
            part: lease.is_joint().then(|| lease.begin_part()),
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

    /// What says that it is lost.
    pub(crate) fn signal(&self) -> CancellationToken {
        match &self.part {
            Some(part) => part.signal().clone(),
            None => self.lease.signal(),
        }
    }

    /// Takes the turn's end into the caller's hands. Whether no other task has a part in the lease now.
    pub(crate) fn disarm(mut self) -> bool {
        self.armed = false;
        self.leave()
    }

    /// Ends its part, once.
    fn leave(&mut self) -> bool {
        let Some(part) = self.part.take() else {
            return true;
        };
        part.over.store(true, Ordering::Release);
        part.hold.end();
        self.lease.end_part(&part)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let last = self.leave();
        if let Some(locks) = self.lease.locks.upgrade() {
            let _ = Locks::end_turn(&locks, &self.lease, last, false);
        }
    }
}
