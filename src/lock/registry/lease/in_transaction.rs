//! What a transaction of the caller's has done with a lease: used it, or released it.

use std::sync::atomic::Ordering;

use super::{Lease, NEVER};
use crate::clock::Moment;

impl Lease {
    pub(crate) fn note_release(&self) {
        self.released.store(true, Ordering::Release);
    }

    pub(crate) fn was_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    /// It is used inside a caller's transaction: it passes in memory no more. Whether it is the holder's of this turn.
    pub(crate) fn use_in_transaction(&self, turn: u64) -> bool {
        let _turns = self.lock_signal();
        let ours = self.current_turn() == turn;
        if ours {
            self.in_transaction.store(true, Ordering::Release);
        }
        ours
    }

    pub(crate) fn was_in_transaction(&self) -> bool {
        self.in_transaction.load(Ordering::Acquire)
    }

    /// A transaction of the caller's has released it at `now`, and is open.
    pub(crate) fn release_is_open(&self, now: Moment) {
        self.release_open_since
            .store(now.as_micros(), Ordering::Release);
    }

    /// A change of its row, sent at `sent`, found it held: if it was released before, that was rolled back.
    pub(crate) fn found_held(&self, sent: Moment) {
        let open = self.release_open_since.load(Ordering::Acquire);
        if open < sent.as_micros() {
            // Unless it was released once more in this moment.
            let _ = self.release_open_since.compare_exchange(
                open,
                NEVER,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
        }
    }
}
