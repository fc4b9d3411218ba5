//! Doors that are held shared, as those see them who want a lock for themselves.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Row;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Locks;
use super::ending::lock_lost;
use super::place::Question;
use super::turn::Turn;
use crate::clock::{Moment, micros};
use crate::engine::outcome::Outcome;
use crate::engine::request::{ReplyTo, Request};
use crate::engine::together::{Taken, Together};
use crate::error::Error;
use crate::lock::terms::Terms;
use crate::mutant::{self, Mutant};
use crate::name::Name;
use crate::sql::inspect;
use crate::sql::operation::{Acquire, Close, Downgrade, Drain, Operation};
use crate::sql::packet::Mode;
use crate::sql::reply::RowState;
use crate::sql::row::RowKey;
use crate::sql::wish::GivesWay;
use crate::timing::{DRAIN, WANT};
use crate::token::Token;

/// What became of a door that was to be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// It is not held shared any more.
    Yes,
    /// It was not held shared when it was to be freed by force.
    NotShared,
    /// Somebody holds it, or has locked one of its rows.
    StillHeld,
}

impl Locks {
    /// An acquire found the door held shared: it is sent again so that it takes the door if all shared holds have ended. Its answer comes back
    /// to the place.
    pub(super) fn shut(
        self: &Arc<Self>,
        name: &Name,
        (token, acquire): (Token, Acquire),
        question: Question,
        row: RowState,
    ) {
        // A level is counted: it is not repeated where nobody knows whether it ran. So the door is freed first.
        let operation = if acquire.level.is_some() {
            Operation::Close(Close { forced: false })
        } else {
            Operation::Shut(acquire)
        };
        let (locks, of) = (Arc::clone(self), name.clone());
        self.shut_door(name, operation, move |result| match result {
            Ok(Taken::Granted(outcomes, sent)) => match outcomes.into_iter().next() {
                Some(outcome @ Outcome::Granted { .. }) => {
                    locks.took(&of, token, question, &outcome, sent);
                }
                _ => locks.ask(&of, question),
            },
            Ok(Taken::Refused(rows)) => {
                // The door, or one of its shared rows, was passed over since somebody had it locked: then nothing is known.
                let seen = rows.first().copied().flatten();
                let busy = rows.first().is_some_and(Option::is_none);
                let row = seen.unwrap_or(row).held_for(Some(micros(WANT)));
                locks.not_taken(&of, &question, Ok((!busy).then_some(row)));
            }
            Err(error) => locks.not_taken(&of, &question, Err(error)),
        });
    }

    /// Sends a packet that decides about a door when it has had its shared rows.
    fn shut_door(
        &self,
        name: &Name,
        operation: Operation,
        told: impl FnOnce(Result<Taken, Error>) + Send + 'static,
    ) {
        self.engine.take_together(Together {
            rows: vec![(RowKey::lock(name.clone()), operation)],
            mode: Mode::Shut,
            patience: None,
            expires: Moment::now().after(self.engine.request_limit()),
            given_up: CancellationToken::new(),
            told: Box::new(told),
        });
    }

    /// Frees a door that was held shared: if all shared holds have ended, or whoever holds it.
    pub(crate) async fn close_door(
        self: &Arc<Self>,
        name: &Name,
        forced: bool,
    ) -> Result<Closed, Error> {
        let (told, receiver) = oneshot::channel();
        let close = Operation::Close(Close { forced });
        self.shut_door(name, close, move |result| drop(told.send(result)));
        let answer = pin!(async { receiver.await.map_err(|_| Error::Closed)? });
        let limit = self.engine.answer_limit();
        match tokio::time::timeout(limit, self.engine.driven(answer)).await {
            Ok(taken) => Ok(match taken? {
                Taken::Granted(..) => Closed::Yes,
                Taken::Refused(rows) => {
                    let seen = rows.first().copied().flatten();
                    if seen.is_none_or(|row| row.is_shared()) {
                        Closed::StillHeld
                    } else {
                        Closed::NotShared
                    }
                }
            }),
            Err(_) => Err(Error::OutcomeUnknown {
                name: name.to_string(),
            }),
        }
    }

    /// Whether a transaction may take a lock, by its row; `waits`: it has waited, and lets only those go first whose wish is urgent. A door that was held shared is freed first, by a packet.
    pub(crate) async fn opens(
        self: &Arc<Self>,
        name: &Name,
        row: &RowState,
        waits: bool,
    ) -> Result<bool, Error> {
        if !row.admits(GivesWay::of(waits)) {
            return Ok(false);
        }
        Ok(!row.is_shared() || self.close_door(name, false).await? == Closed::Yes)
    }

    /// Reads the rows of locks as they are, without a lock. Of one that is held shared the rows of its holders tell how long still, or that it
    /// is free.
    pub(crate) async fn look_at_locks(
        &self,
        names: &[Name],
    ) -> Result<Vec<Option<RowState>>, Error> {
        let keys = names.iter().cloned().map(RowKey::lock).collect();
        let mut rows = self.engine.look(keys).await?;
        let is_shared = |row: &Option<RowState>| row.is_some_and(|row| row.is_shared());
        let shared = names.iter().zip(&rows).filter(|(_, row)| is_shared(row));
        let shared: Vec<&str> = shared.map(|(name, _)| name.as_str()).collect();
        let mut held: HashMap<String, i64> = HashMap::new();
        let mut rest = shared.as_slice();
        while !rest.is_empty() {
            let (names, behind) = rest.split_at(inspect::fitting(rest.iter().copied()));
            rest = behind;
            let sql = inspect::shared_holds(names.iter().copied());
            for row in self.engine.query(sql).await? {
                let read = || -> Result<(String, i64), sqlx::Error> {
                    Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(1)?))
                };
                let (name, remaining) = read().map_err(Error::from_sqlx)?;
                held.insert(name, remaining);
            }
        }
        for (name, row) in names.iter().zip(&mut rows) {
            if let Some(shared) = row.as_mut().filter(|row| row.is_shared()) {
                *shared = shared.held_for(held.get(name.as_str()).copied());
            }
        }
        Ok(rows)
    }

    /// The same of one lock.
    pub(crate) async fn look_at_lock(&self, name: &Name) -> Result<Option<RowState>, Error> {
        let seen = self.look_at_locks(std::slice::from_ref(name)).await?;
        Ok(seen.into_iter().next().flatten())
    }

    /// Says in the door, as it was seen, that a writer waits, unless that is known for long enough.
    pub(crate) fn drain(&self, name: &Name, row: &RowState) {
        let known = row.drained_for() > micros(DRAIN / 2);
        if !row.is_shared() || row.is_free() || known || mutant::on(Mutant::NobodyGivesWay) {
            return;
        }
        let drain = Drain {
            wait: micros(DRAIN),
        };
        // If it fails the wait is longer, and no less safe.
        self.engine.submit(
            RowKey::lock(name.clone()),
            Request::Operation(Operation::Drain(drain)),
            Moment::now().after(self.engine.request_limit().min(DRAIN)),
            ReplyTo::client(drop),
        );
    }

    /// Makes an exclusive hold a shared one, in one packet. If that fails the lock is released. Dropping this future releases it.
    pub(crate) async fn downgrade(self: &Arc<Self>, turn: Turn) -> Result<Turn, Error> {
        let lease = Arc::clone(&turn.lease);
        let name = lease.name.clone();
        // From here on nothing of it is renewed, passed on, or told as lost.
        if !lease.is_held() || !lease.end() {
            return Err(lock_lost(&name));
        }
        turn.disarm();
        self.keeper.remove(&lease);
        // Nobody has it shared now, so none is taken.
        let slot = self.readers().free_slot(&name, self.client);
        let (key, share) = self.share(&name, slot, &lease.terms);
        let token = share.token;
        let downgrade = Operation::Downgrade(Downgrade {
            token: lease.token,
            fence: lease.fence,
        });
        let door = lease.key();
        let (told, receiver) = oneshot::channel();
        let (locks, row) = (Arc::clone(self), key.clone());
        self.engine.take_together(Together {
            rows: vec![(door, downgrade), (key, Operation::Share(share))],
            mode: Mode::Together,
            patience: None,
            expires: lease.trusted_until(),
            given_up: CancellationToken::new(),
            told: Box::new(move |result| {
                let turn = locks.downgraded(&lease, row, token, result);
                // Whoever asked may have gone away: then the turn is dropped here, which releases.
                drop(told.send(turn));
            }),
        });
        let answer = pin!(async { receiver.await.map_err(|_| Error::Closed)? });
        let limit = self.engine.answer_limit();
        match tokio::time::timeout(limit, self.engine.driven(answer)).await {
            Ok(turn) => turn,
            Err(_) => Err(Error::OutcomeUnknown {
                name: name.to_string(),
            }),
        }
    }

    fn downgraded(
        self: &Arc<Self>,
        lease: &Arc<super::lease::Lease>,
        row: RowKey,
        token: Token,
        result: Result<Taken, Error>,
    ) -> Result<Turn, Error> {
        let turn = match result {
            Ok(Taken::Granted(grants, sent)) => {
                lease.note_release();
                // A shared hold does not idle; so others join it who ask for one.
                let terms = Terms {
                    linger: Duration::ZERO,
                    ..lease.terms.clone()
                };
                let shared = self.shared_lease(row, token, terms, &grants, sent);
                let shared = shared.ok_or(Error::Closed)?;
                Ok(self.has_shared(&shared))
            }
            Ok(Taken::Refused(rows)) => {
                let lost = rows.first().copied().flatten().is_some_and(|door| {
                    !door.mine || door.fence != lease.fence || door.remaining <= 0
                });
                let name = lease.name.to_string();
                Err(if lost {
                    Error::LockLost { name }
                } else {
                    Error::Busy { name }
                })
            }
            Err(error) => Err(error),
        };
        if turn.is_err() {
            self.release(lease, false, None);
        }
        // Those who wait here ask the table.
        self.move_on(lease);
        turn
    }
}
