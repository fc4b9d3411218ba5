//! How those leave who wait: their time is over, they go away, or the server can tell them nothing.

use super::action::{Action, Asking, Leaving};
use super::{Place, State};
use crate::clock::Moment;
use crate::error::Error;
use crate::mutant::{self, Mutant};

impl Place {
    /// A waiter's time is over.
    pub(crate) fn time_is_over(
        &mut self,
        id: u64,
        now: Moment,
        actions: &mut Vec<Action>,
    ) -> Leaving {
        if let Some(entrant) = self
            .entrants
            .iter_mut()
            .find(|entrant| entrant.waiter.id == id)
        {
            entrant.waiter.once = true;
            return Leaving::Stays(entrant.since);
        }
        let first = self.queue.is_first(id);
        let blind = self.watch.is_blind();
        let Some(waiter) = self.queue.get_mut(id) else {
            return Leaving::Answered;
        };
        let answer = match self.state {
            State::Asking { asking, since } if !matches!(asking, Asking::AtRow(_)) => {
                let asked = (first || blind) && !mutant::on(Mutant::ShortWaitUnasked);
                (waiter.once || asked).then_some(since)
            }
            _ => waiter.once.then_some(now),
        };
        if let Some(since) = answer {
            waiter.once = true;
            return Leaving::Stays(since);
        }
        self.leave(id, now, actions);
        // A release that is on its way may be on its way for long.
        let ours = matches!(self.state, State::Held(_));
        Leaving::Left {
            seen: ours || self.watch.is_fresh(now),
        }
    }

    /// A waiter goes away. False: it has its answer.
    pub(crate) fn leave(&mut self, id: u64, now: Moment, actions: &mut Vec<Action>) -> bool {
        if let Some(position) = self
            .entrants
            .iter()
            .position(|entrant| entrant.waiter.id == id)
        {
            self.entrants.remove(position);
            return true;
        }
        let left = self.queue.remove(id).is_some();
        if left {
            self.give_up(now, actions);
        }
        left
    }

    /// When nobody waits any more, nobody is to be let go first for our sake.
    pub(super) fn give_up(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if self.queue.is_empty() && self.watch.take_back(now) {
            actions.push(Action::NoLongerWant);
        }
    }

    /// Nothing can be had from the server for the first waiter, nor for those behind it: they are told.
    pub(crate) fn fail(&mut self, error: &Error, now: Moment, actions: &mut Vec<Action>) {
        self.queue.fail(error);
        self.give_up(now, actions);
        if !matches!(
            self.state,
            State::Held(_) | State::Lingering(_) | State::Releasing
        ) {
            self.settle_down();
        }
    }
}
