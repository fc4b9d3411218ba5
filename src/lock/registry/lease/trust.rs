//! How long this process may trust a lease.
//!
//! # Clocks
//!
//! The server grants until `now + ttl` by its own clock, at some time after the packet was *sent*.
//! The holder trusts the lease until the instant of sending + what the server said is left, by a
//! clock that never steps, less a margin. So its trust ends before anybody else can be granted the
//! lock, also when the process was paused or cut off. It cannot know that a virtual machine was paused
//! with its clocks, or that the server's clock was stepped forward: there, only fencing tokens and
//! verification inside a transaction protect, and they always do.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Lease, NEVER};
use crate::clock::{Moment, from_micros};
use crate::mutant::{self, Mutant};

/// Trust ends this much before the lease does, or 2 % of the ttl if that is more.
const MARGIN: Duration = Duration::from_millis(10);

impl Lease {
    /// Takes in that a packet sent at `sent` found `remaining` microseconds left, which is to be no more than it asked for:
    /// a server whose clock went back finds more, until that clock is set right.
    pub(crate) fn extend(&self, sent: Moment, remaining: i64) {
        let sent = if mutant::on(Mutant::TrustFromReply) {
            Moment::now()
        } else {
            sent
        };
        let left = from_micros(remaining);
        let margin = MARGIN.max(left / 50);
        let mut until = sent.after(left.saturating_sub(margin));
        if let Some(longest) = self.terms.max_hold {
            until = until.min(self.granted.after(longest));
        }
        self.trusted_until
            .fetch_max(until.as_micros(), Ordering::AcqRel);
    }

    /// The server said that it runs until then, in microseconds since 1970 by its clock.
    pub(crate) fn told(&self, until: i64) {
        self.told_until.fetch_max(until, Ordering::AcqRel);
    }

    pub(crate) fn told_until(&self) -> i64 {
        self.told_until.load(Ordering::Acquire)
    }

    /// What a renewal says of an owner's level: until when it is known to run.
    pub(crate) fn level_until(&self) -> Option<i64> {
        self.terms.owner.map(|_| self.told_until())
    }

    /// How long it may still be trusted.
    pub(crate) fn trusted_for(&self) -> Duration {
        self.trusted_until().left()
    }

    /// Until when it may be trusted.
    pub(crate) fn trusted_until(&self) -> Moment {
        Moment::from_micros(self.trusted_until.load(Ordering::Acquire))
    }

    /// Whether it is still this process's, as far as this process can know.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held_at(Moment::now())
    }

    /// The same, where it is `now`: some calls ago at the most.
    pub(crate) fn is_held_at(&self, now: Moment) -> bool {
        self.is_trusted_at(now) && self.release_open_since.load(Ordering::Acquire) == NEVER
    }

    /// Whether it is still this process's, unless an open transaction that released it has committed.
    pub(crate) fn is_trusted(&self) -> bool {
        self.is_trusted_at(Moment::now())
    }

    fn is_trusted_at(&self, now: Moment) -> bool {
        !self.lost.load(Ordering::Acquire)
            && !self.ended.load(Ordering::Acquire)
            && (self.trusted_until() > now || mutant::on(Mutant::LocalDeadlineIgnored))
    }
}
