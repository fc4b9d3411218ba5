//! How many requests an engine has taken that it has not answered: its lanes end when there are none, and none can come.
//!
//! A request may go from lane to lane, wait for its settlement, and bring a release about as it is answered: so no lane ends before all
//! of them can.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The requests that are under way.
#[derive(Debug, Default)]
pub(super) struct Pending {
    count: AtomicUsize,
    closed: AtomicBool,
    over: Notify,
}

impl Pending {
    /// One more is under way, until what this gives is dropped.
    pub(super) fn enter(self: &Arc<Self>) -> UnderWay {
        self.count.fetch_add(1, Ordering::AcqRel);
        UnderWay(Arc::clone(self))
    }

    /// From here on only releases come, which others bring about.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.over.notify_waiters();
    }

    /// Whether nothing is under way, and nothing will be.
    pub(super) fn is_over(&self) -> bool {
        self.closed.load(Ordering::Acquire) && self.count.load(Ordering::Acquire) == 0
    }

    /// Notified when it may be over.
    pub(super) fn over(&self) -> &Notify {
        &self.over
    }
}

/// A request that is under way.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<Pending>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let last = self.0.count.fetch_sub(1, Ordering::AcqRel) == 1;
        if last && self.0.closed.load(Ordering::Acquire) {
            self.0.over.notify_waiters();
        }
    }
}
