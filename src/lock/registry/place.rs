//! One name as this process sees it: who waits for it here, and what is going on about it.
//!
//! Plain data and decisions, without I/O: what is to be done comes out as [`Action`]s, which
//! [`super::registry`] carries out after it has let go of its lock.
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

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::lease::Lease;
use super::pace::Pace;
use super::rotation::Rotation;
use super::turn::Turn;
use crate::clock::{Moment, from_micros};
use crate::error::Error;
use crate::lock::terms::Terms;
use crate::mutant::{self, Mutant};
use crate::sql::reply::RowState;
use crate::timing::{GIVE_WAY, LOCK_WAIT, SLICE, WANT, WANT_AGAIN};

/// A wish for which a process gave way this often, and nobody came, is one that somebody has had: its own, or that
/// of a process that no longer waits.
const UNANSWERED: u32 = 3;
/// A later wish is later by more than this: what the server and the answer's way may differ by.
const LATER: Duration = Duration::from_millis(100);

/// A task that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) id: u64,
    pub(crate) terms: Terms,
    /// It takes the next answer, whatever it is.
    pub(crate) once: bool,
    /// How long it waits.
    pub(crate) until: Option<Moment>,
    pub(crate) reply: oneshot::Sender<Result<Option<Turn>, Error>>,
}

#[derive(Debug)]
pub(crate) enum State {
    Idle,
    /// An acquire for the first waiter is on its way; its answer comes soon, unless it waits at the row.
    Asking {
        at_row: bool,
    },
    Held(Arc<Lease>),
    /// A release is on its way; nobody asks before it is known.
    Releasing,
    /// Somebody else holds it, or is about to: we look at the row from time to time.
    Watching,
}

/// How often in a row this process gave way to a wish for which nobody came, and until when that wish is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unanswered {
    times: u32,
    pub(crate) until: Moment,
}

impl Unanswered {
    /// There is no such wish any more.
    pub(crate) fn is_over(self, now: Moment) -> bool {
        self.times == 0 || self.until <= now
    }
}

/// What was seen of the row.
#[derive(Debug)]
pub(crate) struct Watch {
    fence: u64,
    pace: Pace,
    /// The last answer was that a transaction holds the row: that says nothing about the lock.
    busy: bool,
    /// When to look again.
    pub(crate) next: Moment,
    /// Another process goes first until then, unless the fence moves.
    give_way: Option<Moment>,
    pub(crate) unanswered: Unanswered,
    /// Until when the others know that we wait, unless a grant has answered the wish, and when they were told.
    wanted: Moment,
    told: Moment,
    rotation: Rotation,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Action {
    Ask(Terms, Asking),
    /// Give a lease back; `announce`: the place waits to hear of it.
    Release {
        lease: Arc<Lease>,
        announce: bool,
    },
    /// Say in the row that this process waits.
    Want,
    /// Take that back.
    NoLongerWant,
    /// Wake the watcher: a place has a new time to look.
    Watch,
    /// Find out whether another process waits.
    LookForOthers(Arc<Lease>),
}

/// How it is asked for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    /// As somebody who has not waited: those go first who have.
    New,
    /// As somebody who waits.
    Waiting,
    /// As somebody who waits at the row itself, since transactions hold it again and again; until then.
    AtRow(Option<Moment>),
}

#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) waiters: VecDeque<Waiter>,
    pub(crate) state: State,
    pub(crate) watch: Watch,
}

impl Place {
    /// `unanswered`: what an earlier place of the name knew.
    pub(crate) fn new(client: u32, now: Moment, unanswered: Option<Unanswered>) -> Self {
        Self {
            waiters: VecDeque::new(),
            state: State::Idle,
            watch: Watch {
                fence: 0,
                pace: Pace::new(now),
                busy: false,
                next: now,
                give_way: None,
                unanswered: unanswered.unwrap_or(Unanswered {
                    times: 0,
                    until: now,
                }),
                wanted: now,
                told: now,
                rotation: Rotation::new(client),
            },
        }
    }

    /// A task wants the lock. `None`: it waits now; otherwise the waiter is given back, because it
    /// would have to wait and does not want to.
    pub(crate) fn enter(&mut self, waiter: Waiter, actions: &mut Vec<Action>) -> Option<Waiter> {
        let taken = match self.state {
            State::Held(_) | State::Asking { .. } => true,
            // A transaction keeps it, for nobody knows how long.
            State::Releasing => self.watch.busy,
            State::Idle | State::Watching => false,
        };
        if waiter.once && (taken || !self.waiters.is_empty()) {
            return Some(waiter);
        }
        let ask = match self.state {
            State::Idle => true,
            // Nobody has waited any more: what was seen last says nothing about now.
            State::Watching => {
                waiter.once || (self.waiters.is_empty() && self.watch.give_way.is_none())
            }
            _ => false,
        };
        self.waiters.push_back(waiter);
        if ask {
            self.ask(Asking::New, actions);
        }
        None
    }

    /// Sends an acquire for the first waiter.
    fn ask(&mut self, asking: Asking, actions: &mut Vec<Action>) {
        match self.waiters.front() {
            Some(first) => {
                self.state = State::Asking {
                    at_row: matches!(asking, Asking::AtRow(_)),
                };
                actions.push(Action::Ask(first.terms.clone(), asking));
            }
            None => self.state = State::Idle,
        }
    }

    /// A waiter's time is over, or it went away. Whether it stays for the answer that is on its way.
    pub(crate) fn leave(
        &mut self,
        id: u64,
        stay: bool,
        now: Moment,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some(position) = self.waiters.iter().position(|waiter| waiter.id == id) else {
            return true;
        };
        let waiter = &mut self.waiters[position];
        if stay
            && (waiter.once
                || (position == 0 && matches!(self.state, State::Asking { at_row: false })))
        {
            waiter.once = true;
            return true;
        }
        self.waiters.remove(position);
        self.give_up(now, actions);
        false
    }

    /// When nobody waits any more, nobody is to be let go first for our sake.
    fn give_up(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if self.waiters.is_empty() && self.watch.wanted > now {
            self.watch.wanted = now;
            actions.push(Action::NoLongerWant);
        }
    }

    /// The server granted the lock.
    pub(crate) fn granted(&mut self, lease: Arc<Lease>, now: Moment, actions: &mut Vec<Action>) {
        self.watch.fence = lease.fence;
        self.watch.pace.own(now);
        self.watch.give_way = None;
        // The grant has answered our wish too.
        self.watch.wanted = now;
        self.watch.rotation.own_turn(now);
        if lease.is_held() && self.hand(&lease) {
            // Levels of one owner do not queue behind each other: each has a place for its request only.
            self.state = match lease.terms.owner {
                Some(_) => State::Idle,
                None => State::Held(lease),
            };
            return;
        }
        // Nobody is there to take it, or it came too late to be trusted. Who asked for one answer has it.
        self.refuse_once();
        if mutant::on(Mutant::AbandonedGrantKept) {
            self.state = State::Held(lease);
            return;
        }
        self.give_back(lease, actions);
    }

    /// Gives the current turn to the first waiter that takes it on the lease's terms.
    fn hand(&mut self, lease: &Arc<Lease>) -> bool {
        while let Some(first) = self.waiters.front() {
            if first.terms != lease.terms {
                return false;
            }
            let Some(waiter) = self.waiters.pop_front() else {
                return false;
            };
            match waiter.reply.send(Ok(Some(Turn::current(lease)))) {
                Ok(()) => return true,
                // It went away in this moment: the turn is the next one's.
                Err(Ok(Some(turn))) => turn.disarm(),
                Err(_) => {}
            }
        }
        false
    }

    fn give_back(&mut self, lease: Arc<Lease>, actions: &mut Vec<Action>) {
        lease.end();
        self.state = State::Releasing;
        self.watch.busy = false;
        actions.push(Action::Release {
            lease,
            announce: true,
        });
    }

    /// The server refused: somebody else holds the lock, or a transaction the row (`None`).
    pub(crate) fn refused(
        &mut self,
        row: Option<&RowState>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        self.refuse_once();
        if self.waiters.is_empty() {
            self.give_up(now, actions);
            self.state = State::Idle;
            return;
        }
        if row.is_none()
            && let Some(until) = self.patience(now)
        {
            self.ask(Asking::AtRow(until), actions);
            return;
        }
        self.state = State::Watching;
        self.watch.busy = row.is_none();
        self.note(row, now);
        actions.push(Action::Watch);
        let Some(row) = row else {
            return;
        };
        if row.is_free() {
            // Somebody waits already, and has it next.
            self.watch.give_way = Some(now.after(GIVE_WAY.saturating_sub(row.free_for())));
        }
        self.wish(row, now, actions);
    }

    /// Until when the first waiter waits, if it waits for long enough to stand in line at the row.
    fn patience(&self, now: Moment) -> Option<Option<Moment>> {
        let first = self.waiters.front()?;
        let enough = first.until.is_none_or(|until| until > now.after(LOCK_WAIT));
        // A lease counts from when it was asked for: a short one would be over by the time that it is granted.
        (enough && first.terms.lease() > 2 * LOCK_WAIT).then_some(first.until)
    }

    /// Says that we wait, unless the others know.
    fn wish(&mut self, row: &RowState, now: Moment, actions: &mut Vec<Action>) {
        let watch = &mut self.watch;
        let answered = row.wanted <= 0 && watch.told.after(WANT_AGAIN) <= now;
        if watch.wanted <= now || answered {
            watch.wanted = now.after(WANT);
            watch.told = now;
            actions.push(Action::Want);
        }
    }

    /// Those who take the next answer, whatever it is, learn that the lock is not to be had.
    fn refuse_once(&mut self) {
        for waiter in std::mem::take(&mut self.waiters) {
            if waiter.once {
                // Who asked may have gone away.
                drop(waiter.reply.send(Ok(None)));
            } else {
                self.waiters.push_back(waiter);
            }
        }
    }

    /// Takes in what the row shows, and sets the time of the next look.
    fn note(&mut self, row: Option<&RowState>, now: Moment) {
        let watch = &mut self.watch;
        if let Some(row) = row {
            let moved = row.fence != watch.fence;
            watch.pace.saw(!row.is_free(), moved, now);
            if moved {
                watch.fence = row.fence;
                watch.give_way = None;
                watch.unanswered.times = 0;
            }
        }
        let pause = watch.pace.pause(watch.rotation.is_next(), now);
        watch.next = now.after(pause);
        if let Some(row) = row
            && row.remaining > 0
        {
            watch.next = watch.next.min(now.after(from_micros(row.remaining)));
        }
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
        let held = row.is_some_and(|row| !row.is_free());
        if held {
            self.refuse_once();
            self.give_up(now, actions);
        }
        if self.waiters.is_empty() && self.watch.give_way.is_none_or(|until| until <= now) {
            self.state = State::Idle;
            return;
        }
        // An owner can enter a lock that it holds itself; whether it does, only an acquire can tell.
        let moved = row.is_some_and(|row| row.fence != self.watch.fence);
        let first = self.waiters.front();
        let reentrant = first.is_some_and(|first| first.terms.owner.is_some());
        let free = !held || (reentrant && (self.watch.busy || moved));
        if let Some(row) = row {
            self.watch.rotation.saw(row.client, now);
        }
        self.note(row, now);
        let give_way = self.watch.give_way.is_some_and(|until| until > now);
        if self.watch.give_way.is_some() && !give_way {
            self.watch.give_way = None;
            self.watch.unanswered.times += 1;
        }
        if free && !give_way && !self.waiters.is_empty() {
            if let Some(courtesy) = self.watch.rotation.courtesy() {
                self.watch.next = now.after(courtesy);
                return;
            }
            self.ask(Asking::Waiting, actions);
        } else if let Some(row) = row
            && !free
            && !self.waiters.is_empty()
        {
            self.wish(row, now, actions);
        }
    }

    /// The holder of the current turn is done with it. Whether the lock passed on in memory;
    /// otherwise it is released through the table.
    pub(crate) fn end_turn(
        &mut self,
        lease: &Arc<Lease>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) -> bool {
        let current = matches!(&self.state, State::Held(held) if Arc::ptr_eq(held, lease));
        if !current {
            // It was lost before, and the place has gone on without it.
            if !lease.has_ended() {
                actions.push(give_back_quietly(lease));
            }
            return false;
        }
        if self.may_pass(lease, now) {
            if lease.look_is_due(now) {
                actions.push(Action::LookForOthers(Arc::clone(lease)));
            }
            if lease.next_turn().is_some() && self.hand(lease) {
                return true;
            }
        }
        self.give_back(Arc::clone(lease), actions);
        false
    }

    fn may_pass(&self, lease: &Lease, now: Moment) -> bool {
        let others = lease.is_wanted() && now.since(lease.granted) >= SLICE;
        !others
            && lease.terms.may_pass()
            && (!lease.was_in_transaction() || mutant::on(Mutant::TurnAfterVerify))
            && lease.is_held()
            && self
                .waiters
                .front()
                .is_some_and(|waiter| waiter.terms == lease.terms)
    }

    /// The release waits for a transaction that holds the row.
    pub(crate) fn release_is_busy(&mut self) {
        if matches!(self.state, State::Releasing) {
            self.watch.busy = true;
            self.refuse_once();
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
        let Unanswered { times, until } = self.watch.unanswered;
        let wish = now.after(wanted);
        let old = times >= UNANSWERED && wish <= until.after(LATER);
        if !wanted.is_zero() && !old {
            // Another process waits: it goes first, once, unless it does not come.
            if wish > until.after(LATER) {
                self.watch.unanswered = Unanswered {
                    times: 0,
                    until: wish,
                };
            }
            self.watch.fence = fence.unwrap_or(self.watch.fence);
            self.watch.pace.own(now);
            self.watch.give_way = Some(now.after(GIVE_WAY));
            self.watch.next = now.after(self.watch.pace.pause(false, now));
            self.state = State::Watching;
            actions.push(Action::Watch);
        } else {
            self.ask(Asking::New, actions);
        }
    }

    /// The lease is lost while a task still holds its guard: the others ask the table.
    pub(crate) fn lost(&mut self, lease: &Arc<Lease>, actions: &mut Vec<Action>) {
        if matches!(&self.state, State::Held(held) if Arc::ptr_eq(held, lease)) {
            self.ask(Asking::New, actions);
        }
    }

    /// Nothing can be had from the server: everybody is told.
    pub(crate) fn fail(&mut self, error: &Error, now: Moment, actions: &mut Vec<Action>) {
        for waiter in self.waiters.drain(..) {
            drop(waiter.reply.send(Err(error.clone())));
        }
        self.give_up(now, actions);
        if !matches!(self.state, State::Held(_) | State::Releasing) {
            self.state = State::Idle;
        }
    }

    /// Nobody waits, and nothing is going on.
    pub(crate) fn is_done(&self) -> bool {
        self.waiters.is_empty() && matches!(self.state, State::Idle)
    }
}

/// Ends a lease of which no place needs to hear.
pub(crate) fn give_back_quietly(lease: &Arc<Lease>) -> Action {
    lease.end();
    Action::Release {
        lease: Arc::clone(lease),
        announce: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::reply::ACTIVE;

    fn waiter(id: u64) -> Waiter {
        let (reply, _) = oneshot::channel();
        let terms = Terms {
            ttl: Duration::from_secs(30),
            auto_renew: true,
            hold_at_least: Duration::ZERO,
            max_hold: None,
            description: Arc::from(""),
            owner: None,
        };
        Waiter {
            id,
            terms,
            once: false,
            until: None,
            reply,
        }
    }

    /// However short it waits, a task that is alone makes an attempt: that others were refused before says nothing.
    #[test]
    fn who_comes_after_all_have_gone_asks() {
        let now = Moment::now();
        let mut place = Place::new(1, now, None);
        let mut actions = Vec::new();
        assert!(place.enter(waiter(1), &mut actions).is_none());
        assert!(matches!(actions[..], [Action::Ask(..)]), "{actions:?}");
        let held = RowState {
            granted: None,
            status: ACTIVE,
            mine: false,
            fence: 7,
            remaining: 1_000_000,
            previous: 0,
            count: 1,
            wanted: 0,
            client: 2,
        };
        place.refused(Some(&held), now, &mut actions);
        assert!(matches!(place.state, State::Watching));
        // Behind somebody who waits, one looks with him.
        actions.clear();
        assert!(place.enter(waiter(2), &mut actions).is_none());
        assert!(actions.is_empty(), "{actions:?}");
        for id in [1, 2] {
            assert!(!place.leave(id, true, now, &mut actions));
        }
        assert!(matches!(actions[..], [Action::NoLongerWant]), "{actions:?}");
        actions.clear();
        assert!(place.enter(waiter(3), &mut actions).is_none());
        assert!(matches!(actions[..], [Action::Ask(..)]), "{actions:?}");
    }
}
