//! What the work on a slot is given.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use tokio_util::sync::CancellationToken;

use crate::clock::Moment;
use crate::error::Error;
use crate::lock::LeaseView;
use crate::sql::transaction;
use crate::transaction::execute;

/// The lease of a slot, as the work on it sees it. It does not hold the slot: [`run_once`](crate::JobSlot::run_once) does.
#[derive(Clone)]
pub struct JobLease {
    view: LeaseView,
    slot: Arc<str>,
    /// A transaction of the caller's is to record the slot as done.
    finishes: Arc<AtomicBool>,
}

impl JobLease {
    pub(super) fn new(view: LeaseView, slot: Arc<str>) -> Self {
        Self {
            view,
            slot,
            finishes: Arc::default(),
        }
    }

    /// The slot, as it was given to [`Job::slot`](crate::Job::slot).
    pub fn slot(&self) -> &str {
        &self.slot
    }

    /// The fencing token of this attempt: it rises with every attempt at the slot. See
    /// [`LockGuard::fencing_token`](crate::LockGuard::fencing_token).
    pub fn fencing_token(&self) -> u64 {
        self.view.fencing_token()
    }

    /// Whether the lease is held: see [`LockGuard::is_held`](crate::LockGuard::is_held). False from [`finish_in`](Self::finish_in) on, until
    /// it is known that its transaction was rolled back.
    pub fn is_held(&self) -> bool {
        self.view.is_held()
    }

    /// How long the lease can be trusted without a renewal. Zero when it is not [held](Self::is_held).
    pub fn remaining(&self) -> Duration {
        self.view.remaining()
    }

    /// Resolves when the lease is lost: see [`LockGuard::lost`](crate::LockGuard::lost). The work is dropped then.
    ///
    /// # Cancel safety
    ///
    /// It can be dropped and called again.
    pub async fn lost(&self) {
        self.view.lost().await;
    }

    /// The same signal as a token, for tasks that the work starts: see
    /// [`LockGuard::cancellation_token`](crate::LockGuard::cancellation_token).
    pub fn cancellation_token(&self) -> CancellationToken {
        self.view.cancellation_token()
    }

    /// Verifies, in a transaction of the caller's, that the slot is still this machine's, and keeps it so until that ends: see
    /// [`LockGuard::verify_in`](crate::LockGuard::verify_in). For steps of long work; the last one calls [`finish_in`](Self::finish_in).
    ///
    /// # Errors
    ///
    /// As [`LockGuard::verify_in`](crate::LockGuard::verify_in).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: see [dropped calls in a transaction](crate::LockClient#dropped-calls-in-a-transaction).
    pub async fn verify_in(&self, connection: &mut MySqlConnection) -> Result<(), Error> {
        self.view.verify_in(connection).await
    }

    /// Records the slot as done when the caller's transaction commits, and not otherwise: what the work has written there and the record
    /// are one. So the work counts exactly once, whatever happens to the machine, its connection, or its lease. One round trip.
    ///
    /// Call it once in the transaction and late in it, commit, and end the work with a success (on MariaDB from 11.6.2 that needs READ
    /// COMMITTED; under REPEATABLE READ call it first, and be short): from here to the commit the
    /// transaction holds the slot's row, so that the lease is not renewed. If that takes two thirds of the [ttl](crate::JobSlot::ttl), the
    /// lease is lost and the work is dropped, with its transaction. If the transaction is rolled back, the slot is this
    /// machine's as before: the work may try another transaction. If the work ends with a success and none was committed, also where this call was refused,
    /// [`run_once`](crate::JobSlot::run_once) fails with [`Error::NotFinished`].
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient, pool: sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
    /// locks
    ///     .job("interest")
    ///     .slot("2026-11")
    ///     .run_once(async |lease| {
    ///         let mut tx = pool.begin().await?;
    ///         sqlx::query("UPDATE account SET balance = balance * 1.01").execute(&mut *tx).await?;
    ///         lease.finish_in(&mut tx).await?;
    ///         tx.commit().await?;
    ///         Ok::<_, Box<dyn std::error::Error>>(())
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`LockGuard::verify_in`](crate::LockGuard::verify_in).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: see [dropped calls in a transaction](crate::LockClient#dropped-calls-in-a-transaction).
    pub async fn finish_in(&self, connection: &mut MySqlConnection) -> Result<(), Error> {
        let lease = self.view.use_in_transaction()?;
        // First, and whatever it says: what the work has written may have been rolled back, and a statement may be without an answer. What
        // became of the transaction is found out at the end.
        self.finishes.store(true, Ordering::Release);
        let (home, grant) = (self.view.home().await?, (lease.token, lease.fence));
        let change = transaction::finish(&home, &lease.key(), grant, lease.current_turn());
        let verdict = execute(connection, &home, &change, &lease.name).await?;
        self.view.expect_ours(verdict).await?;
        lease.release_is_open(Moment::now());
        Ok(())
    }

    /// Whether [`finish_in`](Self::finish_in) was called.
    pub(super) fn finishes(&self) -> bool {
        self.finishes.load(Ordering::Acquire)
    }
}

impl fmt::Debug for JobLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobLease")
            .field("name", &self.view.name())
            .field("fencing_token", &self.fencing_token())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}
