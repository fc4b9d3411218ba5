//! A permit that is held.

use std::fmt;
use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::lock::registry::semaphore::Seat;
use crate::lock::{LeaseView, LockGuard};
use crate::name::Name;

/// A permit that this task holds, until it is released or dropped: a lease on one slot of a [`Semaphore`](crate::Semaphore).
///
/// Dropping it releases it in the background: the drop neither blocks nor needs an await, and release-on-drop is not immediate.
/// [`release`](Self::release) waits for it and says whether the permit was still held.
#[must_use = "if unused, the permit is released at once"]
pub struct Permit {
    guard: LockGuard,
    semaphore: Name,
    slot: u32,
}

impl Permit {
    /// Of the guard of a slot.
    pub(super) fn of(guard: LockGuard) -> Result<Self, Error> {
        let Seat { semaphore, slot } = guard.as_view().seat().ok_or(Error::Closed)?;
        Ok(Self {
            semaphore: semaphore.name.clone(),
            slot: u32::try_from(slot).map_err(|_| Error::Closed)?,
            guard,
        })
    }

    /// The semaphore's name.
    pub fn name(&self) -> &str {
        self.semaphore.as_str()
    }

    /// Which permit it is: a number below the number of permits, which no other holder has while the lease is [held](Self::is_held). Use
    /// it as the id of a worker, or to name what only so many may have: a port, a directory, a shard.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let permit = locks.semaphore("worker", 64).acquire().await?;
    /// println!("this is worker {} of 64", permit.slot());
    /// # Ok(())
    /// # }
    /// ```
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// The fencing token of this hold: it rises with every hold of this [slot](Self::slot), in all processes. Tokens of two slots say nothing of each
    /// other. See [`LockGuard::fencing_token`].
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

    /// Resolves when the lease is lost: released by force, or not renewed in time. It becomes ready before anybody else can be granted
    /// this slot, unless that was freed by force, and not on a release.
    ///
    /// A task that is not polled does not notice it in time, nor does a process that is paused: then somebody else may have the slot already.
    /// Against that, [`verify_in`](Self::verify_in) protects what is written in the database, and [`fencing_token`](Self::fencing_token) what is written elsewhere.
    ///
    /// ```no_run
    /// # async fn call() {}
    /// # async fn example(permit: tag_lock::Permit) -> Result<(), tag_lock::Error> {
    /// tokio::select! {
    ///     () = permit.lost() => println!("stop: somebody else may have the slot"),
    ///     () = call() => permit.release().await?,
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

    /// A token that is cancelled when the lease is lost, for handing on to tasks: see [`LockGuard::cancellation_token`].
    pub fn cancellation_token(&self) -> CancellationToken {
        self.guard.cancellation_token()
    }

    /// What of the permit can be shared. It is called `semaphore#slot`.
    pub fn view(&self) -> LeaseView {
        self.guard.view()
    }

    /// Makes the lease last for at least `ttl` from now: see [`LockGuard::extend`]. For permits without automatic renewal.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::extend`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the extension back.
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        self.guard.extend(ttl).await
    }

    /// Verifies, in a transaction of the caller's, that the permit is still held, and keeps it so until that ends: see
    /// [`LockGuard::verify_in`].
    ///
    /// ```no_run
    /// # async fn example(permit: tag_lock::Permit, pool: sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// permit.verify_in(&mut tx).await?;
    /// sqlx::query("UPDATE shard SET rows_done = rows_done + 1 WHERE id = ?")
    ///     .bind(permit.slot())
    ///     .execute(&mut *tx)
    ///     .await?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`LockGuard::verify_in`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: see [dropped calls in a transaction](crate::LockClient#dropped-calls-in-a-transaction).
    pub async fn verify_in(&self, connection: &mut MySqlConnection) -> Result<(), Error> {
        self.guard.verify_in(connection).await
    }

    /// Releases the permit and waits until that is certain. If another task of this process waits for one, it may get this one without a
    /// statement.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`]: [`Error::LockLost`] if the permit was not ours any more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the release back.
    pub async fn release(self) -> Result<(), Error> {
        self.guard.release().await
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("name", &self.name())
            .field("slot", &self.slot)
            .field("fencing_token", &self.fencing_token())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}
