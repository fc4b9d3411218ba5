//! Whether a request's packet may wait for a row, and does.

use std::sync::atomic::{AtomicBool, Ordering};

/// Between a request that may wait for a row, and those who wait for its answer.
#[derive(Debug, Default)]
pub(crate) struct RowPatience {
    /// Its packet waits for a row.
    queues: AtomicBool,
    /// Somebody wants the answer now.
    hurries: AtomicBool,
}

impl RowPatience {
    /// Its packet waits for a row from here on; false if somebody wants the answer now. Either this sees him, or he sees that it waits.
    pub(crate) fn begin_to_queue(&self) -> bool {
        self.queues.store(true, Ordering::SeqCst);
        let may_wait = !self.hurries.load(Ordering::SeqCst);
        if !may_wait {
            self.end_to_queue();
        }
        may_wait
    }

    /// Its packet waits no more.
    pub(super) fn end_to_queue(&self) {
        self.queues.store(false, Ordering::SeqCst);
    }

    /// From here on no packet begins to wait for a row. Whether one waits already.
    pub(crate) fn hurry(&self) -> bool {
        self.hurries.store(true, Ordering::SeqCst);
        self.queues.load(Ordering::SeqCst)
    }
}
