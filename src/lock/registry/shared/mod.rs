//! Shared holds of a client's locks: sends what [`Readers`] decide, and brings them the answers.

mod readers;

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use self::readers::{Action, Question, Readers, first_slot, other_slot};
use super::lease::Lease;
use super::place::{self, TurnOver, Waiter};
use super::ticket::{Line, Ticket};
use super::turn::Turn;
use super::{Entered, Locks};
use crate::clock::{Moment, micros};
use crate::engine::outcome::Outcome;
use crate::engine::together::{Taken, Together};
use crate::error::Error;
use crate::lock::terms::{Terms, Wait};
use crate::name::Name;
use crate::sql::operation::{Open, Operation, Share};
use crate::sql::packet::Mode;
use crate::sql::reply::RowState;
use crate::sql::row::{Kind, RowKey};
use crate::sql::wish::GivesWay;
use crate::telemetry;
use crate::timing::WANT_URGENTLY;
use crate::token::Token;

/// The shared holds of all names.
#[derive(Default)]
pub(super) struct AllReaders {
    map: HashMap<Name, Readers>,
    closed: bool,
}

impl AllReaders {
    fn change<T>(&mut self, name: &Name, change: impl FnOnce(&mut Readers) -> T) -> Option<T> {
        let readers = self.map.get_mut(name)?;
        let result = change(readers);
        if readers.is_done() {
            self.map.remove(name);
        }
        Some(result)
    }

    /// The slot for a hold of a client's that begins, and is not asked for here: one whose row is there already, as a rule.
    pub(super) fn free_slot(&self, name: &Name, client: u32) -> u32 {
        let first = || first_slot(client);
        self.map.get(name).map_or_else(first, Readers::free_slot)
    }

    /// Those to look at now, and when the next look is due.
    fn due(&self, now: Moment) -> (Vec<Name>, Option<Moment>) {
        let mut due = Vec::new();
        let mut next: Option<Moment> = None;
        for (name, readers) in &self.map {
            match readers.next_look() {
                Some(at) if at <= now => due.push(name.clone()),
                Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
                None => {}
            }
        }
        (due, next)
    }

    /// There are none from here on.
    pub(super) fn close(&mut self) {
        self.closed = true;
        for (_, mut readers) in self.map.drain() {
            readers.fail(&Error::Closed, &mut Vec::new());
        }
    }
}

impl Locks {
    pub(super) fn readers(&self) -> MutexGuard<'_, AllReaders> {
        // None is left half changed: decisions do not panic.
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a shared hold, or waits for one. What it gives says how the wait ends.
    pub(crate) fn enter_shared<'l>(
        self: &'l Arc<Self>,
        name: &'l Name,
        terms: Terms,
        wait: Wait,
        now: Moment,
    ) -> Result<Entered<'l>, Error> {
        let (reply, receiver) = oneshot::channel();
        let mut actions = Vec::new();
        let mut all = self.readers();
        if all.closed {
            return Err(Error::Closed);
        }
        let id = self.next_id();
        let waiter = Waiter {
            id,
            terms,
            once: wait == Wait::Not,
            asks: false,
            until: None,
            reply,
        };
        all.map
            .entry(name.clone())
            .or_insert_with(|| Readers::new(first_slot(self.client)))
            .enter(waiter, now, &mut actions);
        drop(all);
        self.carry_out_shared(name, actions);
        Ok(Entered::Waits(Ticket {
            locks: self,
            line: Line::Shared(name),
            wait,
            id,
            receiver,
            queued: true,
        }))
    }

    /// Changes the shared holds of a name, if there are any, and carries out what follows from that.
    pub(super) fn change_readers<T>(
        self: &Arc<Self>,
        name: &Name,
        change: impl FnOnce(&mut Readers, &mut Vec<Action>) -> T,
    ) -> Option<T> {
        let mut actions = Vec::new();
        let result = self
            .readers()
            .change(name, |readers| change(readers, &mut actions))?;
        self.carry_out_shared(name, actions);
        Some(result)
    }

    fn carry_out_shared(self: &Arc<Self>, name: &Name, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Ask(question) => self.ask_for_shared(name, question),
                Action::Release(lease) => self.release(&lease, true, None),
                Action::LookForWriters(lease) => self.look_for_writers(lease),
                Action::AskFor(row) => {
                    telemetry::wished(name);
                    // Writers elsewhere let it go first: readers have a turn after each of them.
                    self.ask_for(name, &row, WANT_URGENTLY);
                }
                Action::NoLongerWant => self.want(name, Duration::ZERO, None),
                Action::Watch => self.watch_readers.notify_one(),
                Action::Waits => telemetry::waits(),
            }
        }
    }

    /// What makes a shared row active.
    pub(super) fn share(&self, name: &Name, slot: u32, terms: &Terms) -> (RowKey, Share) {
        let share = Share {
            token: Token::of_client(self.client),
            ttl: micros(terms.lease()),
            description: Arc::clone(&terms.description),
            held_by: Arc::clone(&self.held_by),
        };
        (RowKey::shared(name.clone(), slot), share)
    }

    /// Sends a request for a shared hold; its answer comes back to the name's readers.
    fn ask_for_shared(self: &Arc<Self>, name: &Name, question: Question) {
        let Question {
            terms,
            slot,
            gives_way,
            patience,
        } = question;
        let (row, share) = self.share(name, slot, &terms);
        let token = share.token;
        let door = RowKey::lock(name.clone());
        let (locks, key, name) = (Arc::clone(self), row.clone(), name.clone());
        self.engine.take_together(Together {
            rows: vec![
                (door, Operation::Open(Open { gives_way })),
                (row, Operation::Share(share)),
            ],
            mode: Mode::Together,
            patience: Some(patience),
            expires: Moment::now().after(self.engine.request_limit()),
            given_up: CancellationToken::new(),
            told: Box::new(move |result| {
                locks.asked_for_shared(&name, (key, gives_way), token, terms, result);
            }),
        });
    }

    fn asked_for_shared(
        self: &Arc<Self>,
        name: &Name,
        (key, gives_way): (RowKey, GivesWay),
        token: Token,
        terms: Terms,
        result: Result<Taken, Error>,
    ) {
        let now = Moment::now();
        match result {
            Err(error) => {
                let _ = self.change_readers(name, |readers, actions| readers.fail(&error, actions));
            }
            Ok(Taken::Granted(grants, sent)) => {
                let Some(lease) = self.shared_lease(key, token, terms, &grants, sent) else {
                    return;
                };
                let granted = Arc::clone(&lease);
                let known = self.change_readers(name, |readers, actions| {
                    readers.granted(granted, now, actions);
                });
                // The client was closed meanwhile.
                if known.is_none() && lease.end() {
                    self.release(&lease, false, None);
                }
            }
            Ok(Taken::Refused(rows)) => {
                let row = |at: usize| rows.get(at).copied().flatten();
                let door = row(0);
                let opens = door.is_some_and(|door: RowState| door.admits_shared(gives_way));
                // Who has that row may have a transaction open that has verified its hold.
                let taken = row(1).is_none_or(|row| !row.is_free());
                let other = other_slot(self.client, key.slot);
                let _ = self.change_readers(name, |readers, actions| {
                    if opens && taken {
                        readers.slot_is_taken(other, now, actions);
                    } else {
                        readers.refused(door.as_ref(), now, actions);
                    }
                });
            }
        }
    }

    /// The lease of a grant, which is kept from here on.
    pub(super) fn shared_lease(
        self: &Arc<Self>,
        key: RowKey,
        token: Token,
        terms: Terms,
        grants: &[Outcome],
        sent: Moment,
    ) -> Option<Arc<Lease>> {
        let Some(Outcome::Granted {
            fence,
            remaining,
            until,
            wanted,
        }) = grants.first()
        else {
            debug_assert!(false, "a grant says what it grants");
            return None;
        };
        let found = (sent, *remaining, *until);
        let lease = Lease::new(
            Arc::downgrade(self),
            key,
            (token, *fence),
            terms,
            found,
            *wanted > 0,
        );
        let lease = Arc::new(lease);
        if !self.keeper.add(&lease) {
            self.close_lease(&lease);
        }
        Some(lease)
    }

    /// A task of this process has a shared hold for which it did not wait here.
    pub(super) fn has_shared(self: &Arc<Self>, lease: &Arc<Lease>) -> Turn {
        let turn = Turn::current(lease);
        lease.reached_its_caller();
        let mut all = self.readers();
        if !all.closed {
            all.map
                .entry(lease.name.clone())
                .or_insert_with(|| Readers::new(first_slot(self.client)))
                .has(Arc::clone(lease));
        }
        turn
    }

    fn look_for_writers(self: &Arc<Self>, lease: Arc<Lease>) {
        let locks = Arc::clone(self);
        self.engine.runtime().spawn(async move {
            let seen = locks.engine.look(vec![RowKey::lock(lease.name.clone())]);
            let Ok(seen) = seen.await else { return };
            // While its row runs, the door stays open, but for force.
            let freed = |row: &RowState| {
                let since = u64::try_from(row.previous).unwrap_or_default();
                row.fence >= lease.fence && (!row.is_shared() || since >= lease.fence)
            };
            if seen.iter().flatten().any(freed) {
                locks.lose(&lease);
                return;
            }
            let admits =
                |row: &Option<RowState>| row.is_none_or(|row| row.admits_shared(GivesWay::TO_NONE));
            if !seen.first().is_none_or(admits) {
                let name = lease.name.clone();
                let _ = locks.change_readers(&name, |readers, _| readers.drained(&lease));
            }
        });
    }

    /// Ends a task's turn with a shared hold. A release that follows is left to the caller.
    pub(super) fn end_shared(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        follows: &mut Vec<place::Action>,
    ) -> Option<TurnOver> {
        let mut actions = Vec::new();
        let over = self
            .readers()
            .change(&lease.name, |readers| readers.end_turn(lease, &mut actions))?;
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
        self.carry_out_shared(&lease.name, actions);
        Some(over)
    }

    /// A shared hold is over, or its release is known.
    pub(super) fn forget_shared(self: &Arc<Self>, lease: &Lease) {
        if lease.kind == Kind::Shared {
            let _ = self.change_readers(&lease.name, |readers, _| readers.forget(lease));
        }
    }
}

/// Looks at the locks that are waited for, one query for all that are due, until the client is closed or gone.
pub(super) async fn run(locks: Weak<Locks>, changed: Arc<Notify>, stopped: CancellationToken) {
    loop {
        let Some(strong) = locks.upgrade() else {
            return;
        };
        let (due, next) = strong.readers().due(Moment::now());
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
        let keys = due.iter().cloned().map(RowKey::lock).collect();
        let seen = strong.engine.look(keys).await;
        if let Err(error) = &seen {
            tracing::debug!(%error, "cannot look at the locks that are waited for");
        }
        let now = Moment::now();
        for (at, name) in due.iter().enumerate() {
            let _ = strong.change_readers(name, |readers, actions| match &seen {
                Ok(rows) => {
                    let row = rows.get(at).and_then(Option::as_ref);
                    readers.looked(row, now, actions);
                }
                Err(error) if error.is_hopeless() => readers.fail(error, actions),
                Err(_) => readers.look_failed(now),
            });
        }
    }
}
