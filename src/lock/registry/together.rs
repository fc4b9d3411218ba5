//! Several locks at once: leases that were taken together, and of which no place knows. For the tasks of this process, as for all others,
//! such a lock is held elsewhere.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Locks;
use super::door::Closed;
use super::lease::Lease;
use super::turn::Turn;
use crate::clock::{Moment, micros};
use crate::engine::outcome::Outcome;
use crate::engine::together::{Taken, Together};
use crate::error::Error;
use crate::lock::terms::Terms;
use crate::name::Name;
use crate::sql::operation::{Acquire, Operation};
use crate::sql::packet::Mode;
use crate::sql::reply::RowState;
use crate::sql::row::RowKey;
use crate::sql::wish::GivesWay;
use crate::token::Token;

/// So often doors are freed that are held shared again and again.
const FREED: u8 = 3;

/// What became of an attempt to take several locks.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// All of them, in the order of the names.
    Granted(Vec<Turn>),
    /// None of them. The rows as they were seen, in the order of the names.
    Refused(Vec<Option<RowState>>),
}

impl Locks {
    /// Takes all of these locks, or none; `names` in their order, each once. `waits`: somebody has waited for them, and lets nobody go
    /// first. Doors that were held shared, and are no more, are freed before. Dropping this future gives back a grant that is on its way.
    pub(crate) async fn take_together(
        self: &Arc<Self>,
        names: &[Name],
        terms: &Terms,
        waits: bool,
    ) -> Result<Attempt, Error> {
        let mut freed = 0;
        loop {
            let rows = match self.try_together(names, terms, waits).await? {
                Attempt::Refused(rows) if freed < FREED => rows,
                attempt => return Ok(attempt),
            };
            freed += 1;
            let shared: Vec<&Name> = names
                .iter()
                .zip(&rows)
                .filter(|(_, row)| row.is_some_and(|row| row.is_shared()))
                .map(|(name, _)| name)
                .collect();
            if shared.is_empty() {
                return Ok(Attempt::Refused(rows));
            }
            for name in shared {
                if self.close_door(name, false).await? == Closed::StillHeld {
                    return Ok(Attempt::Refused(rows));
                }
            }
        }
    }

    async fn try_together(
        self: &Arc<Self>,
        names: &[Name],
        terms: &Terms,
        waits: bool,
    ) -> Result<Attempt, Error> {
        let token = Token::of_client(self.client);
        let acquire = Acquire {
            token,
            ttl: micros(terms.lease()),
            block: terms.block(),
            level: None,
            gives_way: GivesWay::of(waits),
            idles: false,
            queues: false,
            description: Arc::clone(&terms.description),
            held_by: Arc::clone(&self.held_by),
        };
        let keys: Vec<RowKey> = names.iter().cloned().map(RowKey::lock).collect();
        let operation = Operation::Acquire(acquire);
        let rows = keys.iter().map(|key| (key.clone(), operation.clone()));
        let (told, receiver) = oneshot::channel();
        let (locks, terms) = (Arc::clone(self), terms.clone());
        let given_up = CancellationToken::new();
        self.engine.take_together(Together {
            rows: rows.collect(),
            mode: Mode::Together,
            patience: None,
            expires: Moment::now().after(self.engine.request_limit()),
            given_up: given_up.clone(),
            told: Box::new(move |result| {
                let attempt = result.map(|taken| locks.taken_together(keys, token, &terms, taken));
                // Whoever asked may have gone away: then the turns are dropped here, which releases.
                drop(told.send(attempt));
            }),
        });
        let _given_up = given_up.drop_guard();
        let answer = pin!(async { receiver.await.map_err(|_| Error::Closed)? });
        let limit = self.engine.answer_limit();
        match tokio::time::timeout(limit, self.engine.driven(answer)).await {
            Ok(attempt) => attempt,
            Err(_) => Err(Error::OutcomeUnknown {
                name: names.first().map(Name::to_string).unwrap_or_default(),
            }),
        }
    }

    fn taken_together(
        self: &Arc<Self>,
        keys: Vec<RowKey>,
        token: Token,
        terms: &Terms,
        taken: Taken,
    ) -> Attempt {
        let (grants, sent) = match taken {
            Taken::Granted(grants, sent) => (grants, sent),
            Taken::Refused(rows) => return Attempt::Refused(rows),
        };
        let turn = |(key, grant)| match grant {
            Outcome::Granted {
                fence,
                remaining,
                until,
                wanted,
            } => {
                let found = (sent, remaining, until);
                let (locks, terms) = (Arc::downgrade(self), terms.clone());
                let lease = Lease::new(locks, key, (token, fence), terms, found, wanted > 0);
                let lease = Arc::new(lease.together());
                let turn = Turn::current(&lease);
                lease.reached_its_caller();
                if !self.keeper.add(&lease) {
                    self.close_lease(&lease);
                }
                Some(turn)
            }
            _ => None,
        };
        Attempt::Granted(keys.into_iter().zip(grants).filter_map(turn).collect())
    }
}
