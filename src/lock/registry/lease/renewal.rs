//! A lease's date with the keeper, and the renewals of it that are on their way.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Lease;
use crate::clock::{Moment, micros};

/// The way of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Lane,
    /// Over another connection, while its lane does not answer.
    Rescue,
}

impl Lease {
    pub(crate) fn date(&self) -> Moment {
        Moment::from_micros(self.date.load(Ordering::Relaxed))
    }

    pub(crate) fn set_date(&self, at: Moment) {
        self.date.store(at.as_micros(), Ordering::Relaxed);
    }

    /// Marks that a renewal is on its way: by its lane, or as a rescue if one is there already. `None` if both are.
    pub(crate) fn begin_renewal(&self) -> Option<Way> {
        let free = |way: &Way| !self.renewing[*way as usize].swap(true, Ordering::AcqRel);
        [Way::Lane, Way::Rescue].into_iter().find(free)
    }

    /// A renewal is on its way by its lane.
    pub(crate) fn is_being_renewed(&self) -> bool {
        self.renewing[Way::Lane as usize].load(Ordering::Acquire)
    }

    pub(crate) fn end_renewal(&self, way: Way) {
        self.renewing[way as usize].store(false, Ordering::Release);
    }

    /// For how long a renewal by `ttl` asks now, in microseconds; `None` once the longest hold is
    /// reached.
    pub(crate) fn renewal(&self, ttl: Duration) -> Option<i64> {
        let ttl = match self.terms.max_hold {
            None => ttl,
            Some(longest) => {
                let left = self.granted.after(longest).left();
                if left.is_zero() {
                    return None;
                }
                ttl.min(left)
            }
        };
        Some(micros(ttl))
    }
}
