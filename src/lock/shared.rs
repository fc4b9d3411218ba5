//! Shared holds: many at once, or one that holds the lock for itself.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use tokio_util::sync::CancellationToken;

use super::guard::{LeaseView, LockGuard};
use super::request::LockRequest;
use super::terms::Wait;
use super::work::{WorkOutput, under};
use crate::error::Error;
use crate::inspect::{self, For, LockInfo};
use crate::sql::inspect as query;

/// A shared hold to be acquired: made by [`LockRequest::shared`].
///
/// Many hold a lock shared at once ("readers"), or one holds it for itself ("a writer"): the two exclude each other, over all processes.
/// The options of the request stay; [`owner`](LockRequest::owner) and [`linger`](LockRequest::linger) are refused.
///
/// Tasks of one process that ask with the same options have one lease together: the first one asks the server, the others join it without
/// a statement while no writer waits. When a writer waits, no new shared hold begins. The writer is next when the present ones have ended.
/// After the writer, shared holds begin for 120 ms even if writers wait, so that neither side starves the other.
///
/// Shared holds are not re-entrant. A task that holds the lock shared and asks for it again, or waits for a task that does, may wait for a writer
/// that waits for it, and so for ever: pass the guard on, or give the request a [`wait`](Self::wait). So does a task that holds the lock either way and
/// asks for it the other way.
///
/// A shared hold does not become an exclusive one: two that waited for each other's end would wait for ever. Release it, and acquire the
/// lock; what was read may have changed between. The other way goes without a gap: [`LockGuard::downgrade`].
///
/// ```no_run
/// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
/// let reading = locks.lock("catalog").shared().acquire().await?;
/// // … read …
/// reading.release().await?;
///
/// let writing = locks.lock("catalog").acquire().await?; // waits until nobody reads
/// // … write …
/// writing.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a request does nothing until it is acquired"]
pub struct SharedRequest {
    request: LockRequest,
}

impl SharedRequest {
    pub(super) fn new(request: LockRequest) -> Self {
        Self { request }
    }

    /// How long the lease lasts if it is not renewed: see [`LockRequest::ttl`]. Defaults to 30 s, or to what the client was built with; at
    /// least 50 ms.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self::new(self.request.ttl(ttl))
    }

    /// How long [`acquire`](Self::acquire) waits: see [`LockRequest::wait`]. By default it waits for the holder for as long as that takes.
    pub fn wait(self, wait: Duration) -> Self {
        Self::new(self.request.wait(wait))
    }

    /// What it is held for: see [`LockRequest::description`]. At most 255 characters. Defaults to nothing. Of tasks that have one lease
    /// together, that of the first one stands in the table.
    pub fn description(self, description: impl Into<String>) -> Self {
        Self::new(self.request.description(description))
    }

    /// Asks for a lease of its own, which no other task of this process has: for [`verify_in`](SharedGuard::verify_in) and
    /// [`release_in`](SharedGuard::release_in), which tie a lease to one transaction. Such a hold costs a packet of its own. Defaults to a lease
    /// that tasks have together; so do requests with a minimum or a longest hold, or without renewal.
    pub fn apart(self) -> Self {
        Self::new(self.request.apart())
    }

    /// Acquires a shared hold, and waits as long as [`wait`](Self::wait) says: while somebody holds the lock for itself, or waits to.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] when it was not to be had in time; [`Error::InvalidOption`] before anything is sent, of `owner` or `linger`, say;
    /// otherwise as [`LockRequest::acquire`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue; a grant that is on its way is released.
    pub async fn acquire(self) -> Result<SharedGuard, Error> {
        let wait = self.request.how_long();
        match self.send(wait).await? {
            Some(guard) => Ok(guard),
            // Only a request that does not wait ends without a guard.
            None => Err(Error::Closed),
        }
    }

    /// Acquires a shared hold if it is to be had now; `None` if somebody holds the lock for itself, or waits to.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// match locks.lock("catalog").shared().try_acquire().await? {
    ///     Some(reading) => reading.release().await?,
    ///     None => println!("somebody writes"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), but never [`Error::Timeout`]; [`Error::OutcomeUnknown`] if there was no answer in time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases a grant that is on its way.
    pub async fn try_acquire(self) -> Result<Option<SharedGuard>, Error> {
        self.send(Wait::Not).await
    }

    /// Acquires a shared hold, runs `work`, and releases: see [`LockRequest::run`].
    ///
    /// ```no_run
    /// # async fn read() {}
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// locks.lock("catalog").shared().run(async |_| read().await).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`LockRequest::run`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` and releases. A panic in `work` releases too.
    pub async fn run<F, O>(self, work: impl FnOnce(LeaseView) -> F) -> Result<O::Value, O::Error>
    where
        F: Future<Output = O>,
        O: WorkOutput,
    {
        let SharedGuard { guard } = self.acquire().await?;
        under(guard, work).await
    }

    /// The shared holds of the lock that run, in no promised order: one for each process, and for each task with a lease of its own.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// for hold in locks.lock("catalog").shared().holds().await? {
    ///     println!("{} reads, {}", hold.held_by, hold.description);
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
    pub async fn holds(&self) -> Result<Vec<LockInfo>, Error> {
        let name = self.request.name()?;
        let client = self.request.client();
        let sql = query::shared([name.as_str()]);
        inspect::read(&client.engine, sql, For::People).await
    }

    async fn send(self, wait: Wait) -> Result<Option<SharedGuard>, Error> {
        let name = self.request.name()?;
        let terms = self.request.shared_terms()?;
        let client = Arc::clone(self.request.client());
        let guard = client.acquire_shared(name, terms, wait).await?;
        Ok(guard.map(|guard| SharedGuard { guard }))
    }
}

impl fmt::Debug for SharedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedRequest").field(&self.request).finish()
    }
}

/// A shared hold that this task has, until the guard is released or dropped.
///
/// Dropping it releases it in the background: the drop neither blocks nor needs an await, and release-on-drop is not immediate.
/// [`release`](Self::release) waits for it. The lease ends with the last task of the process that has it.
#[must_use = "if unused, the hold is released at once"]
pub struct SharedGuard {
    guard: LockGuard,
}

impl SharedGuard {
    /// The lock's name.
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// The fencing token of the lease: above those of all exclusive holds before it, and below those of all after it. Tasks that have one
    /// lease together have one token. See [`LockGuard::fencing_token`].
    pub fn fencing_token(&self) -> u64 {
        self.guard.fencing_token()
    }

    /// Whether the lease is held, as far as this process can know: see [`LockGuard::is_held`].
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// How long the lease can be trusted without a renewal. Zero when it is not [held](Self::is_held).
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Resolves when the lease is lost: released by force, or not renewed in time. It becomes ready before anybody else can hold the lock for
    /// itself, unless that was freed by force, and not on a release.
    ///
    /// A task that is not polled does not notice it in time, nor does a process that is paused: then somebody else may hold the lock already.
    /// Against that, [`verify_in`](Self::verify_in) protects what is written in the database, and [`fencing_token`](Self::fencing_token) what is written elsewhere.
    ///
    /// ```no_run
    /// # async fn read() {}
    /// # async fn example(reading: tag_lock::SharedGuard) -> Result<(), tag_lock::Error> {
    /// tokio::select! {
    ///     () = reading.lost() => println!("stop: somebody may write"),
    ///     () = read() => reading.release().await?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// It can be dropped and called again.
    pub async fn lost(&self) {
        self.guard.lost().await;
    }

    /// A token that is cancelled when the lease is lost: see [`LockGuard::cancellation_token`].
    pub fn cancellation_token(&self) -> CancellationToken {
        self.guard.cancellation_token()
    }

    /// What of the guard can be shared.
    pub fn view(&self) -> LeaseView {
        self.guard.view()
    }

    /// Verifies, in a transaction of the caller's, that the hold is still there, and keeps it so until that ends: nobody holds the lock for
    /// itself before. See [`LockGuard::verify_in`]. For a hold [apart](SharedRequest::apart).
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient, pool: sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
    /// let reading = locks.lock("prices").shared().apart().acquire().await?;
    /// let mut tx = pool.begin().await?;
    /// reading.verify_in(&mut tx).await?;
    /// // … an order by the prices as they are …
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`LockGuard::verify_in`]; [`Error::InvalidOption`] of `apart` if other tasks may have the same lease.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: see [dropped calls in a transaction](crate::LockClient#dropped-calls-in-a-transaction).
    pub async fn verify_in(&self, connection: &mut MySqlConnection) -> Result<(), Error> {
        self.guard.verify_in(connection).await
    }

    /// Releases the hold when the caller's transaction commits, and not otherwise: see [`LockGuard::release_in`]. For a hold
    /// [apart](SharedRequest::apart).
    ///
    /// # Errors
    ///
    /// As [`verify_in`](Self::verify_in).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: see [dropped calls in a transaction](crate::LockClient#dropped-calls-in-a-transaction).
    pub async fn release_in(&self, connection: &mut MySqlConnection) -> Result<(), Error> {
        self.guard.release_in(connection).await
    }

    /// Releases the hold. If another task of this process has the same lease, that goes on, and no statement is sent; otherwise it waits until
    /// the release is certain.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`]: [`Error::LockLost`] if the hold was not ours any more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the release back.
    pub async fn release(self) -> Result<(), Error> {
        self.guard.release().await
    }
}

impl fmt::Debug for SharedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedGuard")
            .field("name", &self.name())
            .field("fencing_token", &self.fencing_token())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

impl LockGuard {
    /// Makes this hold a shared one, in one packet: nobody else holds the lock for itself between. Others may hold it shared from then on. Tasks of this
    /// process that ask with the same options join it, so it is none for transactions, as one that was asked for
    /// [`apart`](SharedRequest::apart) is. A minimum and a maximum hold begin anew.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let writing = locks.lock("catalog").acquire().await?;
    /// // … write …
    /// let reading = writing.downgrade().await?;
    /// // … read what was written, beside others …
    /// reading.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Then the lock is released. [`Error::LockLost`] if it was not ours any more; [`Error::InvalidOption`] for a re-entrant lock;
    /// [`Error::Busy`] while a transaction holds its row, after [`verify_in`](Self::verify_in), say; [those of any call](Error#errors-that-any-call-may-return).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the lock.
    pub async fn downgrade(self) -> Result<SharedGuard, Error> {
        if self.as_view().is_reentrant() {
            return Err(Error::InvalidOption {
                option: "owner",
                reason: "a re-entrant lock has no shared holds; release it instead".to_owned(),
            });
        }
        let in_use = Arc::clone(self.in_use());
        let turn = self.into_turn().ok_or(Error::Closed)?;
        let turn = in_use.locks().downgrade(turn).await?;
        turn.begin();
        let guard = LockGuard::new(in_use, turn);
        Ok(SharedGuard { guard })
    }
}
