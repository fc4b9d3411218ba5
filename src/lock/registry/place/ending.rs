//! How a turn ends, and the lease with it: handed on in memory, left to idle, given back, or lost.

use std::sync::Arc;
use std::time::Duration;

use super::action::{Action, Asking, TurnOver};
use super::{Place, State, give_back_quietly};
use crate::clock::Moment;
use crate::lock::registry::lease::Lease;
use crate::mutant::{self, Mutant};
use crate::timing::SLICE;

impl Place {
    /// The holder of the current turn is done with it. `hears`: whoever wants it elsewhere is heard.
    pub(crate) fn end_turn(
        &mut self,
        lease: &Arc<Lease>,
        hears: bool,
        now: Moment,
        actions: &mut Vec<Action>,
    ) -> TurnOver {
        if !self.is_current(lease) {
            // A level beside others; or it was lost before, and the place has gone on without it.
            self.drop_level(lease);
            if !lease.has_ended() {
                actions.push(give_back_quietly(lease));
            }
            return TurnOver::Over;
        }
        if self.may_pass(lease, now) {
            if lease.look_is_due(now, SLICE) {
                actions.push(Action::LookForOthers(Arc::clone(lease)));
            }
            if lease.next_turn().is_some() && self.queue.hand(lease) {
                return TurnOver::HandedOn;
            }
        }
        if self.may_linger(lease, hears, now) {
            self.state = State::Lingering(Arc::clone(lease));
            return TurnOver::Lingers;
        }
        match self.levels.pop() {
            Some(level) => {
                self.state = State::Held(level);
                actions.push(give_back_quietly(lease));
            }
            None => self.give_back(Arc::clone(lease), actions),
        }
        TurnOver::Over
    }

    fn may_pass(&self, lease: &Lease, now: Moment) -> bool {
        let others = lease.is_wanted() && now.since(lease.answered) >= SLICE;
        !others
            && lease.terms.may_pass()
            && (!lease.was_in_transaction() || mutant::on(Mutant::TurnAfterVerify))
            && lease.is_held_at(now)
            && self
                .queue
                .first()
                .is_some_and(|first| first.terms.share(&lease.terms))
    }

    fn is_current(&self, lease: &Arc<Lease>) -> bool {
        matches!(&self.state, State::Held(held) | State::Lingering(held) if Arc::ptr_eq(held, lease))
    }

    fn drop_level(&mut self, lease: &Arc<Lease>) {
        self.levels.retain(|level| !Arc::ptr_eq(level, lease));
    }

    pub(super) fn give_back(&mut self, lease: Arc<Lease>, actions: &mut Vec<Action>) {
        lease.end();
        self.state = State::Releasing;
        self.release_is_busy = false;
        actions.push(Action::Release {
            lease,
            announce: true,
        });
    }

    /// The release waits for a transaction that holds the row.
    pub(crate) fn release_is_busy(&mut self) {
        if matches!(self.state, State::Releasing) {
            self.release_is_busy = true;
            self.queue.refuse_once();
        }
    }

    /// The release is known. `wanted`: for how long another process is still known to wait; `fence`: as it is now, if the
    /// row was ours.
    pub(crate) fn released(
        &mut self,
        wanted: Duration,
        fence: Option<u64>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        if !matches!(self.state, State::Releasing) {
            return;
        }
        if let Some(level) = self.levels.pop() {
            self.state = State::Held(level);
            self.queue.refuse_once();
            self.admit(now, actions);
        } else if self.watch.let_go_first(wanted, fence, now) {
            self.queue.refuse_once();
            self.state = State::Watching;
            actions.push(Action::Watch);
        } else {
            self.ask(Asking::New, now, actions);
        }
    }

    /// The lease is lost while a task still holds its guard: the others ask the table.
    pub(crate) fn lost(&mut self, lease: &Arc<Lease>, now: Moment, actions: &mut Vec<Action>) {
        if !self.is_current(lease) {
            self.drop_level(lease);
        } else if let Some(level) = self.levels.pop() {
            self.state = State::Held(level);
        } else {
            self.ask(Asking::New, now, actions);
        }
    }
}
