//! Locks and counters inside a transaction of the caller's.
//!
//! What no lock beside the data can offer: the lock's row lives in the same database as what it
//! protects, so a holder can lock it in its own business transaction. While that is open nobody can be
//! granted the lock, whatever the clocks say; the transaction's commit is fenced.
//!
//! None of these calls takes a stripe or inserts a row in the caller's transaction: a missing row would
//! cost a gap lock under REPEATABLE READ, and deadlocks with it. A row is created, or marked as used,
//! through a lane before; a purge leaves such rows alone. One that is there and was used lately is not changed for that: to the
//! caller's snapshot it would be newer.
//!
//! Each call takes a connection that is in a transaction: a `&mut Transaction` of sqlx, or a connection on which the caller has
//! begun one by hand. Elsewhere it would hold nothing, so it is refused there: [`Error::NoTransaction`]. Its current database must be the
//! client's: [`Error::OtherDatabase`].
//!
//! An answer is believed only if the row explains it: see [`Change`]. Each call sets the connection's `LAST_INSERT_ID()`.

mod counter;
mod sending;
mod several;

use std::time::Duration;

use sqlx::mysql::MySqlConnection;

pub(crate) use self::sending::execute;
pub(crate) use self::several::{release_all_in, verify_all_in};

use crate::client::LockClient;
use crate::client::inner::Inner;
use crate::clock::{Moment, micros};
use crate::engine::request::Request;
use crate::error::Error;
use crate::lock::registry::InVain;
use crate::lock::{LeaseView, LockGuard};
use crate::name::Name;
use crate::sql::home::Home;
use crate::sql::operation::{Operation, Touch};
use crate::sql::reply::RowState;
use crate::sql::row::RowKey;
use crate::sql::transaction::{self, Change, Verdict};
use crate::timing::{WANT, WANT_AGAIN};
use crate::touched::YOUNG;

/// A lock that belongs to the caller's transaction: its commit, its rollback, or the end of its
/// connection frees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionLock {
    /// The lock's name.
    pub name: String,
    /// The fencing token of this hold: see [`LockGuard::fencing_token`].
    pub fencing_token: u64,
}

impl LockGuard {
    /// Verifies, in the caller's transaction, that the lock is still held, and keeps it so until that
    /// transaction ends: nobody else can be granted the lock before, so the commit is fenced. If the transaction commits, a
    /// lease that is renewed automatically has been renewed by it, too. One round trip.
    ///
    /// Works under every isolation level; call it first in the transaction ([`Error::StaleSnapshot`]). A lease that was
    /// used so is not passed on in memory any more.
    ///
    /// `connection` is a `&mut Transaction` of sqlx, or a connection in a transaction. Its `LAST_INSERT_ID()` changes, as with
    /// all of these calls.
    ///
    /// ```no_run
    /// # async fn example(guard: tag_lock::LockGuard, pool: sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// guard.verify_in(&mut tx).await?;
    /// sqlx::query("UPDATE invoice SET sent = 1 WHERE id = 7").execute(&mut *tx).await?;
    /// tx.commit().await?; // nobody else had the lock before this
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LockLost`]: roll back. [`Error::StaleSnapshot`] on MariaDB with
    /// `innodb_snapshot_isolation` under REPEATABLE READ, when the lease was renewed after the
    /// transaction's first read. [`Error::Busy`] if another transaction holds the lock's row.
    /// [`Error::Interrupted`] if the server undid the statement: nothing is known of the lock; roll back.
    /// [`Error::RolledBack`] if it undid the whole transaction. [`Error::NoTransaction`] if the connection is in none, and
    /// [`Error::OtherDatabase`] if its current database is not the client's: nothing was changed.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: see [dropped calls in a transaction](LockClient#dropped-calls-in-a-transaction).
    pub async fn verify_in(&self, connection: &mut MySqlConnection) -> Result<(), Error> {
        self.as_view().verify_in(connection).await
    }

    /// Releases the lock when the caller's transaction commits, and not otherwise: after a rollback the
    /// lease is held on and the guard can be used. One round trip.
    ///
    /// Keep the guard until the commit, and drop it then. The lease is renewed until the transaction has committed. From this call on the guard
    /// is not [held](Self::is_held); after a rollback it is held again, as soon as a renewal or [`verify_in`](Self::verify_in) has found that.
    ///
    /// [`release`](Self::release) after the commit answers `Ok`, or [`Error::LockLost`] if somebody else has acquired the lock by then.
    ///
    /// ```no_run
    /// # async fn example(guard: tag_lock::LockGuard, pool: sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// guard.release_in(&mut tx).await?; // first: it verifies the lease, too
    /// // … the application's own statements …
    /// tx.commit().await?;
    /// drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`verify_in`](Self::verify_in); [`Error::InvalidOption`] for a re-entrant lock: release its
    /// guard after the commit.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: see [dropped calls in a transaction](LockClient#dropped-calls-in-a-transaction).
    pub async fn release_in(&self, connection: &mut MySqlConnection) -> Result<(), Error> {
        let view = self.as_view();
        if view.is_reentrant() {
            // The row cannot tell an owner's levels apart: the guard's own release would take off another.
            return Err(Error::InvalidOption {
                option: "owner",
                reason: "a re-entrant lock cannot be released in a transaction; release its guard \
                         after the commit"
                    .to_owned(),
            });
        }
        let home = view.home().await?;
        let change = view.release(&home)?;
        let verdict = execute(connection, &home, &change, view.full_name()).await?;
        view.expect_ours(verdict).await?;
        view.release_is_open(Moment::now());
        Ok(())
    }
}

impl LeaseView {
    /// As [`LockGuard::verify_in`], for the work under a lock that was handed a view of its lease: in
    /// [`LockRequest::run`](crate::LockRequest::run), say.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient, pool: sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
    /// locks
    ///     .lock("invoice:7")
    ///     .run(|lease| async move {
    ///         let mut tx = pool.begin().await?;
    ///         lease.verify_in(&mut tx).await?;
    ///         // … the application's own statements …
    ///         tx.commit().await?;
    ///         Ok::<_, Box<dyn std::error::Error>>(())
    ///     })
    ///     .await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`LockGuard::verify_in`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: see [dropped calls in a transaction](LockClient#dropped-calls-in-a-transaction).
    pub async fn verify_in(&self, connection: &mut MySqlConnection) -> Result<(), Error> {
        let home = self.home().await?;
        let change = self.verification(&home)?;
        let asked = Moment::now();
        let verdict = execute(connection, &home, &change, self.full_name()).await?;
        self.expect_ours(verdict).await?;
        self.found_held(asked);
        Ok(())
    }

    /// What verifies it in a transaction.
    fn verification(&self, home: &Home) -> Result<Change, Error> {
        let lease = self.use_in_transaction()?;
        let most = lease.renewal(lease.terms.ttl);
        let most = most.ok_or_else(|| self.no_longer_ours())?;
        // A lease that is not renewed ends when it ends: its holder would not learn that it is longer.
        let ttl = if lease.terms.auto_renew { most } else { 0 };
        let grant = (lease.token, lease.fence);
        Ok(transaction::verify(home, &lease.key(), grant, ttl))
    }

    /// What releases it when a transaction commits.
    fn release(&self, home: &Home) -> Result<Change, Error> {
        let lease = self.use_in_transaction()?;
        let (grant, turn) = ((lease.token, lease.fence), lease.current_turn());
        let hold = lease.hold_left();
        Ok(transaction::release(home, &lease.key(), grant, turn, hold))
    }

    pub(crate) async fn expect_ours(&self, verdict: Verdict) -> Result<(), Error> {
        match verdict {
            Verdict::Changed(_) => Ok(()),
            Verdict::Refused => Err(self.no_longer_ours()),
            Verdict::Unknown if self.is_deleted().await => Err(self.no_longer_ours()),
            Verdict::Outside | Verdict::Elsewhere | Verdict::Unknown => Err(Error::Interrupted {
                name: self.name().to_owned(),
                source: None,
            }),
        }
    }
}

impl LockClient {
    /// Takes a lock for the rest of the caller's transaction, without a lease and without a ttl. It
    /// waits for a lease to end as long as the client's request timeout, and for another transaction
    /// as long as the connection's `innodb_lock_wait_timeout`. Call it first: what is read below is then current.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient, pool: sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// locks.lock_in(&mut tx, "account:7").await?; // first: what is read below is then current
    /// let balance: i64 = sqlx::query_scalar("SELECT balance FROM account WHERE id = 7").fetch_one(&mut *tx).await?;
    /// sqlx::query("UPDATE account SET balance = ? WHERE id = 7").bind(balance - 5).execute(&mut *tx).await?;
    /// tx.commit().await?; // frees the lock
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] when a lease holds the lock, or got it in the moment in which it was free;
    /// [`Error::Busy`] when a transaction holds it; [`Error::Interrupted`] when the server undid the statement: roll back,
    /// and run the transaction again. [`Error::NoTransaction`] if the connection is in none; [`Error::OtherDatabase`] if its
    /// current database is not the client's; [`Error::InvalidName`];
    /// [`Error::StaleSnapshot`]; [those of any call](Error#errors-that-any-call-may-return).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: see [dropped calls in a transaction](LockClient#dropped-calls-in-a-transaction).
    pub async fn lock_in(
        &self,
        connection: &mut MySqlConnection,
        name: &str,
    ) -> Result<TransactionLock, Error> {
        let key = RowKey::lock(Name::new(name)?);
        let home = self.inner().engine.home().await?;
        self.inner().locks.wake(&key.name).await;
        self.inner().touch(&key).await?;
        // A lease is waited for outside the transaction: a row that the transaction has locked could
        // not be renewed.
        let (has_wished, seen) = self.inner().wait_until_free(&key).await?;
        let lock = transaction::lock(&home, name, has_wished, seen);
        match self.inner().take(connection, lock, &key).await? {
            Some(lock) => Ok(lock),
            None => Err(self.inner().timed_out(&key.name, InVain::Held).await),
        }
    }

    /// As [`lock_in`](Self::lock_in), without waiting: `None` if a lease or a transaction holds the
    /// lock. Then roll back: under REPEATABLE READ the transaction keeps the row locked otherwise, and
    /// the holder cannot renew.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient, pool: sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// if locks.try_lock_in(&mut tx, "account:7").await?.is_none() {
    ///     tx.rollback().await?;
    ///     println!("somebody else is at it");
    /// } else {
    ///     // … the application's own statements …
    ///     tx.commit().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`lock_in`](Self::lock_in), but neither [`Error::Timeout`] nor [`Error::Busy`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: see [dropped calls in a transaction](LockClient#dropped-calls-in-a-transaction).
    pub async fn try_lock_in(
        &self,
        connection: &mut MySqlConnection,
        name: &str,
    ) -> Result<Option<TransactionLock>, Error> {
        let key = RowKey::lock(Name::new(name)?);
        let home = self.inner().engine.home().await?;
        self.inner().locks.wake(&key.name).await;
        self.inner().touch(&key).await?;
        let row = self.inner().look(&key).await?;
        if let Some(row) = &row
            && !self.inner().locks.opens(&key.name, row, false).await?
        {
            return Ok(None);
        }
        let lock = transaction::try_lock(&home, name, row.map(|row| row.fence));
        match self.inner().take(connection, lock, &key).await {
            Err(Error::Busy { .. }) => Ok(None),
            answer => answer,
        }
    }
}

impl Inner {
    async fn take(
        &self,
        connection: &mut MySqlConnection,
        change: Change,
        key: &RowKey,
    ) -> Result<Option<TransactionLock>, Error> {
        let home = self.engine.home().await?;
        match execute(connection, &home, &change, &key.name).await? {
            Verdict::Changed(fencing_token) => Ok(Some(TransactionLock {
                name: key.name.to_string(),
                fencing_token,
            })),
            Verdict::Refused => Ok(None),
            Verdict::Outside | Verdict::Elsewhere | Verdict::Unknown => Err(self.interrupted(key)),
        }
    }

    /// The server undid the statement, or the row is gone: then the next call makes it again.
    fn interrupted(&self, key: &RowKey) -> Error {
        self.touched.forget(key);
        Error::Interrupted {
            name: key.name.to_string(),
            source: None,
        }
    }

    /// The lock's row as it is.
    async fn look(&self, key: &RowKey) -> Result<Option<RowState>, Error> {
        let row = self.locks.look_at_lock(&key.name).await?;
        if row.is_none() {
            // Somebody deleted it, or a failover lost it: it is made again.
            self.touched.forget(key);
            self.touch(key).await?;
        }
        Ok(row)
    }

    /// Whether the row says that we wait: then our turn is the answer. And the row's fence when it was free.
    async fn wait_until_free(&self, key: &RowKey) -> Result<(bool, Option<u64>), Error> {
        let end = Moment::now().after(self.engine.request_limit());
        let mut pause = Duration::from_millis(1);
        let mut told: Option<Moment> = None;
        let mut fence = None;
        let mut waits = false;
        while let Some(row) = self.look(key).await? {
            // Who finds it free lets somebody go first who waits; who has done so, or found it held, waits as well.
            waits |= !row.is_free() || fence.is_some_and(|fence| fence != row.fence);
            fence = Some(row.fence);
            if self.locks.opens(&key.name, &row, waits).await? {
                break;
            }
            if end.has_passed() {
                return Err(self.timed_out(&key.name, InVain::Held).await);
            }
            // So that a process whose tasks pass the lock on in memory lets it go. A grant to somebody else answers the wish.
            let again = told.is_none_or(|told| told.after(WANT_AGAIN).has_passed());
            if again && waits {
                told = Some(Moment::now());
                self.locks.ask_for(&key.name, &row, WANT);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        Ok((told.is_some(), fence))
    }

    /// Makes sure that a row exists and that no purge takes it for a while.
    async fn touch(&self, key: &RowKey) -> Result<(), Error> {
        if self.touched.is_fresh(key) {
            return Ok(());
        }
        let sql = transaction::young(key, micros(YOUNG));
        if self.engine.query(sql).await?.is_empty() {
            self.engine
                .call(key.clone(), Request::Operation(Operation::Touch(Touch)))
                .await?;
        }
        self.touched.note(key);
        Ok(())
    }
}
