//! Several permits at once.
//!
//! Whoever takes several holds the semaphore's turnstile meanwhile, a row beside its slots: of two that held a part each, and waited for what the
//! other has, neither would ever go on. Single permits pass the turnstile by.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::mysql::MySqlConnection;
use tokio_util::sync::CancellationToken;

use super::{Semaphore, name};
use crate::clock::Moment;
use crate::error::Error;
use crate::lock::registry::semaphore;
use crate::lock::terms::Wait;
use crate::lock::{LockAllGuard, LockGuard, LockRequest};
use crate::mutant::{self, Mutant};
use crate::timing::ANSWER;

impl Semaphore {
    /// Acquires so many permits at once, and waits for all of them as long as [`wait`](Self::wait) says. If that ends before, it has none.
    ///
    /// For work that needs more than one place: a call that costs as much as three, a job that fills a machine. While it waits for the last ones it
    /// holds the first, and others that want several stand behind it; single permits are given to others in between, in their turn. A task
    /// that holds a permit already, and asks for more, can wait for ever for one that does the same: ask for all at once.
    ///
    /// ```no_run
    /// # async fn render() {}
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let cores = locks.semaphore("render-cores", 64);
    /// let eight = cores.acquire_many(8).await?;
    /// println!("renders on {:?}", eight.slots());
    /// render().await;
    /// eight.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); [`Error::InvalidOption`] of `count`, if it is not from 1 to the number of permits; [`Error::LockLost`] if one was
    /// lost while it waited for another: without [`auto_renew`](Self::auto_renew), say.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue, and gives back what it has.
    pub async fn acquire_many(&self, count: u32) -> Result<Permits, Error> {
        let wait = self.wait.map_or(Wait::Forever, Wait::For);
        // Only a request that does not wait ends without permits.
        self.take_many(count, wait).await?.ok_or(Error::Closed)
    }

    /// Acquires so many permits if they are free; `None` if they are not, or somebody else just takes several. Does not wait for a holder.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// match locks.semaphore("render-cores", 64).try_acquire_many(8).await? {
    ///     Some(eight) => eight.release().await?,
    ///     None => println!("fewer than eight are free"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Several permits are two requests, one after the other: for the right to take several, and for the permits. While the server does not
    /// answer, each may take as long as [a request may](crate::LockClientBuilder::request_timeout).
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many), but never [`Error::Timeout`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives back what it has.
    pub async fn try_acquire_many(&self, count: u32) -> Result<Option<Permits>, Error> {
        self.take_many(count, Wait::Not).await
    }

    async fn take_many(&self, count: u32, wait: Wait) -> Result<Option<Permits>, Error> {
        if !(1..=self.permits).contains(&count) {
            return Err(Error::InvalidOption {
                option: "count",
                reason: format!("{count} is not from 1 to {}; ask for as many", self.permits),
            });
        }
        let end = match wait {
            Wait::For(wait) => Some(Moment::now().after(wait)),
            Wait::Not | Wait::Forever => None,
        };
        let turnstile = if count > 1 {
            let turnstile = self.turnstile()?.send(wait).await?;
            if turnstile.is_none() {
                return Ok(None);
            }
            turnstile
        } else {
            // It never holds one while it waits for another.
            None
        };
        let wait = end.map_or(wait, |end| Wait::For(end.left()));
        let answers = join_all((0..count).map(|_| self.send(wait))).await;
        drop(turnstile);
        let mut guards = Vec::new();
        let (mut refused, mut failed) = (false, None);
        for answer in answers {
            match answer {
                Ok(Some(guard)) => guards.push(guard),
                Ok(None) => refused = true,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let all_are_held = guards.iter().all(LockGuard::is_held);
        let in_part = mutant::on(Mutant::PermitsInPart) && !guards.is_empty();
        if !refused && failed.is_none() && all_are_held || in_part {
            return Ok(Some(Permits::of(&self.name, guards)));
        }
        // They go on if they take longer.
        let given_back = LockAllGuard::new(guards).release();
        drop(tokio::time::timeout(ANSWER, given_back).await);
        match failed {
            Some(error) => Err(error),
            None if refused => Ok(None),
            None => Err(Error::LockLost {
                name: self.name.to_string(),
            }),
        }
    }

    /// What only one has who takes several. It is renewed, however long that takes; and if his process dies, the others wait no longer for
    /// it than for a permit of his, nor longer than for any lock.
    fn turnstile(&self) -> Result<Self, Error> {
        let row = name::turnstile(&self.slots.clone()?.name)?;
        let request = LockRequest::new(Arc::clone(&self.client), &self.name).linger(Duration::ZERO);
        let request = request.ttl(self.request.lasts().min(self.client.default_ttl));
        Ok(Self {
            request: request.description("takes several permits"),
            slots: Ok(Arc::new(semaphore::SlotRows {
                name: row.name.clone(),
                slots: vec![row],
            })),
            ..self.clone()
        })
    }
}

/// Several permits of one [`Semaphore`] that this task holds, until they are released or dropped.
///
/// Each of them has a lease of its own. If one is lost, the others are held on until the guard ends.
///
/// Dropping it releases all of them in the background: the drop neither blocks nor needs an await, and release-on-drop is not immediate.
/// [`release`](Self::release) waits for it and says whether all were still held.
#[must_use = "if unused, the permits are released at once"]
pub struct Permits {
    guard: LockAllGuard,
    semaphore: Arc<str>,
    slots: Vec<u32>,
}

impl Permits {
    fn of(semaphore: &Arc<str>, mut guards: Vec<LockGuard>) -> Self {
        let slot = |guard: &LockGuard| {
            let seat = guard.as_view().seat();
            seat.and_then(|seat| u32::try_from(seat.slot).ok())
        };
        // Transactions that verify several lock their rows in one order.
        guards.sort_by_key(slot);
        Self {
            slots: guards.iter().filter_map(slot).collect(),
            semaphore: Arc::clone(semaphore),
            guard: LockAllGuard::new(guards),
        }
    }

    /// The semaphore's name.
    pub fn name(&self) -> &str {
        &self.semaphore
    }

    /// Which permits they are, in ascending order: see [`Permit::slot`](crate::Permit::slot).
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// The slots with the fencing tokens of this hold: see [`Permit::fencing_token`](crate::Permit::fencing_token).
    pub fn fencing_tokens(&self) -> impl Iterator<Item = (u32, u64)> {
        let tokens = self.guard.fencing_tokens().map(|(_, token)| token);
        self.slots.iter().copied().zip(tokens)
    }

    /// Whether all leases are held, as far as this process can know: see [`LockGuard::is_held`](crate::LockGuard::is_held).
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// How long all leases can be trusted without a renewal. Zero when they are not all [held](Self::is_held).
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Resolves when one of the leases is lost, and not on a release.
    ///
    /// # Cancel safety
    ///
    /// It can be dropped and called again.
    pub async fn lost(&self) {
        self.guard.lost().await;
    }

    /// A token that is cancelled when one of the leases is lost: see [`LockAllGuard::cancellation_token`](crate::LockAllGuard::cancellation_token).
    pub fn cancellation_token(&self) -> CancellationToken {
        self.guard.cancellation_token()
    }

    /// Verifies, in a transaction of the caller's, that all permits are still held, and keeps them so until that ends: see
    /// [`LockAllGuard::verify_in`](crate::LockAllGuard::verify_in).
    ///
    /// # Errors
    ///
    /// As [`LockGuard::verify_in`](crate::LockGuard::verify_in).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: see [dropped calls in a transaction](crate::LockClient#dropped-calls-in-a-transaction).
    pub async fn verify_in(&self, connection: &mut MySqlConnection) -> Result<(), Error> {
        self.guard.verify_in(connection).await
    }

    /// Releases all permits and waits until that is certain.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`](crate::LockGuard::release): [`Error::LockLost`] if one was not ours any more. The others are released all the same.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the release back, once it was polled.
    pub async fn release(self) -> Result<(), Error> {
        self.guard.release().await
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits")
            .field("name", &self.name())
            .field("slots", &self.slots)
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}
