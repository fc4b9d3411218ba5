//! One name as this process sees it: who waits for it here, and what is going on about it.
//!
//! Plain data and decisions, without I/O: what is to be done comes out as [`Action`]s, which
//! [`Locks`](super::Locks) carry out after they have let go of their mutex.
//!
//! ```text
//!            ask              granted
//!   Idle ──────────▶ Asking ──────────▶ Held ──┐ next turn, in memory
//!    ▲                │ ▲                │ ▲───┘
//!    │         refused│ │free            │ release through the table
//!    │                ▼ │                ▼
//!    └───────────── Watching ◀─────── Releasing
//!      nobody waits          wanted by another process
//! ```
//!
//! All wait in one queue. Only an owner that holds the lock already goes past it, one level deeper: it asks on its own.

mod action;
mod ending;
mod leaving;
mod linger;
mod owner;
mod waiter;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use self::action::give_back_quietly;
pub(crate) use self::action::{Action, Asking, Leaving, Question, TurnOver};
use self::owner::Entrant;
pub(crate) use self::waiter::{Queue, Waiter};
pub(crate) use self::watch::Unanswered;
use self::watch::Watch;
use super::lease::Lease;
use crate::clock::Moment;
use crate::error::Error;
use crate::mutant::{self, Mutant};
use crate::sql::reply::RowState;
use crate::timing::{LOCK_WAIT, WANT};

#[derive(Debug)]
pub(crate) enum State {
    Idle,
    /// An acquire for the first waiter is on its way since then; its answer comes soon, unless it waits at the row.
    Asking {
        asking: Asking,
        since: Moment,
    },
    Held(Arc<Lease>),
    /// It is ours, and no task has it.
    Lingering(Arc<Lease>),
    /// A release is on its way; nobody asks before it is known.
    Releasing,
    /// Somebody else holds it, or is about to: we look at the row from time to time.
    Watching,
}

#[derive(Debug)]
pub(crate) struct Place {
    queue: Queue,
    entrants: Vec<Entrant>,
    pub(crate) state: State,
    /// Levels of one owner that this process holds, beside the one in `state`.
    levels: Vec<Arc<Lease>>,
    /// The release that is on its way waits for a transaction of the application.
    release_is_busy: bool,
    watch: Watch,
}

impl Place {
    /// `unanswered`: what an earlier place of the name knew.
    pub(crate) fn new(client: u32, now: Moment, unanswered: Option<Unanswered>) -> Self {
        Self {
            queue: Queue::default(),
            entrants: Vec::new(),
            state: State::Idle,
            levels: Vec::new(),
            release_is_busy: false,
            watch: Watch::new(client, now, unanswered),
        }
    }

    /// A task wants the lock. `None`: it waits now; otherwise the waiter is given back, because it
    /// would have to wait and does not want to.
    pub(crate) fn enter(
        &mut self,
        mut waiter: Waiter,
        now: Moment,
        actions: &mut Vec<Action>,
    ) -> Option<Waiter> {
        // The lease that idles here does not serve this waiter, or `take` had given it.
        if let Some(lease) = self.lingering() {
            self.give_back(lease, actions);
        }
        if let Some(owner) = waiter.terms.owner
            && self.may_enter(owner, waiter.once)
        {
            self.ask_for(waiter, Asking::New, now, actions);
            return None;
        }
        if waiter.once && self.is_taken() {
            return Some(waiter);
        }
        let ask = match self.state {
            State::Idle => true,
            State::Watching => {
                waiter.once || (self.queue.is_empty() && self.is_worth_asking(&waiter))
            }
            _ => false,
        };
        waiter.asks = ask;
        self.queue.push(waiter);
        if ask {
            self.ask(Asking::New, now, actions);
        } else {
            actions.push(Action::Waits);
        }
        None
    }

    /// Nobody has waited any more: what was seen last says nothing about now. But a process that was promised the lock goes
    /// first, if the waiter has the time.
    fn is_worth_asking(&self, waiter: &Waiter) -> bool {
        let promised = self.watch.gives_way();
        promised.is_none_or(|promised| waiter.until.is_some_and(|until| until < promised))
    }

    /// Whether the lock was seen held, or belongs to somebody who waits for it.
    fn is_taken(&self) -> bool {
        match self.state {
            State::Held(_) | State::Lingering(_) => true,
            // The first answer is everybody's.
            State::Asking { asking, .. } => {
                matches!(asking, Asking::AtRow(_)) || !self.watch.is_blind()
            }
            // A transaction keeps it, for nobody knows how long.
            State::Releasing if self.release_is_busy => true,
            State::Idle | State::Releasing | State::Watching => !self.queue.is_empty(),
        }
    }

    /// Sends an acquire for the first waiter.
    fn ask(&mut self, asking: Asking, now: Moment, actions: &mut Vec<Action>) {
        match self.queue.first() {
            Some(first) => {
                self.state = State::Asking { asking, since: now };
                actions.push(Action::Ask(Question {
                    terms: first.terms.clone(),
                    asking,
                    gives_way: self.watch.gives_way_to(asking, now),
                    entrant: None,
                }));
            }
            None => self.settle_down(),
        }
    }

    /// Nobody waits any more: the lock is some level's, or nobody's here.
    fn settle_down(&mut self) {
        self.state = self.levels.pop().map_or(State::Idle, State::Held);
    }

    /// The server granted the lock.
    pub(crate) fn granted(&mut self, lease: Arc<Lease>, now: Moment, actions: &mut Vec<Action>) {
        self.watch.own(lease.fence, now);
        let in_time = lease.is_held();
        let taken = in_time && self.queue.hand(&lease);
        // Waiters that take one answer have it now: refused. But if the grant came too late to be trusted, nobody was in their way, unless one of
        // ours waits before them: then they are told that the server did not answer in time.
        if in_time || self.queue.first().is_some_and(|first| !first.once) {
            self.queue.refuse_once();
        } else {
            self.queue.fail_once(&Error::no_answer());
        }
        if taken || mutant::on(Mutant::AbandonedGrantKept) {
            self.state = State::Held(lease);
            self.admit(now, actions);
            return;
        }
        // Nobody is there to take it, or it came too late to be trusted.
        self.give_back(lease, actions);
    }

    /// The server refused: somebody else holds the lock, or a transaction the row (`None`).
    pub(crate) fn refused(
        &mut self,
        row: Option<&RowState>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        let State::Asking { asking, .. } = self.state else {
            return;
        };
        self.watch.refused(row, asking, now);
        self.queue.refuse_once();
        if self.queue.is_empty() {
            self.give_up(now, actions);
            self.settle_down();
            return;
        }
        if let Some(first) = self.queue.first_mut()
            && std::mem::take(&mut first.asks)
        {
            actions.push(Action::Waits);
        }
        if let Some(level) = self.levels.pop() {
            self.state = State::Held(level);
            self.admit(now, actions);
            return;
        }
        if row.is_none()
            && let Some(until) = self.queue.first().and_then(|first| patience(first, now))
        {
            self.ask(Asking::AtRow(until), now, actions);
            return;
        }
        self.state = State::Watching;
        actions.push(Action::Watch);
        if let Some(row) = row
            && let Some(wait) = self.watch.wish(row, now)
        {
            actions.push(Action::Want(wait, row.rung_client()));
        }
    }

    /// The time to look has come, and a question to the server takes so long. Whether to look: who is far from it asks instead.
    pub(crate) fn is_due(
        &mut self,
        distance: Duration,
        now: Moment,
        actions: &mut Vec<Action>,
    ) -> bool {
        if !matches!(self.state, State::Watching) {
            return false;
        }
        let gives_way = self.watch.gives_way().is_some_and(|until| until > now);
        let asks = !gives_way && !self.queue.is_empty() && self.watch.asks_instead(distance);
        if asks {
            self.ask(Asking::Waiting, now, actions);
        }
        !asks
    }

    /// The watcher looked at the row.
    pub(crate) fn looked(
        &mut self,
        row: Option<&RowState>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        if !matches!(self.state, State::Watching) {
            return;
        }
        let soon = now.after(WANT);
        let patient = self
            .queue
            .all(|waiter| waiter.until.is_none_or(|until| until > soon));
        self.watch.looked(row, patient, now);
        let held = row.filter(|row| !row.is_free());
        if held.is_some() {
            self.queue.refuse_once();
            self.give_up(now, actions);
            self.admit(now, actions);
        }
        let gives_way = self.watch.gives_way().is_some();
        if self.queue.is_empty() {
            if !gives_way {
                self.state = State::Idle;
            }
        } else if let Some(row) = held {
            if let Some(wait) = self.watch.wish(row, now) {
                actions.push(Action::Want(wait, row.rung_client()));
            } else if let Some(client) = self.watch.rings(row, now) {
                actions.push(Action::Ring(client));
            }
        } else if !gives_way && !self.watch.courtesy(now) {
            self.ask(Asking::Waiting, now, actions);
        }
    }

    /// The client is closed. Gives out the lease that idles.
    pub(crate) fn close(mut self) -> Option<Arc<Lease>> {
        let lingering = self.lingering();
        self.queue.fail(&Error::Closed);
        for entrant in self.entrants {
            entrant.waiter.fail(&Error::Closed);
        }
        lingering
    }

    /// When to look next, if it is watched.
    pub(crate) fn next_look(&self) -> Option<Moment> {
        matches!(self.state, State::Watching).then_some(self.watch.next)
    }

    /// What the next place of this name is to know.
    pub(crate) fn unanswered(&self) -> Unanswered {
        self.watch.unanswered
    }

    /// Nobody waits, and nothing is going on.
    pub(crate) fn is_done(&self) -> bool {
        let quiet = self.queue.is_empty() && self.entrants.is_empty() && self.levels.is_empty();
        quiet && matches!(self.state, State::Idle)
    }
}

/// Until when a task waits, if it waits for long enough to stand in line at the row.
fn patience(waiter: &Waiter, now: Moment) -> Option<Option<Moment>> {
    let enough = waiter
        .until
        .is_none_or(|until| until > now.after(LOCK_WAIT));
    // A lease counts from when it was asked for: a short one would be over by the time that it is granted.
    (enough && waiter.terms.lease() > 2 * LOCK_WAIT).then_some(waiter.until)
}

#[cfg(test)]
mod tests;
