//! The permits of one semaphore as this process sees them: who waits for one here, and what is going on about each slot.
//!
//! Plain data and decisions, without I/O: what is to be done comes out as [`Action`]s, which [`super::semaphore`] carries out after it
//! has let go of its lock.
//!
//! ```text
//!            ask              granted
//!   Apart ─────────▶ Asking ──────────▶ Held ──┐ next turn, in memory
//!    ▲ ▲               │                │ ▲────┘
//!    │ └───────────────┘ refused        │ release through the table
//!    └────────────────────────────── Releasing
//! ```
//!
//! All wait in one queue, and each of the first has a question of its own on its way, as long as there are slots that may be free.
//! When none seems free, one look a tick at all slots that are not ours tells which one is, whoever had it. Whoever waits wishes those that are taken:
//! then no process keeps them in memory for longer than a slice, and after a release they are left for a moment to those who waited.

mod slot;

use std::sync::Arc;
use std::time::Duration;

use self::slot::{Apart, Guess, Slot};
use super::lease::Lease;
use super::place::{Leaving, Queue, TurnOver, Waiter};
use crate::clock::Moment;
use crate::error::Error;
use crate::lock::terms::Terms;
use crate::mutant::{self, Mutant};
use crate::sql::reply::RowState;
use crate::sql::wish::GivesWay;
use crate::timing::{ANSWER, LOOK, SLICE, WANT};

/// So many slots more are wished after one look: each is a row that is written.
const WISHES: usize = 32;
/// The shortest pause between two looks, and what each slot adds to it.
const SHORTEST: Duration = Duration::from_millis(2);
const SHORTEST_FOR_SLOT: Duration = Duration::from_micros(30);
/// After a look that failed.
const AFTER_FAILURE: Duration = LOOK;

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Action {
    /// Ask for a slot.
    Ask(Question),
    /// Give a lease back; the semaphore waits to hear of it.
    Release(Arc<Lease>),
    /// Say in a slot's row that this process waits, for so long; zero takes that back.
    Want(usize, Duration),
    /// Find out whether another process waits.
    LookForOthers(Arc<Lease>),
    /// There is a new time to look.
    Watch,
    /// A waiter has to wait.
    Waits,
}

/// An acquire that is to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) slot: usize,
    pub(crate) terms: Terms,
    /// Who has the slot first.
    pub(crate) gives_way: GivesWay,
    /// The last waiter that had come when it was sent.
    pub(crate) last: u64,
}

/// A look at the slots that are not ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) slots: Vec<usize>,
    /// The last waiter that had come when it began.
    last: u64,
}

/// One semaphore as this process sees it.
#[derive(Debug)]
pub(crate) struct Permits {
    queue: Queue,
    slots: Vec<Slot>,
    /// How many of the slots are being asked for.
    asking: usize,
    /// The waiter that came last.
    last: u64,
    /// The waiter that had come last when the look began that was answered last; and when that was answered.
    covered: Option<(u64, Moment)>,
    looking: bool,
    next_look: Option<Moment>,
    /// When what others hold was last seen to be another thing, and what it was.
    changed: Moment,
    seen: u64,
    /// Where the search for a free slot begins is by chance.
    dice: u32,
}

impl Permits {
    pub(crate) fn new(slots: usize, dice: u32, now: Moment) -> Self {
        Self {
            queue: Queue::default(),
            slots: (0..slots).map(|_| Slot::default()).collect(),
            asking: 0,
            last: 0,
            covered: None,
            looking: false,
            next_look: None,
            changed: now,
            seen: 0,
            dice,
        }
    }

    /// A task wants a permit.
    pub(crate) fn enter(&mut self, waiter: Waiter, now: Moment, actions: &mut Vec<Action>) {
        self.last = self.last.max(waiter.id);
        self.queue.push(waiter);
        let before = self.asking;
        self.go_on(now, actions);
        if self.asking == before && !self.queue.is_empty() {
            actions.push(Action::Waits);
        }
    }

    /// Asks for what may be free, tells those who do not wait, and sees to it that there is a look when that is not enough.
    fn go_on(&mut self, now: Moment, actions: &mut Vec<Action>) {
        while let Some(waiter) = self.queue.nth(self.asking) {
            let terms = waiter.terms.clone();
            let Some((slot, apart)) = self.find() else {
                break;
            };
            self.slots[slot] = Slot::Asking;
            self.asking += 1;
            actions.push(Action::Ask(Question {
                slot,
                terms,
                gives_way: GivesWay::of(apart.waits),
                last: self.last,
            }));
        }
        self.refuse_once();
        if self.queue.len() <= self.asking {
            self.next_look = None;
            if self.queue.is_empty() {
                self.take_back(now, actions);
            }
            return;
        }
        if self.looking || !self.slots.iter().any(Slot::is_apart) {
            return;
        }
        let hurries = self
            .queue
            .behind(self.asking)
            .any(|waiter| waiter.once && !self.covers(waiter.id));
        let at = match self.covered {
            Some((_, answered)) if !hurries => answered.after(self.pause(now)),
            _ => now,
        };
        if self.next_look.is_none_or(|next| at < next) {
            self.next_look = Some(at);
            actions.push(Action::Watch);
        }
    }

    /// A slot that may be free, from anywhere.
    fn find(&mut self) -> Option<(usize, Apart)> {
        self.dice = self
            .dice
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        let slots = self.slots.len();
        let start = usize::try_from(self.dice >> 8).unwrap_or_default() % slots.max(1);
        let mut order = (start..slots).chain(0..start);
        order.find_map(|slot| match self.slots[slot] {
            Slot::Apart(apart) if apart.guess != Guess::Taken => Some((slot, apart)),
            _ => None,
        })
    }

    /// Whether a look that began after this waiter had come was answered.
    fn covers(&self, id: u64) -> bool {
        self.covered.is_some_and(|(last, _)| id <= last)
    }

    /// Those who do not wait learn that no permit is to be had, when that is certain.
    fn refuse_once(&mut self) {
        // A release of ours that is on its way is waited for by one of them, unless a transaction keeps it.
        let soon = self.slots.iter().filter(|slot| slot.is_soon_free()).count();
        let all_ours = !self.slots.iter().any(Slot::is_apart);
        let covered = self.covered.map_or(0, |(last, _)| last);
        self.queue.refuse_behind(self.asking + soon, |waiter| {
            waiter.once && (all_ours || waiter.id <= covered)
        });
    }

    /// The pause between two looks: the longer nothing changes, the longer it is.
    fn pause(&self, now: Moment) -> Duration {
        let slots = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let shortest = SHORTEST + SHORTEST_FOR_SLOT * slots;
        (now.since(self.changed) / 16).clamp(shortest.min(LOOK), LOOK)
    }

    /// When to look next, if somebody waits.
    pub(crate) fn next_look(&self) -> Option<Moment> {
        self.next_look
    }

    /// The time to look has come.
    pub(crate) fn begin_look(&mut self) -> Look {
        self.next_look = None;
        self.looking = true;
        let slots = self.slots.iter().enumerate();
        Look {
            slots: slots
                .filter_map(|(slot, state)| state.is_apart().then_some(slot))
                .collect(),
            last: self.last,
        }
    }

    /// What the look saw: a row for each of its slots.
    pub(crate) fn looked(
        &mut self,
        look: &Look,
        rows: &[Option<RowState>],
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        self.looking = false;
        self.covered = Some((look.last, now));
        let mut seen = 0_u64;
        let mut free = 0;
        for (slot, row) in look.slots.iter().zip(rows) {
            if let Some(row) = row {
                let state = row.fence << 1 | u64::from(row.is_free());
                seen = seen.rotate_left(7) ^ state;
            }
            if let Some(Slot::Apart(apart)) = self.slots.get_mut(*slot) {
                apart.saw(row.as_ref());
                free += usize::from(apart.guess == Guess::Free);
            }
        }
        // For whom there is none.
        let waiting = self.queue.behind(self.asking + free);
        let waits = waiting.filter(|waiter| !waiter.once).count() > 0;
        let mut wishes = 0;
        for (slot, row) in look.slots.iter().zip(rows) {
            if waits
                && let Some(Slot::Apart(apart)) = self.slots.get_mut(*slot)
                && let Some(row) = row.filter(|row| !row.is_free())
                && apart.wishes(&row, wishes < WISHES, now)
            {
                wishes += 1;
                actions.push(Action::Want(*slot, WANT));
            }
        }
        if seen != self.seen {
            self.seen = seen;
            self.changed = now;
        }
        self.go_on(now, actions);
    }

    /// The look was not answered. `hopeless`: no other will be, for this reason.
    pub(crate) fn look_failed(
        &mut self,
        hopeless: Option<&Error>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        self.looking = false;
        if let Some(error) = hopeless {
            self.queue.fail(error);
            self.take_back(now, actions);
        } else if self.queue.len() > self.asking {
            self.next_look = Some(now.after(AFTER_FAILURE));
            actions.push(Action::Watch);
        }
    }

    /// The server granted a slot.
    pub(crate) fn granted(
        &mut self,
        slot: usize,
        lease: Arc<Lease>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        self.asking = self.asking.saturating_sub(1);
        if lease.is_held() && self.hand(&lease) {
            self.slots[slot] = Slot::Held(lease);
        } else {
            // Nobody is there to take it, or it came too late to be trusted.
            self.give_back(slot, lease, actions);
        }
        self.go_on(now, actions);
    }

    /// Gives the current turn to the first waiter that it serves and that takes it.
    fn hand(&mut self, lease: &Arc<Lease>) -> bool {
        let handed = self.queue.hand_to_any(lease);
        if handed && mutant::on(Mutant::PermitShared) {
            self.queue.hand_to_any(lease);
        }
        handed
    }

    fn give_back(&mut self, slot: usize, lease: Arc<Lease>, actions: &mut Vec<Action>) {
        lease.end();
        self.slots[slot] = Slot::Releasing { is_busy: false };
        actions.push(Action::Release(lease));
    }

    /// The server refused a slot: somebody else holds it, has it next, or a transaction holds its row.
    pub(crate) fn refused(&mut self, slot: usize, now: Moment, actions: &mut Vec<Action>) {
        self.asking = self.asking.saturating_sub(1);
        self.slots[slot] = Slot::taken();
        // Others are there: what nobody has looked at is looked at, rather than asked for one after the other.
        for slot in &mut self.slots {
            slot.is_not_guessed();
        }
        self.go_on(now, actions);
    }

    /// The question for a slot has failed: those who had come when it was asked are told.
    pub(crate) fn failed(
        &mut self,
        question: &Question,
        error: &Error,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        self.asking = self.asking.saturating_sub(1);
        self.slots[question.slot] = Slot::default();
        self.queue.fail_until(question.last, error);
        self.go_on(now, actions);
    }

    /// The holder of a permit is done with it.
    pub(crate) fn end_turn(
        &mut self,
        slot: usize,
        lease: &Arc<Lease>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) -> TurnOver {
        if !self.is_current(slot, lease) {
            // It was lost before, and the slot has gone on without it.
            if lease.end() {
                actions.push(Action::Release(Arc::clone(lease)));
            }
            return TurnOver::Over;
        }
        if self.may_pass(lease, now) {
            if lease.look_is_due(now, SLICE) {
                actions.push(Action::LookForOthers(Arc::clone(lease)));
            }
            if lease.next_turn().is_some() && self.hand(lease) {
                self.go_on(now, actions);
                return TurnOver::HandedOn;
            }
        }
        self.give_back(slot, Arc::clone(lease), actions);
        TurnOver::Over
    }

    fn is_current(&self, slot: usize, lease: &Arc<Lease>) -> bool {
        matches!(&self.slots[slot], Slot::Held(held) if Arc::ptr_eq(held, lease))
    }

    fn may_pass(&self, lease: &Lease, now: Moment) -> bool {
        let others = lease.is_wanted() && now.since(lease.answered) >= SLICE;
        !others
            && lease.terms.may_pass()
            && !lease.was_in_transaction()
            && lease.is_held_at(now)
            // Who stands before it with other options, and has no question of its own on its way, is asked for first.
            && self
                .queue
                .first_to_share(lease)
                .is_some_and(|position| position <= self.asking)
    }

    /// The release waits for a transaction that holds the row.
    pub(crate) fn release_is_busy(&mut self, slot: usize, now: Moment, actions: &mut Vec<Action>) {
        if let Slot::Releasing { is_busy } = &mut self.slots[slot] {
            *is_busy = true;
            self.go_on(now, actions);
        }
    }

    /// The release is known. `wanted`: another process waits for it, and goes first.
    pub(crate) fn released(
        &mut self,
        slot: usize,
        wanted: bool,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        if matches!(self.slots[slot], Slot::Releasing { .. }) {
            self.slots[slot] = if wanted { Slot::taken() } else { Slot::free() };
            self.go_on(now, actions);
        }
    }

    /// A lease is lost while a task still holds its guard: the others go on without it.
    pub(crate) fn lost(
        &mut self,
        slot: usize,
        lease: &Arc<Lease>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        if self.is_current(slot, lease) {
            self.slots[slot] = Slot::default();
            self.go_on(now, actions);
        }
    }

    /// A waiter's time is over.
    pub(crate) fn time_is_over(
        &mut self,
        id: u64,
        now: Moment,
        actions: &mut Vec<Action>,
    ) -> Leaving {
        let (asking, covered) = (self.asking, self.covers(id));
        let Some((position, waiter)) = self.queue.position(id) else {
            return Leaving::Answered;
        };
        // Its own question, or its only look, is on its way.
        if position < asking || !covered {
            waiter.once = true;
            self.go_on(now, actions);
            return Leaving::Stays(now);
        }
        self.leave(id, now, actions);
        let seen = self.covered.is_some_and(|(_, at)| now.since(at) <= ANSWER);
        Leaving::Left { seen }
    }

    /// A waiter goes away. False: it has its answer.
    pub(crate) fn leave(&mut self, id: u64, now: Moment, actions: &mut Vec<Action>) -> bool {
        let left = self.queue.remove(id).is_some();
        if left {
            self.go_on(now, actions);
        }
        left
    }

    /// Nobody waits any more: nobody is to be let go first for our sake.
    fn take_back(&mut self, now: Moment, actions: &mut Vec<Action>) {
        for (slot, state) in self.slots.iter_mut().enumerate() {
            if state.take_back(now) {
                actions.push(Action::Want(slot, Duration::ZERO));
            }
        }
    }

    /// The client is closed.
    pub(crate) fn close(mut self) {
        self.queue.fail(&Error::Closed);
    }

    /// Nobody waits, and nothing is ours.
    pub(crate) fn is_done(&self) -> bool {
        self.queue.is_empty() && self.slots.iter().all(Slot::is_apart)
    }
}

#[cfg(test)]
mod tests;
