//! Slots of jobs: leases that nobody waits for, and that never pass on in memory. They end free, or done.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::Locks;
use super::ending::{End, TurnEnd, lock_lost};
use super::lease::Lease;
use super::turn::Turn;
use crate::clock::{Moment, micros};
use crate::engine::outcome::{Answer, Outcome};
use crate::engine::request::{ReplyTo, Request};
use crate::error::Error;
use crate::lock::terms::Terms;
use crate::mutant::{self, Mutant};
use crate::sql::operation::{Acquire, Operation};
use crate::sql::row::RowKey;
use crate::sql::wish::GivesWay;
use crate::telemetry;
use crate::token::Token;

/// What became of the attempt to take a slot.
#[derive(Debug)]
pub(crate) enum Claim {
    Granted(Turn),
    /// Its work is done.
    Done,
    /// Somebody else is at it, or a transaction has its row locked.
    Taken,
}

impl Locks {
    /// Takes a slot, if it is free. Dropping this future gives back a grant that is on its way.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        slot: &RowKey,
        terms: Terms,
    ) -> Result<Claim, Error> {
        let token = Token::of_client(self.client);
        let operation = Operation::Acquire(Acquire {
            token,
            ttl: micros(terms.lease()),
            block: terms.block(),
            level: None,
            gives_way: GivesWay::TO_NONE,
            idles: false,
            queues: false,
            description: Arc::clone(&terms.description),
            held_by: Arc::clone(&self.held_by),
        });
        let (told, receiver) = oneshot::channel();
        let (locks, key) = (Arc::clone(self), slot.clone());
        let reply = ReplyTo::client(move |result| {
            let claim = result.map(|answer| locks.claimed(key, token, terms, &answer));
            // Whoever asked may have gone away: then the turn is dropped here, which releases.
            drop(told.send(claim));
        });
        let expires = Moment::now().after(self.engine.request_limit());
        let request = Request::Operation(operation);
        self.engine.submit(slot.clone(), request, expires, reply);
        let answer = pin!(async { receiver.await.map_err(|_| Error::Closed)? });
        let limit = self.engine.answer_limit();
        match tokio::time::timeout(limit, self.engine.driven(answer)).await {
            Ok(claim) => claim,
            Err(_) => Err(Error::OutcomeUnknown {
                name: slot.name.to_string(),
            }),
        }
    }

    fn claimed(
        self: &Arc<Self>,
        slot: RowKey,
        token: Token,
        terms: Terms,
        answer: &Answer,
    ) -> Claim {
        match answer.outcome {
            Outcome::Granted {
                fence,
                remaining,
                until,
                wanted,
            } => {
                let found = (answer.sent, remaining, until);
                let locks = Arc::downgrade(self);
                let lease = Lease::new(locks, slot, (token, fence), terms, found, wanted > 0);
                let lease = Arc::new(lease);
                let turn = Turn::current(&lease);
                lease.reached_its_caller();
                if !self.keeper.add(&lease) {
                    self.close_lease(&lease);
                }
                Claim::Granted(turn)
            }
            Outcome::Held(row) if row.is_done() => Claim::Done,
            _ => Claim::Taken,
        }
    }

    /// Records the slot of a lease as done, in the commit that releases it, and waits until that is certain. It goes on if this future is
    /// dropped.
    pub(crate) async fn finish(self: &Arc<Self>, turn: Turn) -> Result<(), Error> {
        let lease = Arc::clone(&turn.lease);
        lease.hold.end();
        // What was lost is released as it is, if it can be.
        if lease.is_lost() || !lease.end() {
            return Err(lock_lost(&lease.name));
        }
        turn.disarm();
        let (told, receiver) = oneshot::channel();
        let end = if mutant::on(Mutant::FinishFrees) {
            End::Free { announce: false }
        } else {
            End::Done
        };
        self.end_with(&lease, end, Some(told));
        self.until_released(&lease, receiver).await
    }

    /// Whether a transaction of the holder's has recorded the slot as done, which had called for it and has ended.
    ///
    /// If it has not, the slot is released.
    pub(crate) async fn was_finished(self: &Arc<Self>, turn: Turn) -> Result<bool, Error> {
        let lease = Arc::clone(&turn.lease);
        if !lease.was_released() {
            let seen = self.engine.look(vec![lease.key()]).await?;
            let row = seen.first().copied().flatten();
            if row.is_some_and(|row| row.is_done() && row.fence == lease.fence) {
                self.released_in_transaction(&lease);
            }
        }
        lease.hold.end();
        if lease.was_released() {
            telemetry::finished(&lease.name, Moment::now().since(lease.granted));
            return Ok(true);
        }
        // A node of a cluster may be behind: what is written tells.
        self.give_back(turn).await?;
        Ok(lease.was_released())
    }

    /// Releases a slot that is not done, and waits until that is certain.
    pub(crate) async fn give_back(self: &Arc<Self>, turn: Turn) -> Result<(), Error> {
        let lease = Arc::clone(&turn.lease);
        let last = turn.disarm();
        match Self::end_turn(self, &lease, last, true) {
            TurnEnd::Known(result) => result,
            TurnEnd::Sent(receiver) => self.until_released(&lease, receiver).await,
        }
    }
}
