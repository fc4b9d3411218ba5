//! Asking for several locks at once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{LockAllGuard, names};
use crate::client::inner::Inner;
use crate::error::Error;
use crate::lock::LockRequest;
use crate::lock::terms::Wait;

/// Several locks to be acquired, all or none: built by [`LockClient::lock_all`](crate::LockClient::lock_all), sent by
/// [`acquire`](Self::acquire) or [`try_acquire`](Self::try_acquire).
///
/// It has 1 to 256 names, in any order; a name that is given twice counts once. One transaction of one round trip takes them all, or
/// changes nothing, so that two tasks that want the same locks in different orders cannot block each other.
///
/// These are the same locks that [`LockClient::lock`](crate::LockClient::lock) takes one by one. They do not pass on in memory: to the tasks
/// of this process, as to all others, each is held until it is released.
///
/// ```no_run
/// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
/// let accounts = locks.lock_all(["account:2", "account:1"]).acquire().await?;
/// // … move money from one to the other …
/// accounts.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a lock request does nothing until it is acquired"]
pub struct LockAllRequest {
    client: Arc<Inner>,
    names: Vec<String>,
    wait: Option<Duration>,
    /// What is asked for each of them.
    each: LockRequest,
}

impl LockAllRequest {
    pub(crate) fn new(client: Arc<Inner>, names: Vec<String>) -> Self {
        Self {
            each: LockRequest::new(Arc::clone(&client), "").apart(),
            client,
            names,
            wait: None,
        }
    }

    /// How long the leases last if they are not renewed: for so long the locks stay taken when their holder dies. Defaults to 30 s, or to
    /// what the client was built with; at least 50 ms. They are renewed as long as the guard lives, at a third of the ttl.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.each = self.each.ttl(ttl);
        self
    }

    /// How long [`acquire`](Self::acquire) waits for the locks. Defaults to waiting for ever. A wait that is shorter than an answer takes
    /// is one attempt.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// What the locks are held for: see [`LockRequest::description`]. At most 255 characters. Defaults to nothing.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.each = self.each.description(description);
        self
    }

    /// Acquires all locks, and waits for them as long as [`wait`](Self::wait) says.
    ///
    /// For the first second it holds nothing while it waits, and others who want only some of the locks may pass it. From then on it takes
    /// them in the order of their names, waits for each in its turn as [`LockRequest::acquire`] does, and holds what it has: so it comes
    /// to its end also where each of the locks is always wanted. All requests for several locks have the same order, so they never wait for
    /// each other in a circle. (A task that holds one lock and asks for others may still do so: ask for all of them at once.)
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// use std::time::Duration;
    /// use tag_lock::Error;
    ///
    /// let seats = locks.lock_all(["seat:14A", "seat:14B"]).wait(Duration::from_secs(2));
    /// match seats.acquire().await {
    ///     Ok(seats) => seats.release().await?,
    ///     Err(Error::Timeout { name, .. }) => println!("{name} is held, and none was taken"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] when not all were free in time: it names one that was not, and what was held by then is released.
    /// [`Error::LockLost`] if one of them was lost, freed by force say, while it waited for the next. [`Error::InvalidOption`] for no name or
    /// more than 256, and [`Error::InvalidName`], before anything is sent; [`Error::OutcomeUnknown`] if there was no answer in time: a grant
    /// that comes later is given back; [those of any call](Error#errors-that-any-call-may-return).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases what it holds, and a grant that is on its way.
    pub async fn acquire(self) -> Result<LockAllGuard, Error> {
        let wait = match self.wait {
            Some(wait) => Wait::For(wait),
            None => Wait::Forever,
        };
        match self.send(wait).await? {
            Some(guard) => Ok(guard),
            // Only a request that does not wait ends without a guard.
            None => Err(Error::Closed),
        }
    }

    /// Acquires all locks if all are free; `None`, and nothing is taken, if one of them is held, or somebody who waits has it next, or if
    /// others are at one of them again and again.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// match locks.lock_all(["account:1", "account:2"]).try_acquire().await? {
    ///     Some(accounts) => accounts.release().await?,
    ///     None => println!("somebody else is at one of them"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), but neither [`Error::Timeout`] nor [`Error::LockLost`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases a grant that is on its way.
    pub async fn try_acquire(self) -> Result<Option<LockAllGuard>, Error> {
        self.send(Wait::Not).await
    }

    async fn send(self, wait: Wait) -> Result<Option<LockAllGuard>, Error> {
        let names = names::ordered(self.names.iter().map(String::as_str))?;
        let terms = self.each.terms()?;
        let acquired = Box::pin(self.client.acquire_all(&names, &terms, wait)).await?;
        Ok(acquired.map(LockAllGuard::new))
    }
}

impl fmt::Debug for LockAllRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockAllRequest")
            .field("names", &self.names)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
