//! Jobs: work that is done once for each slot, on however many machines.
//!
//! # States
//!
//! ```text
//!            claim                    finish, or a commit with finish_in
//!   free ───────────▶ held by a lease ──────────────────────────────────▶ done
//!    ▲                       │                                             │
//!    └───────────────────────┘                                             │
//!    failure, panic, drop; or its end                                      │
//!    └────────────────────────────── reset, or a purge ────────────────────┘
//! ```
//!
//! A slot is a row of a kind of its own. While a machine is at it, it is a lease like any lock's. To finish it is to release it: one change of the
//! row frees the lease and leaves a status of its own, with a deadline that never comes. An acquire finds no row free that has one, so
//! it needs to know nothing of jobs; and no clock, of whatever machine, makes a done slot free.

mod lease;
mod name;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

pub use self::lease::JobLease;
use crate::client::inner::Inner;
use crate::clock::Moment;
use crate::error::Error;
use crate::inspect::LockInfo;
use crate::lock::registry::slot::Claim;
use crate::lock::registry::turn::Turn;
use crate::lock::{LeaseView, LockRequest, WorkOutput};
use crate::metric;
use crate::sql::inspect;
use crate::sql::row::RowKey;
use crate::telemetry;

/// A job by its name: made by [`LockClient::job`](crate::LockClient::job). It can be cloned and kept.
#[derive(Clone)]
pub struct Job {
    client: Arc<Inner>,
    name: Arc<str>,
}

impl Job {
    pub(crate) fn new(client: Arc<Inner>, name: &str) -> Self {
        Self {
            client,
            name: name.into(),
        }
    }

    /// A slot of the job: a date, a number, a tick of a timer, as the caller names it. All machines must come to the same name for the same
    /// slot. Together with the job's name and the `@` between them it has at most 255 characters; it does not end in a space.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let invoices = locks.job("invoices");
    /// for order in 7..10 {
    ///     invoices.slot(order).run_once(async |lease| println!("order {}", lease.slot())).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn slot(&self, slot: impl fmt::Display) -> JobSlot {
        let slot: Arc<str> = slot.to_string().into();
        JobSlot {
            // Its name is checked when it is used.
            request: LockRequest::new(Arc::clone(&self.client), &slot).apart(),
            job: self.clone(),
            slot,
        }
    }

    /// The slots that somebody is at ([`Held`](crate::LockState::Held)) or that are [`Done`](crate::LockState::Done), in the server's order of
    /// their names, `limit` at a time; give the last slot of a page as `after` of the next one. They are called `job@slot`.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// for slot in locks.job("invoices").list(Some("2026-11-01"), 31).await? {
    ///     println!("{}: {:?}, {} at {}", slot.name, slot.state, slot.held_by, slot.modified);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; [those of any call](Error#errors-that-any-call-may-return).
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn list(&self, after: Option<&str>, limit: u32) -> Result<Vec<LockInfo>, Error> {
        let (first, end) = name::bounds(&self.name)?;
        let behind = format!("{first}{}", after.unwrap_or_default());
        let mut slots = self
            .client
            .show(inspect::slots(&behind, &end, limit))
            .await?;
        // Behind them all, in the server's order, may come those of a job whose name goes on with a control character.
        slots.retain(|slot| slot.name.starts_with(&first));
        Ok(slots)
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Job").field(&self.name).finish()
    }
}

/// A slot of a job: made by [`Job::slot`].
#[derive(Clone)]
#[must_use = "a slot does nothing until it is run"]
pub struct JobSlot {
    request: LockRequest,
    job: Job,
    slot: Arc<str>,
}

/// What became of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "another machine may be at it, and may yet fail"]
pub enum RunOnce<T> {
    /// The work has run here, and the slot is recorded as done. What the work answered.
    Done(T),
    /// It was done before, here or elsewhere. The work did not run.
    AlreadyDone,
    /// Another machine, or another task, is at it just now. The work did not run. If the other one fails or dies, the slot is not done:
    /// ask again later.
    Busy,
}

impl<T> RunOnce<T> {
    /// Whether the slot is done, by this call or before it.
    pub fn is_done(&self) -> bool {
        !matches!(self, Self::Busy)
    }
}

impl JobSlot {
    /// How long the lease lasts if it is not renewed: so long after a machine has died, another one may take the slot up. Defaults to 30 s, or
    /// to what the client was built with; at least 50 ms. It is renewed while the work runs.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.request = self.request.ttl(ttl);
        self
    }

    /// An upper bound of one attempt: the lease is not renewed past it, and is lost then, which drops the work. Defaults to none.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.request = self.request.max_hold(max_hold);
        self
    }

    /// What the attempt is described by, for those who inspect it, also when it is done. At most 255 characters. Defaults to nothing.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.request = self.request.description(description);
        self
    }

    /// Runs `work` if the slot is free, and records it as done, in the commit that releases it. It does not wait for others.
    ///
    /// Once recorded, the slot is never run again, whatever the machines' clocks say, until it is [reset](Self::reset) or
    /// [purged](crate::LockClient::purge). `work` answers `()`, or a `Result`: if that is an error, or `work` panics, or this future is dropped, the slot
    /// is released and not done; if the machine dies, that is so after the [ttl](Self::ttl). When the lease is lost, `work` is dropped
    /// at its next await.
    ///
    /// So `work` runs to its end at least once, and as a rule once: a machine that dies behind the work and before the record leaves work that
    /// is done again. Where that must not be, write what the work does into this database, and record it in the same transaction with
    /// [`finish_in`](JobLease::finish_in).
    ///
    /// ```no_run
    /// # async fn send_invoices() -> Result<u32, tag_lock::Error> { Ok(3) }
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// use tag_lock::RunOnce;
    ///
    /// match locks.job("invoices").slot("2026-11-22").run_once(|_| send_invoices()).await? {
    ///     RunOnce::Done(invoices) => println!("{invoices} invoices sent"),
    ///     RunOnce::AlreadyDone => println!("they are out"),
    ///     RunOnce::Busy => println!("another machine sends them"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// That of `work`: the slot is released. [`Error::LockLost`] if the lease was lost before the slot was recorded as done: another
    /// machine may be at it; after `finish_in` it may also be done. [`Error::OutcomeUnknown`] if it could not be found out in time whether it was recorded:
    /// [`is_done`](Self::is_done) tells. [`Error::Busy`] if the work has ended and the row is locked: a transaction in which the lease was used is still open, or a crowd
    /// stands at the row. The client goes on trying to record the slot until the lease has ended, and for the request timeout after that. If
    /// that fails, the slot may be run again. [`Error::NotFinished`] after a [`finish_in`](JobLease::finish_in) that was not committed.
    /// [`Error::InvalidName`] and [`Error::InvalidOption`] before anything is sent; [those of any call](Error#errors-that-any-call-may-return).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` and releases the slot. If the work had ended, it is recorded as done all the same.
    pub async fn run_once<F, O>(
        self,
        work: impl FnOnce(JobLease) -> F,
    ) -> Result<RunOnce<O::Value>, O::Error>
    where
        F: Future<Output = O>,
        O: WorkOutput,
    {
        let turn = match self.claim().await? {
            Claim::Granted(turn) => turn,
            Claim::Done => return Ok(RunOnce::AlreadyDone),
            Claim::Taken => return Ok(RunOnce::Busy),
        };
        let view = LeaseView::of(&turn);
        let lease = JobLease::new(view, Arc::clone(&self.slot));
        let work = work(lease.clone());
        let output = tokio::select! {
            // A lease that is lost in the same moment counts as lost.
            biased;
            () = lease.lost() => {
                let name = turn.lease.name.to_string();
                return Err(Error::LockLost { name }.into());
            }
            output = work => output,
        };
        match output.into_result() {
            Ok(value) => {
                self.record(&lease, turn).await?;
                Ok(RunOnce::Done(value))
            }
            Err(failure) => {
                let name = turn.lease.name.clone();
                if let Err(error) = self.locks().give_back(turn).await {
                    tracing::warn!(job = %name, error = %error.in_full(), "a slot was not released");
                }
                Err(failure)
            }
        }
    }

    /// Whether the slot is done.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// if !locks.job("invoices").slot("2026-11-22").is_done().await? {
    ///     println!("they are not out yet");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; [those of any call](Error#errors-that-any-call-may-return).
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn is_done(&self) -> Result<bool, Error> {
        let seen = self.job.client.engine.look(vec![self.key()?]).await?;
        Ok(seen
            .first()
            .copied()
            .flatten()
            .is_some_and(|row| row.is_done()))
    }

    /// What stands in the table about the slot, under the name `job@slot`; `None` if nobody was ever at it, or it was purged.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; [those of any call](Error#errors-that-any-call-may-return).
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn inspect(&self) -> Result<Option<LockInfo>, Error> {
        self.job.client.inspect(&self.key()?).await
    }

    /// Makes the slot free, whether it is done or somebody is at it: for operators who want it to be run again. Whether it was either. A machine that is
    /// at it is told as by [`LockClient::force_release`](crate::LockClient::force_release), and cannot record it as done any more.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; [`Error::Busy`] while a transaction holds the slot's row; [those of any call](Error#errors-that-any-call-may-return).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the reset back.
    pub async fn reset(&self) -> Result<bool, Error> {
        self.job.client.force_release(self.key()?).await
    }

    fn key(&self) -> Result<RowKey, Error> {
        name::row_name(&self.job.name, &self.slot).map(RowKey::job)
    }

    fn locks(&self) -> &Arc<crate::lock::registry::Locks> {
        &self.job.client.locks
    }

    async fn claim(&self) -> Result<Claim, Error> {
        let key = self.key()?;
        let terms = self.request.terms()?;
        let asked = Moment::now();
        let waiting = metric::Waiting::begin();
        let span = telemetry::acquire(&key.name);
        let claim = self.locks().claim(&key, terms).instrument(span).await;
        let claim = match claim {
            // Nothing has run: others stand at its row.
            Err(Error::Busy { .. }) => Claim::Taken,
            claim => claim?,
        };
        waiting.end();
        match &claim {
            Claim::Granted(turn) => {
                turn.lease.hold.begin();
                telemetry::acquired(&key.name, turn.fence, asked);
            }
            Claim::Done | Claim::Taken => telemetry::refused(&key.name, asked),
        }
        Ok(claim)
    }

    /// The work has succeeded: records that, or finds out that a transaction of its own has.
    async fn record(&self, lease: &JobLease, turn: Turn) -> Result<(), Error> {
        if !lease.finishes() {
            return self.locks().finish(turn).await;
        }
        let name = turn.lease.name.to_string();
        if self.locks().was_finished(turn).await? {
            Ok(())
        } else {
            Err(Error::NotFinished { name })
        }
    }
}

impl fmt::Debug for JobSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobSlot")
            .field("job", &self.job.name)
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}
