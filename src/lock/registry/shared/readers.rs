//! The shared holds of one lock as this process sees them: who waits for one here, and what tasks have.
//!
//! Plain data and decisions, without I/O: what is to be done comes out as [`Action`]s, which [`super`] carries out after it has let go of
//! its lock.
//!
//! ```text
//!            ask              granted
//!   Idle ──────────▶ Asking ──────────▶ Idle, and a hold that others join in memory
//!    ▲                │ ▲
//!    │         refused│ │admits
//!    │                ▼ │
//!    └───────────── Watching
//!      nobody waits
//! ```
//!
//! Tasks that ask on the same terms join a hold without a statement, as long as no writer wishes that nobody enters: that is looked
//! for again and again. Those that ask on other terms, or apart, have a hold of their own.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Moment, from_micros};
use crate::engine::together::RowPatience;
use crate::error::Error;
use crate::lock::registry::lease::Lease;
use crate::lock::registry::place::{Leaving, Queue, TurnOver, Waiter};
use crate::lock::terms::Terms;
use crate::sql::reply::RowState;
use crate::sql::wish::GivesWay;
use crate::timing::{LOOK_FOR_WRITERS, LOOK_TO_READ, WANT_AGAIN};

/// The first pause between two looks; each is twice as long as the one before.
const FIRST: Duration = Duration::from_millis(2);

/// Clients begin at one of so many slots, and take another client's row when that is done with it: so a lock has few rows however many clients
/// come and go. Who finds its row in use goes on at one of more, which is the same one each time.
const SLOTS: u32 = 256;
const OTHER_SLOTS: u32 = 65_536;

/// Where a client begins.
pub(super) fn first_slot(client: u32) -> u32 {
    client % SLOTS
}

/// Where it goes on if somebody else has the row of this slot.
pub(super) fn other_slot(client: u32, slot: u32) -> u32 {
    if slot == first_slot(client) {
        SLOTS + client / SLOTS % OTHER_SLOTS
    } else {
        rand::random_range(0..OTHER_SLOTS)
    }
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Action {
    /// Ask for a hold.
    Ask(Question),
    /// Give a lease back; it is waited for.
    Release(Arc<Lease>),
    /// Find out whether a writer wishes that nobody enters.
    LookForWriters(Arc<Lease>),
    /// Tell whoever holds the lock, as it was seen, that somebody waits.
    AskFor(RowState),
    /// Take that back.
    NoLongerWant,
    /// There is a new time to look.
    Watch,
    /// A waiter has to wait.
    Waits,
}

/// A shared hold that is to be asked for.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) terms: Terms,
    pub(crate) slot: u32,
    /// Who goes first.
    pub(crate) gives_way: GivesWay,
    /// It may stand in the row's own queue.
    pub(crate) patience: Arc<RowPatience>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Asking { since: Moment },
    Watching { next: Moment, pause: Duration },
}

/// A lease that tasks have.
#[derive(Debug)]
struct Hold {
    lease: Arc<Lease>,
    /// How many tasks; none while its release is on its way.
    readers: usize,
    /// Others may join.
    open: bool,
}

/// The shared holds of one lock.
#[derive(Debug)]
pub(crate) struct Readers {
    queue: Queue,
    state: State,
    holds: Vec<Hold>,
    /// The first slot; others follow.
    base: u32,
    /// When the others were last told that somebody waits.
    told: Option<Moment>,
    /// Of the question that is on its way.
    patience: Arc<RowPatience>,
}

impl Readers {
    /// `base`: a slot that nobody else has, as a rule.
    pub(crate) fn new(base: u32) -> Self {
        Self {
            queue: Queue::default(),
            state: State::Idle,
            holds: Vec::new(),
            base,
            told: None,
            patience: Arc::default(),
        }
    }

    /// A task wants a shared hold.
    pub(crate) fn enter(&mut self, waiter: Waiter, now: Moment, actions: &mut Vec<Action>) {
        let (id, once) = (waiter.id, waiter.once);
        self.queue.push(waiter);
        self.join(now, actions);
        if self.queue.position(id).is_none() {
            return;
        }
        match self.state {
            State::Idle => self.ask(GivesWay::TO_ALL, now, actions),
            State::Watching { .. } if once => self.ask(GivesWay::TO_ALL, now, actions),
            // A transaction holds the lock, and the question waits for that.
            State::Asking { .. } if once && self.patience.hurry() => {
                self.queue.refuse_behind(0, |waiter| waiter.id == id);
            }
            State::Asking { .. } | State::Watching { .. } => actions.push(Action::Waits),
        }
    }

    /// Lets those join that may.
    fn join(&mut self, now: Moment, actions: &mut Vec<Action>) {
        for hold in &mut self.holds {
            if !hold.open || hold.readers == 0 || !hold.lease.is_held_at(now) {
                continue;
            }
            let before = hold.readers;
            while self.queue.hand_to_any(&hold.lease) {
                hold.readers += 1;
            }
            if hold.readers > before && hold.lease.look_is_due(now, LOOK_FOR_WRITERS) {
                actions.push(Action::LookForWriters(Arc::clone(&hold.lease)));
            }
        }
    }

    /// Asks for the first that waits.
    fn ask(&mut self, gives_way: GivesWay, now: Moment, actions: &mut Vec<Action>) {
        let Some(first) = self.queue.nth(0) else {
            self.give_up(actions);
            return;
        };
        let (terms, once) = (first.terms.clone(), first.once);
        self.state = State::Asking { since: now };
        self.patience = Arc::default();
        if once {
            self.patience.hurry();
        }
        actions.push(Action::Ask(Question {
            terms,
            slot: self.free_slot(),
            gives_way,
            patience: Arc::clone(&self.patience),
        }));
    }

    /// The first slot that is none of ours.
    pub(crate) fn free_slot(&self) -> u32 {
        let mut slot = self.base;
        while self.holds.iter().any(|hold| hold.lease.slot() == slot) {
            slot = slot.wrapping_add(1);
        }
        slot
    }

    /// The server granted a hold.
    pub(crate) fn granted(&mut self, lease: Arc<Lease>, now: Moment, actions: &mut Vec<Action>) {
        self.told = None;
        let open = lease.terms.may_pass();
        let mut readers = 0;
        while lease.is_held_at(now) && (open || readers == 0) && self.queue.hand_to_any(&lease) {
            readers += 1;
        }
        if readers == 0 {
            // Nobody is there to take it, or it came too late to be trusted.
            lease.end();
            actions.push(Action::Release(Arc::clone(&lease)));
        }
        let hold = Hold {
            lease,
            readers,
            open,
        };
        self.holds.push(hold);
        self.ask(GivesWay::TO_NONE, now, actions);
    }

    /// A task of this process has a hold for which nobody waited.
    pub(crate) fn has(&mut self, lease: Arc<Lease>) {
        let open = lease.terms.may_pass();
        self.holds.push(Hold {
            lease,
            readers: 1,
            open,
        });
    }

    /// The row of the slot is somebody else's: one from elsewhere is tried.
    pub(crate) fn slot_is_taken(&mut self, base: u32, now: Moment, actions: &mut Vec<Action>) {
        self.base = base;
        self.ask(GivesWay::TO_NONE, now, actions);
    }

    /// The server refused: a writer holds the lock, or wishes to, or a transaction has the row (`None`).
    pub(crate) fn refused(
        &mut self,
        row: Option<&RowState>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        self.queue.refuse_behind(0, |waiter| waiter.once);
        if self.queue.is_empty() {
            self.give_up(actions);
            return;
        }
        actions.push(Action::Waits);
        self.watch(FIRST, row, now, actions);
    }

    fn watch(
        &mut self,
        pause: Duration,
        row: Option<&RowState>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        let mut next = now.after(pause);
        if let Some(row) = row.filter(|row| !row.is_shared() && !row.is_free()) {
            next = next.min(now.after(from_micros(row.remaining)));
            if self.told.is_none_or(|told| now.since(told) >= WANT_AGAIN) {
                self.told = Some(now);
                actions.push(Action::AskFor(*row));
            }
        }
        let pause = (pause * 2).min(LOOK_TO_READ);
        self.state = State::Watching { next, pause };
        actions.push(Action::Watch);
    }

    /// The watcher looked at the lock's row; `None`: there is none.
    pub(crate) fn looked(
        &mut self,
        row: Option<&RowState>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        let State::Watching { pause, .. } = self.state else {
            return;
        };
        if row.is_none_or(|row| row.admits_shared(GivesWay::TO_NONE)) {
            self.ask(GivesWay::TO_NONE, now, actions);
        } else {
            self.watch(pause, row, now, actions);
        }
    }

    /// A look failed; it is repeated.
    pub(crate) fn look_failed(&mut self, now: Moment) {
        if let State::Watching { .. } = self.state {
            let next = now.after(LOOK_TO_READ);
            self.state = State::Watching {
                next,
                pause: LOOK_TO_READ,
            };
        }
    }

    /// A writer wishes that nobody enters: what is held is joined no more.
    pub(crate) fn drained(&mut self, lease: &Arc<Lease>) {
        if let Some(hold) = self.hold(lease) {
            hold.open = false;
        }
    }

    fn hold(&mut self, lease: &Arc<Lease>) -> Option<&mut Hold> {
        self.holds
            .iter_mut()
            .find(|hold| Arc::ptr_eq(&hold.lease, lease))
    }

    /// A task is done with its hold.
    pub(crate) fn end_turn(&mut self, lease: &Arc<Lease>, actions: &mut Vec<Action>) -> TurnOver {
        let left = self.hold(lease).map(|hold| {
            hold.readers = hold.readers.saturating_sub(1);
            hold.readers
        });
        if left.is_some_and(|left| left > 0) {
            return TurnOver::Shared;
        }
        // Of what was lost, the first of its tasks gives back what is left.
        if lease.end() {
            actions.push(Action::Release(Arc::clone(lease)));
        }
        TurnOver::Over
    }

    /// A lease is over, or its release is known.
    pub(crate) fn forget(&mut self, lease: &Lease) {
        self.holds.retain(|hold| hold.lease.number != lease.number);
    }

    /// A waiter's time is over.
    pub(crate) fn time_is_over(&mut self, id: u64, actions: &mut Vec<Action>) -> Leaving {
        let state = self.state;
        let Some((_, waiter)) = self.queue.position(id) else {
            return Leaving::Answered;
        };
        if let State::Asking { since } = state
            && !self.patience.hurry()
        {
            waiter.once = true;
            return Leaving::Stays(since);
        }
        self.leave(id, actions);
        Leaving::Left { seen: true }
    }

    /// A waiter goes away. False: it has its answer.
    pub(crate) fn leave(&mut self, id: u64, actions: &mut Vec<Action>) -> bool {
        let left = self.queue.remove(id).is_some();
        if left && self.queue.is_empty() && !matches!(self.state, State::Asking { .. }) {
            self.give_up(actions);
        }
        left
    }

    /// Nobody waits any more.
    fn give_up(&mut self, actions: &mut Vec<Action>) {
        self.state = State::Idle;
        if self.told.take().is_some() {
            actions.push(Action::NoLongerWant);
        }
    }

    /// Nothing can be had from the server: those who wait are told.
    pub(crate) fn fail(&mut self, error: &Error, actions: &mut Vec<Action>) {
        self.queue.fail(error);
        self.give_up(actions);
    }

    /// When to look next, if somebody waits.
    pub(crate) fn next_look(&self) -> Option<Moment> {
        match self.state {
            State::Watching { next, .. } => Some(next),
            _ => None,
        }
    }

    /// Nobody waits, and nothing is held.
    pub(crate) fn is_done(&self) -> bool {
        self.queue.is_empty() && self.holds.is_empty() && self.state == State::Idle
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
