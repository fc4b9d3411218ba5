//! Semaphores of one client: sends what [`Permits`] decide, and brings them the answers.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use super::lease::Lease;
use super::permits::{Action, Look, Permits, Question};
use super::place::{self, TurnOver, Waiter};
use super::ticket::{Line, Ticket};
use super::{Entered, Locks};
use crate::clock::{Moment, micros};
use crate::engine::outcome::{Answer, Outcome};
use crate::engine::request::{ReplyTo, Request};
use crate::error::Error;
use crate::lock::terms::{Terms, Wait};
use crate::name::Name;
use crate::sql::operation::{Acquire, Operation, Want};
use crate::sql::reply::RowState;
use crate::sql::row::RowKey;
use crate::telemetry;
use crate::timing::LOCK_WAIT;
use crate::token::Token;

/// A semaphore, by its name and the rows of its slots. Two that differ in their number are two here: what they share is in the table.
#[derive(Debug)]
pub(crate) struct SlotRows {
    pub(crate) name: Name,
    pub(crate) slots: Vec<RowKey>,
}

/// A slot of a semaphore.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) semaphore: Arc<SlotRows>,
    pub(crate) slot: usize,
}

impl Seat {
    fn row(&self) -> RowKey {
        self.semaphore.slots[self.slot].clone()
    }
}

/// All semaphores that this client has to do with.
#[derive(Default)]
pub(super) struct AllPermits {
    map: HashMap<Key, (Arc<SlotRows>, Permits)>,
    closed: bool,
}

/// Name, and number of slots.
type Key = (Name, usize);

impl SlotRows {
    fn key(&self) -> Key {
        (self.name.clone(), self.slots.len())
    }
}

impl AllPermits {
    fn change<T>(
        &mut self,
        semaphore: &SlotRows,
        change: impl FnOnce(&mut Permits) -> T,
    ) -> Option<T> {
        let key = semaphore.key();
        let (_, permits) = self.map.get_mut(&key)?;
        let result = change(permits);
        if permits.is_done() {
            self.map.remove(&key);
        }
        Some(result)
    }

    /// Begins the looks that are due; and when the next one is.
    fn due(&mut self, now: Moment) -> (Vec<(Arc<SlotRows>, Look)>, Option<Moment>) {
        let mut due = Vec::new();
        let mut next: Option<Moment> = None;
        for (semaphore, permits) in self.map.values_mut() {
            match permits.next_look() {
                Some(at) if at <= now => due.push((Arc::clone(semaphore), permits.begin_look())),
                Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
                None => {}
            }
        }
        (due, next)
    }

    /// Whoever looked before has gone, and tells nothing any more.
    fn look_again(&mut self, now: Moment) {
        for (_, permits) in self.map.values_mut() {
            permits.look_failed(None, now, &mut Vec::new());
        }
    }

    /// There are none from here on.
    pub(super) fn close(&mut self) {
        self.closed = true;
        for (_, permits) in std::mem::take(&mut self.map).into_values() {
            permits.close();
        }
    }
}

impl Locks {
    pub(super) fn all_permits(&self) -> MutexGuard<'_, AllPermits> {
        // None is left half changed: decisions do not panic.
        self.all_permits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a permit, or waits for one behind others. What it gives says how the wait ends.
    pub(crate) fn enter_semaphore(
        self: &Arc<Self>,
        semaphore: &Arc<SlotRows>,
        terms: Terms,
        wait: Wait,
        now: Moment,
    ) -> Result<Entered<'_>, Error> {
        let (reply, receiver) = oneshot::channel();
        let mut actions = Vec::new();
        let mut all_permits = self.all_permits();
        if all_permits.closed {
            return Err(Error::Closed);
        }
        // Under the lock, so that whoever comes later has the higher number.
        let id = self.next_id();
        let waiter = Waiter {
            id,
            terms,
            once: wait == Wait::Not,
            asks: false,
            until: None,
            reply,
        };
        let entry = all_permits.map.entry(semaphore.key()).or_insert_with(|| {
            let permits = Permits::new(semaphore.slots.len(), rand::random(), now);
            (Arc::clone(semaphore), permits)
        });
        entry.1.enter(waiter, now, &mut actions);
        let semaphore = Arc::clone(&entry.0);
        drop(all_permits);
        self.carry_out_permits(&semaphore, actions);
        Ok(Entered::Waits(Ticket {
            locks: self,
            line: Line::Semaphore(semaphore),
            wait,
            id,
            receiver,
            queued: true,
        }))
    }

    /// Changes a semaphore, if there is one, and carries out what follows from that.
    pub(super) fn change_permits<T>(
        self: &Arc<Self>,
        semaphore: &Arc<SlotRows>,
        change: impl FnOnce(&mut Permits, &mut Vec<Action>) -> T,
    ) -> Option<T> {
        let mut actions = Vec::new();
        let result = self
            .all_permits()
            .change(semaphore, |permits| change(permits, &mut actions))?;
        self.carry_out_permits(semaphore, actions);
        Some(result)
    }

    /// Changes the semaphore of a permit.
    pub(super) fn change_seat(
        self: &Arc<Self>,
        lease: &Lease,
        change: impl FnOnce(&mut Permits, usize, &mut Vec<Action>),
    ) {
        // A closed client has none any more.
        if let Some(Seat { semaphore, slot }) = &lease.seat {
            let _ = self.change_permits(semaphore, |permits, actions| {
                change(permits, *slot, actions);
            });
        }
    }

    fn carry_out_permits(self: &Arc<Self>, semaphore: &Arc<SlotRows>, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Ask(question) => self.ask_for_permit(semaphore, question),
                Action::Release(lease) => self.release(&lease, true, None),
                Action::Want(slot, wait) => self.want_permit(semaphore, slot, wait),
                Action::LookForOthers(lease) => self.look_for_others(lease),
                Action::Watch => self.watch_permits.notify_one(),
                Action::Waits => telemetry::waits(),
            }
        }
    }

    /// Sends an acquire of a slot; its answer comes back to the semaphore.
    fn ask_for_permit(self: &Arc<Self>, semaphore: &Arc<SlotRows>, question: Question) {
        let terms = &question.terms;
        let token = Token::of_client(self.client);
        let operation = Operation::Acquire(Acquire {
            token,
            ttl: micros(terms.lease()),
            block: terms.block(),
            level: None,
            gives_way: question.gives_way,
            idles: false,
            queues: false,
            description: Arc::clone(&terms.description),
            held_by: Arc::clone(&self.held_by),
        });
        let seat = Seat {
            semaphore: Arc::clone(semaphore),
            slot: question.slot,
        };
        let (locks, row) = (Arc::clone(self), seat.row());
        let reply =
            ReplyTo::client(move |result| locks.asked_for_permit(seat, token, question, result));
        let expires = Moment::now().after(self.engine.request_limit());
        self.engine
            .submit(row, Request::Operation(operation), expires, reply);
    }

    fn asked_for_permit(
        self: &Arc<Self>,
        seat: Seat,
        token: Token,
        question: Question,
        result: Result<Answer, Error>,
    ) {
        let now = Moment::now();
        let (semaphore, slot) = (Arc::clone(&seat.semaphore), seat.slot);
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => {
                let _ = self.change_permits(&semaphore, |permits, actions| {
                    permits.failed(&question, &error, now, actions);
                });
                return;
            }
        };
        let Outcome::Granted {
            fence,
            remaining,
            until,
            wanted,
        } = answer.outcome
        else {
            let _ = self.change_permits(&semaphore, |permits, actions| {
                permits.refused(slot, now, actions);
            });
            return;
        };
        let (locks, row) = (Arc::downgrade(self), seat.row());
        let found = (answer.sent, remaining, until);
        let grant = (token, fence);
        let lease = Lease::new(locks, row, grant, question.terms, found, wanted > 0);
        let lease = Arc::new(lease.at(seat));
        self.keeper.add(&lease);
        let granted = Arc::clone(&lease);
        let known = self.change_permits(&semaphore, |permits, actions| {
            permits.granted(slot, granted, now, actions);
        });
        // The client was closed meanwhile.
        if known.is_none() && lease.end() {
            self.release(&lease, false, None);
        }
    }

    /// Says in the row of a slot that this process waits for so long.
    fn want_permit(self: &Arc<Self>, semaphore: &SlotRows, slot: usize, wait: Duration) {
        if !wait.is_zero() {
            telemetry::wished(&semaphore.name);
        }
        // What is taken back late does no more good than its own end. If it fails, the wait is longer, and no less safe.
        let most = self.engine.request_limit().min(LOCK_WAIT);
        self.engine.submit(
            semaphore.slots[slot].clone(),
            Request::Operation(Operation::Want(Want { wait: micros(wait) })),
            Moment::now().after(most),
            ReplyTo::client(drop),
        );
    }

    /// Ends a task's turn with a permit. A release that follows is left to the caller.
    pub(super) fn end_permit(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        now: Moment,
        follows: &mut Vec<place::Action>,
    ) -> Option<TurnOver> {
        let Seat { semaphore, slot } = lease.seat.as_ref()?;
        let mut actions = Vec::new();
        let over = self.all_permits().change(semaphore, |permits| {
            permits.end_turn(*slot, lease, now, &mut actions)
        })?;
        actions.retain(|action| {
            let Action::Release(lease) = action else {
                return true;
            };
            follows.push(place::Action::Release {
                lease: Arc::clone(lease),
                announce: true,
            });
            false
        });
        self.carry_out_permits(semaphore, actions);
        Some(over)
    }

    /// What looks saw; or that they failed.
    fn looked_at_permits(
        self: &Arc<Self>,
        looks: &[(Arc<SlotRows>, Look)],
        seen: Result<Vec<Option<RowState>>, Error>,
    ) {
        let now = Moment::now();
        let mut rest = seen.as_deref();
        for (semaphore, look) in looks {
            // Also those of a semaphore that has gone meanwhile are taken off.
            let these = rest.as_mut().map(|rows| {
                let (these, behind) = rows.split_at(look.slots.len().min(rows.len()));
                *rows = behind;
                these
            });
            let _ = self.change_permits(semaphore, |permits, actions| match these {
                Ok(rows) => permits.looked(look, rows, now, actions),
                Err(error) => {
                    let hopeless = error.is_hopeless().then_some(&**error);
                    permits.look_failed(hopeless, now, actions);
                }
            });
        }
    }
}

/// Looks at the slots that somebody waits for, one query for all that are due, until the client is closed or gone.
pub(super) async fn run(locks: Weak<Locks>, changed: Arc<Notify>, stopped: CancellationToken) {
    if let Some(locks) = locks.upgrade() {
        locks.all_permits().look_again(Moment::now());
    }
    loop {
        let Some(strong) = locks.upgrade() else {
            return;
        };
        let (due, next) = strong.all_permits().due(Moment::now());
        if due.is_empty() {
            // Only a weak reference is held while it sleeps.
            drop(strong);
            let pause = next.map(Moment::left);
            tokio::select! {
                () = stopped.cancelled() => return,
                () = changed.notified() => {}
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
            continue;
        }
        let rows = due.iter().flat_map(|(semaphore, look)| {
            let slots = look.slots.iter();
            slots.map(|slot| semaphore.slots[*slot].clone())
        });
        let seen = strong.engine.look(rows.collect()).await;
        if let Err(error) = &seen {
            tracing::debug!(%error, "cannot look at the permits that are waited for");
        }
        strong.looked_at_permits(&due, seen);
    }
}
