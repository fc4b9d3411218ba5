//! A lease that idles: ours, and no task has it.

use std::sync::Arc;

use super::action::Action;
use super::{Place, State};
use crate::clock::Moment;
use crate::lock::registry::lease::Lease;
use crate::lock::registry::turn::Turn;
use crate::lock::terms::Terms;
use crate::mutant::{self, Mutant};

/// An idle lease must be trusted for this part of its ttl to be taken again: then there is time to renew it.
const LEAST_TRUST: u32 = 3;

impl Place {
    /// A task wants the lock on these terms. If it idles here, and can be relied on, the task has it at once. `hears`: whoever wants it
    /// elsewhere is heard.
    pub(crate) fn take(&mut self, terms: &Terms, hears: bool, now: Moment) -> Option<Turn> {
        let State::Lingering(lease) = &self.state else {
            return None;
        };
        let trusted = lease.trusted_until() > now.after(terms.ttl / LEAST_TRUST);
        let relied_on = hears && trusted && lease.is_held_at(now);
        let serves = !lease.is_wanted() && terms.share(&lease.terms);
        if !(serves && (relied_on || mutant::on(Mutant::IdleAfterTrust))) {
            return None;
        }
        lease.next_turn()?;
        let lease = Arc::clone(lease);
        let turn = Turn::current(&lease);
        self.state = State::Held(lease);
        Some(turn)
    }

    /// Takes the lease that idles here, to be given back.
    pub(crate) fn wake(&mut self) -> Option<Arc<Lease>> {
        let State::Lingering(lease) = &self.state else {
            return None;
        };
        let lease = Arc::clone(lease);
        lease.end();
        self.state = State::Releasing;
        self.release_is_busy = false;
        Some(lease)
    }

    /// Gives this lease back, if it idles. Whether it did.
    pub(crate) fn stop_lingering(&mut self, lease: &Arc<Lease>, actions: &mut Vec<Action>) -> bool {
        let idles = matches!(&self.state, State::Lingering(idle) if Arc::ptr_eq(idle, lease));
        if idles {
            self.give_back(Arc::clone(lease), actions);
        }
        idles
    }

    pub(super) fn lingering(&self) -> Option<Arc<Lease>> {
        match &self.state {
            State::Lingering(lease) => Some(Arc::clone(lease)),
            _ => None,
        }
    }

    pub(super) fn may_linger(&self, lease: &Lease, hears: bool, now: Moment) -> bool {
        // Otherwise it could not be taken again.
        hears
            && lease.terms.may_linger()
            && self.queue.is_empty()
            && self.entrants.is_empty()
            && self.levels.is_empty()
            && !lease.is_wanted()
            && (!lease.was_in_transaction() || mutant::on(Mutant::LingerAfterVerify))
            && lease.is_held_at(now)
            && lease.has_turns()
    }
}
