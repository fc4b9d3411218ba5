//! Semaphores: at most so many holders at once, over all processes.

mod guard;
mod many;
mod name;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

pub use self::guard::Permit;
pub use self::many::Permits;
use crate::client::inner::{Inner, Seeker};
use crate::clock::Moment;
use crate::error::Error;
use crate::inspect::{LockInfo, LockState};
use crate::lock::registry::{Entered, InVain, semaphore};
use crate::lock::terms::{Terms, Wait};
use crate::lock::{LockGuard, LockRequest};
use crate::metric;
use crate::mutant::{self, Mutant};
use crate::name::Name;
use crate::sql::inspect;
use crate::sql::row::Kind;
use crate::telemetry;

/// How long a look at the holders may take when a wait has ended in vain.
const LOOK: Duration = Duration::from_secs(1);

/// A semaphore by its name and its number of permits: made by [`LockClient::semaphore`](crate::LockClient::semaphore). It can be cloned and
/// kept, which costs less than to make it for each permit.
///
/// At most so many tasks hold a permit at once, over all processes: each has a lease of its own on one of the semaphore's slots, which are
/// numbered from 0. A permit is granted, renewed, lost and fenced as a lock is. A process that dies gives its permits back by their
/// [`ttl`](Self::ttl).
///
/// The number of permits is the caller's. Callers of one name that name different numbers share the slots that both know: a caller with 5
/// uses slots 0 to 4, and one with 10 uses 0 to 9, so there are never more holders than the highest number says. While a new number is
/// rolled out, both are in force; a permit beyond the lower number is held until it is released. [`list`](Self::list) shows the slots of this
/// number.
///
/// Its name has no `#`: the slots are called `api#0`, `api#1`, … in the table. A lock of the same name is something else.
///
/// ```no_run
/// # async fn call() {}
/// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
/// let api = locks.semaphore("api", 10);
/// let permit = api.acquire().await?; // waits while ten others call
/// call().await;
/// permit.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a semaphore does nothing until a permit is acquired"]
pub struct Semaphore {
    client: Arc<Inner>,
    request: LockRequest,
    name: Arc<str>,
    permits: u32,
    wait: Option<Duration>,
    /// Its rows, or why there are none.
    slots: Result<Arc<semaphore::SlotRows>, Error>,
}

impl Semaphore {
    pub(crate) fn new(client: Arc<Inner>, name: &str, permits: u32) -> Self {
        Self {
            request: LockRequest::new(Arc::clone(&client), name).linger(Duration::ZERO),
            client,
            name: name.into(),
            permits,
            wait: None,
            slots: slots(name, permits),
        }
    }

    /// How long the lease of a permit lasts if it is not renewed: for so long it stays taken when its holder dies. Defaults to 30 s, or to what
    /// the client was built with; at least 50 ms.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.request = self.request.ttl(ttl);
        self
    }

    /// How long [`acquire`](Self::acquire) waits for a permit. Defaults to waiting for ever. A wait that is shorter than an answer
    /// takes is one attempt; that has a second, and the look at who holds the permits has another one.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Whether a permit is renewed as long as it is held, at a third of the ttl. Defaults to true. Without it the lease ends
    /// after the ttl, unless [`Permit::extend`] is called.
    pub fn auto_renew(mut self, auto_renew: bool) -> Self {
        self.request = self.request.auto_renew(auto_renew);
        self
    }

    /// An upper bound of the whole hold of a permit: its lease is not renewed past it, and is lost then. Defaults to none.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.request = self.request.max_hold(max_hold);
        self
    }

    /// What a permit is held for: shown by [`list`](Self::list), and in the error of those who wait in vain. At most 255 characters. Defaults
    /// to nothing. While tasks of one process pass a permit on in memory, the description of the one that took it from the table stays.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.request = self.request.description(description);
        self
    }

    /// Acquires a permit, whichever becomes free first, and waits for it as long as [`wait`](Self::wait) says.
    ///
    /// Tasks of one client, its clones included, get permits in the order in which they asked, if they asked with the same options. Clients take
    /// turns: a client that waits writes its wish into slots that are taken (at most 32 after each look), and no other passes such a slot on in
    /// memory for longer than about two tenths of a second; a permit that is released is left for a moment to those who wait elsewhere. In
    /// which order waiting clients come is not promised. Waiting holds no connection, and costs a client one look a tick, however many of its
    /// tasks wait, and those wishes.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// use std::time::Duration;
    /// use tag_lock::Error;
    ///
    /// match locks.semaphore("api", 10).wait(Duration::from_secs(5)).acquire().await {
    ///     Ok(permit) => permit.release().await?,
    ///     Err(Error::Timeout { .. }) => println!("all ten are taken"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] when no permit was free in time: its holder is one of those who hold one; [`Error::Unreachable`] when the server did not
    /// answer in time; [`Error::InvalidName`], and [`Error::InvalidOption`] (of `permits`, if it is not from 1 to 1,024), before anything is sent;
    /// [those of any call](Error#errors-that-any-call-may-return).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue; a grant that is on its way is released.
    pub async fn acquire(&self) -> Result<Permit, Error> {
        let wait = self.wait.map_or(Wait::Forever, Wait::For);
        // Only a request that does not wait ends without a permit.
        Permit::of(self.send(wait).await?.ok_or(Error::Closed)?)
    }

    /// Acquires a permit if one is free; `None` if all are taken, or somebody who waits has the free ones next. Does not wait for
    /// a holder; a release of this process that is on its way is waited for.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// match locks.semaphore("api", 10).try_acquire().await? {
    ///     Some(permit) => permit.release().await?,
    ///     None => println!("ten others are at it"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), but never [`Error::Timeout`]; [`Error::OutcomeUnknown`] if there was no answer in time: a grant
    /// that comes later is given back.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases a grant that is on its way.
    pub async fn try_acquire(&self) -> Result<Option<Permit>, Error> {
        self.send(Wait::Not).await?.map(Permit::of).transpose()
    }

    /// The permits that are taken, by their slots. They are called `semaphore#slot`.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// for permit in locks.semaphore("api", 10).list().await? {
    ///     println!("{} by {}, {}", permit.name, permit.held_by, permit.description);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::InvalidOption`]; [those of any call](Error#errors-that-any-call-may-return).
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn list(&self) -> Result<Vec<LockInfo>, Error> {
        let semaphore = self.slots.clone()?;
        let mut taken = Vec::new();
        let mut rest = semaphore.slots.as_slice();
        while !rest.is_empty() {
            let fitting = inspect::fitting(rest.iter().map(|row| row.name.as_str()));
            let (slots, behind) = rest.split_at(fitting);
            rest = behind;
            let names = slots.iter().map(|row| row.name.as_str());
            taken.extend(self.client.show(inspect::many(Kind::Permit, names)).await?);
        }
        taken.retain(|info| info.state != LockState::Free);
        taken.sort_by_key(|info| name::slot_of(&info.name));
        Ok(taken)
    }

    /// Frees a slot, whoever holds it: for operators. Whether it was taken. Its holder is told as by
    /// [`LockClient::force_release`](crate::LockClient::force_release).
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let freed = locks.semaphore("api", 10).force_release(3).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] of `slot` if there is no such slot; [`Error::Busy`] while a transaction holds its row; others as
    /// [`list`](Self::list).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the release back.
    pub async fn force_release(&self, slot: u32) -> Result<bool, Error> {
        let semaphore = self.slots.clone()?;
        let row = usize::try_from(slot).ok();
        let Some(row) = row.and_then(|slot| semaphore.slots.get(slot)) else {
            return Err(Error::InvalidOption {
                option: "slot",
                reason: format!("there is no slot {slot} of {}", self.permits),
            });
        };
        self.client.force_release(row.clone()).await
    }

    async fn send(&self, wait: Wait) -> Result<Option<LockGuard>, Error> {
        let semaphore = self.slots.clone()?;
        let terms = self.request.terms()?;
        let start = Moment::now();
        let waiting = metric::Waiting::begin();
        let acquired = self.take(&semaphore, terms, wait, start).await?;
        waiting.end();
        match acquired {
            Ok(guard) => {
                telemetry::acquired(&semaphore.name, guard.fencing_token(), start);
                Ok(Some(guard))
            }
            Err(why) => {
                telemetry::refused(&semaphore.name, start);
                match wait {
                    Wait::Not => Ok(None),
                    Wait::For(_) | Wait::Forever => {
                        Err(Box::pin(self.in_vain(&semaphore, why)).await)
                    }
                }
            }
        }
    }

    async fn take(
        &self,
        semaphore: &Arc<semaphore::SlotRows>,
        terms: Terms,
        wait: Wait,
        start: Moment,
    ) -> Result<Result<LockGuard, InVain>, Error> {
        let locks = &self.client.locks;
        let span = telemetry::acquire(&semaphore.name);
        let entered = span.in_scope(|| locks.enter_semaphore(semaphore, terms, wait, start))?;
        let turn = match entered {
            Entered::Taken(turn) => Ok(turn),
            Entered::Refused => Err(InVain::Held),
            Entered::Waits(ticket) => {
                let answer = pin!(ticket.wait().instrument(span));
                self.client.engine.driven(answer).await?
            }
        };
        Ok(turn.map(|turn| {
            turn.begin();
            LockGuard::new(Arc::clone(&self.client.in_use), turn)
        }))
    }

    /// The error of a wait in vain.
    async fn in_vain(&self, semaphore: &semaphore::SlotRows, why: InVain) -> Error {
        if why != InVain::NoAnswer {
            return self.timed_out(why).await;
        }
        let me = Seeker {
            client: self.client.locks.client(),
            shares: false,
        };
        let look = async {
            let slots = match self.client.engine.look(semaphore.slots.clone()).await {
                Ok(slots) => slots,
                Err(error) => return error,
            };
            let kept_out = |slot: &Option<_>| slot.as_ref().is_some_and(|row| me.is_kept_out(row));
            if slots.iter().all(kept_out) {
                self.timed_out(InVain::Held).await
            } else {
                // Not all were seen to be taken.
                Error::no_answer()
            }
        };
        let told = tokio::time::timeout(LOOK, look).await;
        told.unwrap_or_else(|_| Error::no_answer())
    }

    /// The error of a wait for permits that others had, or of which there was no news: whoever's lease has the least left is worth a look.
    async fn timed_out(&self, why: InVain) -> Error {
        let look = tokio::time::timeout(LOOK, self.list()).await;
        let info = match (look, why) {
            (Ok(Ok(taken)), _) => taken.into_iter().min_by_key(|info| info.remaining),
            (_, InVain::Held) => None,
            (Ok(Err(error)), _) => return error,
            (Err(_), _) => return Error::no_answer(),
        };
        Error::Timeout {
            name: self.name.to_string(),
            holder: info.as_ref().map(LockInfo::holder),
            remaining: info.map(|info| info.remaining),
        }
    }
}

/// The rows of a semaphore.
fn slots(name: &str, permits: u32) -> Result<Arc<semaphore::SlotRows>, Error> {
    let permits = name::checked_number(permits)? + u32::from(mutant::on(Mutant::SlotBeyond));
    let name: Name = name::checked(name)?;
    let slots: Result<Vec<_>, Error> = (0..permits).map(|slot| name::row(&name, slot)).collect();
    Ok(Arc::new(semaphore::SlotRows {
        slots: slots?,
        name,
    }))
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name)
            .field("permits", &self.permits)
            .finish_non_exhaustive()
    }
}
