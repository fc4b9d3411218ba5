//! Owners that hold the lock already: they go past the queue, one level deeper.

use std::sync::Arc;

use super::action::{Action, Asking, Question};
use super::waiter::Waiter;
use super::{Place, State, give_back_quietly};
use crate::clock::Moment;
use crate::error::Error;
use crate::lock::registry::lease::Lease;
use crate::lock::registry::turn::Turn;
use crate::sql::reply::RowState;
use crate::token::Token;

/// An owner's waiter that goes past the queue.
#[derive(Debug)]
pub(super) struct Entrant {
    pub(super) waiter: Waiter,
    pub(super) since: Moment,
}

impl Place {
    /// Whether an owner who comes now asks past the queue, since it may hold the lock already.
    pub(super) fn may_enter(&self, owner: Token, once: bool) -> bool {
        match &self.state {
            State::Held(lease) => lease.terms.owner == Some(owner),
            State::Watching if once => self.watch.may_enter(owner),
            State::Watching => self.watch.seems_held_by(owner),
            // An owner who does not wait asks at once: the server says whether it holds the lock.
            State::Asking { .. } => once,
            State::Idle | State::Lingering(_) | State::Releasing => false,
        }
    }

    /// Sends an acquire for one who goes past the queue.
    pub(super) fn ask_for(
        &mut self,
        waiter: Waiter,
        asking: Asking,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        actions.push(Action::Ask(Question {
            terms: waiter.terms.clone(),
            asking,
            gives_way: self.watch.gives_way_to(asking, now),
            entrant: Some(waiter.id),
        }));
        self.entrants.push(Entrant { waiter, since: now });
    }

    /// Those whose owner seems to hold the lock go past the queue.
    pub(super) fn admit(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let holds = |owner: Token| match &self.state {
            State::Held(lease) => lease.terms.owner == Some(owner),
            State::Watching => self.watch.seems_held_by(owner),
            _ => false,
        };
        for waiter in self
            .queue
            .take(|waiter| waiter.terms.owner.is_some_and(holds))
        {
            self.ask_for(waiter, Asking::New, now, actions);
        }
    }

    /// The server granted another level to an owner, past the queue.
    pub(crate) fn entered(
        &mut self,
        id: u64,
        lease: Arc<Lease>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        let Some(waiter) = self.take_entrant(id) else {
            actions.push(give_back_quietly(&lease));
            return;
        };
        if !lease.is_held() {
            // It came too late to be trusted: the waiter goes on in its place, unless it asked for one answer.
            actions.push(give_back_quietly(&lease));
            if waiter.once {
                waiter.fail(&Error::no_answer());
            } else {
                self.stand_in_line(waiter, now, actions);
            }
            return;
        }
        if !waiter.take(Turn::current(&lease)) {
            actions.push(give_back_quietly(&lease));
            return;
        }
        if matches!(self.state, State::Idle | State::Watching) {
            self.watch.own(lease.fence, now);
            self.state = State::Held(lease);
            self.queue.refuse_once();
            self.admit(now, actions);
        } else {
            self.levels.push(lease);
        }
    }

    pub(super) fn take_entrant(&mut self, id: u64) -> Option<Waiter> {
        let position = self
            .entrants
            .iter()
            .position(|entrant| entrant.waiter.id == id)?;
        Some(self.entrants.swap_remove(position).waiter)
    }

    /// The server refused one who asked past the queue: it waits in its place, and the row is watched.
    pub(crate) fn not_entered(
        &mut self,
        id: u64,
        row: Option<&RowState>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        let Some(waiter) = self.take_entrant(id) else {
            return;
        };
        if let (Some(row), Some(owner)) = (row, waiter.terms.owner) {
            self.watch.not_entered(owner, row);
        }
        if waiter.once {
            waiter.refuse();
            return;
        }
        // A transaction has locked the row, and the lock is the owner's own: it would wait in the queue for itself.
        if row.is_none()
            && let Some(owner) = waiter.terms.owner
            && self.may_enter(owner, false)
        {
            let asking = Asking::AtRow(waiter.until);
            self.ask_for(waiter, asking, now, actions);
            return;
        }
        self.stand_in_line(waiter, now, actions);
    }

    /// One who went past the queue in vain waits in its place there.
    fn stand_in_line(&mut self, waiter: Waiter, now: Moment, actions: &mut Vec<Action>) {
        self.queue.push(waiter);
        actions.push(Action::Waits);
        if let Some(lease) = self.lingering() {
            self.give_back(lease, actions);
        } else if matches!(self.state, State::Idle) {
            self.ask(Asking::New, now, actions);
        }
    }

    /// The same for one who asked past the queue.
    pub(crate) fn fail_entrant(&mut self, id: u64, error: &Error) {
        if let Some(entrant) = self.take_entrant(id) {
            entrant.fail(error);
        }
    }
}
