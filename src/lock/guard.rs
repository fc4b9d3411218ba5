//! A lock that is held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::registry::ending::TurnEnd;
use super::registry::in_use::InUse;
use super::registry::lease::Lease;
use super::registry::semaphore::Seat;
use super::registry::turn::{Part, Turn};
use super::registry::{Locks, keeper};
use crate::clock::{Moment, micros};
use crate::engine::outcome::Outcome;
use crate::engine::request::Request;
use crate::error::Error;
use crate::name::Name;
use crate::sql::home::Home;
use crate::sql::operation::{Operation, Renew};

/// A lock that this task holds, until the guard is released or dropped.
///
/// Dropping it releases the lock in the background: the drop neither blocks nor needs an await, and
/// release-on-drop is not immediate. [`release`](Self::release) waits for it and says whether the lock
/// was still held.
///
/// If it is dropped right before the process ends, the release may not be sent, and the lock stays taken for up to the ttl. Call
/// [`LockClient::close`](crate::LockClient::close) before `main` returns.
#[must_use = "if unused, the lock is released at once"]
pub struct LockGuard {
    turn: Option<Turn>,
    view: LeaseView,
    in_use: Arc<InUse>,
}

impl LockGuard {
    pub(crate) fn new(in_use: Arc<InUse>, turn: Turn) -> Self {
        Self {
            view: LeaseView::of(&turn),
            turn: Some(turn),
            in_use,
        }
    }

    fn locks(&self) -> &Arc<Locks> {
        self.in_use.locks()
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        self.view.name()
    }

    /// The fencing token of this hold: it rises with every hold of this name, in all processes, also
    /// across a purge, a restart, and a failover (an asynchronous one, if the new primary's clock is not
    /// behind). A store that remembers the highest token it saw, and refuses lower ones, cannot be written
    /// to by a holder whose lease has ended.
    ///
    /// ```no_run
    /// # async fn example(guard: tag_lock::LockGuard, pool: sqlx::MySqlPool) -> Result<(), sqlx::Error> {
    /// let token = guard.fencing_token();
    /// let written = sqlx::query("UPDATE report SET body = ?, token = ? WHERE id = 7 AND token <= ?")
    ///     .bind("…")
    ///     .bind(token)
    ///     .bind(token)
    ///     .execute(&pool)
    ///     .await?;
    /// assert_eq!(written.rows_affected(), 1, "a later holder has written already");
    /// # Ok(())
    /// # }
    /// ```
    pub fn fencing_token(&self) -> u64 {
        self.view.fence
    }

    /// Whether the lease is held, as far as this process can know: it was renewed in time, and no
    /// renewal found it gone. False from [`release_in`](Self::release_in) on, until it is known that its transaction was rolled
    /// back: the next renewal tells, or the next [`verify_in`](Self::verify_in).
    pub fn is_held(&self) -> bool {
        self.view.is_held()
    }

    /// How long the lease can be trusted without a renewal. Zero when it is not [held](Self::is_held).
    pub fn remaining(&self) -> Duration {
        self.view.remaining()
    }

    /// Resolves when the lease is lost: taken over, released by force, or not renewed in time.
    /// It becomes ready before anybody else can be granted the lock, unless that was freed by force, and not on a release.
    ///
    /// A task that is not polled does not notice it in time, nor does a process that is paused: then somebody else may hold the lock already.
    /// Against that, [`verify_in`](Self::verify_in) protects what is written in the database, and [`fencing_token`](Self::fencing_token) what is written elsewhere.
    ///
    /// ```no_run
    /// # async fn work() {}
    /// # async fn example(guard: tag_lock::LockGuard) -> Result<(), tag_lock::Error> {
    /// tokio::select! {
    ///     () = guard.lost() => println!("stop: somebody else may hold the lock"),
    ///     () = work() => guard.release().await?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// It can be dropped and called again.
    pub async fn lost(&self) {
        self.view.lost().await;
    }

    /// A token that is cancelled when the lease is lost, for handing on to tasks that work under the
    /// lock. It is not cancelled by a release. Each call gives one of its own: whoever cancels it tells only those who have it.
    ///
    /// ```no_run
    /// # async fn step() {}
    /// # async fn example(guard: tag_lock::LockGuard) {
    /// let lost = guard.cancellation_token();
    /// tokio::spawn(async move {
    ///     while !lost.is_cancelled() {
    ///         step().await;
    ///     }
    /// });
    /// # }
    /// ```
    pub fn cancellation_token(&self) -> CancellationToken {
        self.view.cancellation_token()
    }

    /// What of the guard can be shared.
    pub fn view(&self) -> LeaseView {
        self.view.clone()
    }

    /// Makes the lease last for at least `ttl` from now, or until the longest hold is reached
    /// ([`max_hold`](super::LockRequest::max_hold)). For leases without automatic renewal.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// use std::time::Duration;
    ///
    /// let guard = locks
    ///     .lock("report")
    ///     .ttl(Duration::from_secs(10))
    ///     .auto_renew(false)
    ///     .acquire()
    ///     .await?;
    /// // … it takes longer than expected …
    /// guard.extend(Duration::from_secs(60)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LockLost`] if it is not ours any more, or was lost before the answer came; [`Error::Busy`] while a transaction holds the lock's
    /// row (after [`verify_in`](Self::verify_in), say); [`Error::InvalidOption`] if `ttl` is zero or longer than ten
    /// years; [those of any call](Error#errors-that-any-call-may-return): then the lease is as it was, or longer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the extension back.
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        if ttl.is_zero() || ttl > crate::timing::MAX_DURATION {
            return Err(Error::InvalidOption {
                option: "ttl",
                reason: "use more than zero and at most ten years".to_owned(),
            });
        }
        let lease = &self.view.lease;
        let lost = || self.view.no_longer_ours();
        if !self.view.is_trusted() {
            return Err(lost());
        }
        let wanted = lease.renewal(ttl).ok_or_else(lost)?;
        let asked = Moment::now();
        let until = lease.level_until();
        let operation = Operation::Renew(Renew {
            token: lease.token,
            fence: lease.fence,
            ttl: wanted,
            until,
        });
        let key = lease.key();
        let result = self
            .locks()
            .engine
            .call(key, Request::Operation(operation))
            .await;
        let extended = match &result {
            Ok(answer) => match answer.outcome {
                // The row was skipped: its old deadline stands. Meanwhile is what the packet took.
                Outcome::Leased { remaining, .. }
                    if remaining.saturating_add(micros(Moment::now().since(asked))) < wanted =>
                {
                    Err(Error::Busy {
                        name: self.name().to_owned(),
                    })
                }
                Outcome::Leased { .. } => Ok(()),
                // Another renewal was sooner, and this one out of date: the lease is longer, and not by so much.
                _ if lease.level_until() > until => Err(Error::Busy {
                    name: self.name().to_owned(),
                }),
                _ => Err(lost()),
            },
            Err(error) => Err(error.clone()),
        };
        keeper::renewed(self.locks(), lease, (wanted, until), result);
        // The answer came when the lease had been given up: its signal has fired.
        if extended.is_ok() && !self.view.is_trusted() {
            return Err(lost());
        }
        extended
    }

    /// Releases the lock and waits until that is certain. If another task of this process waits for
    /// it, it may get the lock without a statement; and if the lease may [idle](super::LockRequest::linger), it does so without one.
    ///
    /// ```no_run
    /// # async fn example(guard: tag_lock::LockGuard) -> Result<(), tag_lock::Error> {
    /// use tag_lock::Error;
    ///
    /// match guard.release().await {
    ///     Ok(()) => println!("nobody else held it meanwhile"),
    ///     Err(Error::LockLost { name }) => println!("{name} was lost: undo or check the work"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LockLost`] if the lock was not ours any more: whatever it protected may have been
    /// touched by somebody else. The new holder's lock is left alone. At once if [`lost`](Self::lost) has said so.
    /// [`Error::OutcomeUnknown`] if that could not be found out in time; it still is in the background. [`Error::Busy`], at
    /// once, if a transaction in which [`verify_in`](Self::verify_in) was called is open: end that first. The lock is released
    /// when it has ended. [Those of any call](Error#errors-that-any-call-may-return): then the lock is free when its lease ends.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the release back.
    pub async fn release(self) -> Result<(), Error> {
        self.send_release().known().await
    }
}

impl LockGuard {
    /// Releases the lock, and leaves it to the caller to wait until that is certain.
    pub(super) fn send_release(mut self) -> Released {
        let end = match self.turn.take() {
            Some(turn) => {
                let last = turn.disarm();
                Locks::end_turn(self.locks(), &self.view.lease, last, true)
            }
            None => TurnEnd::Known(Err(Error::Closed)),
        };
        Released { guard: self, end }
    }

    /// Runs a task beside the client's own.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.locks().engine.runtime().spawn(task);
    }

    /// Takes the turn out; the lock is not released.
    pub(super) fn into_turn(mut self) -> Option<Turn> {
        self.turn.take()
    }

    pub(super) fn in_use(&self) -> &Arc<InUse> {
        &self.in_use
    }

    pub(crate) fn as_view(&self) -> &LeaseView {
        &self.view
    }
}

/// A lock that is being released.
pub(super) struct Released {
    guard: LockGuard,
    end: TurnEnd,
}

impl Released {
    /// Waits until it is certain.
    pub(super) async fn known(self) -> Result<(), Error> {
        let Self { guard, end } = self;
        match end {
            TurnEnd::Known(result) => result,
            TurnEnd::Sent(receiver) => {
                let lease = &guard.view.lease;
                guard.locks().until_released(lease, receiver).await
            }
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("name", &self.name())
            .field("fencing_token", &self.fencing_token())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

/// A view of a lease: whether it is held, what it is called, and [`verify_in`](Self::verify_in). It does not hold the lock.
#[derive(Clone)]
pub struct LeaseView {
    lease: Arc<Lease>,
    fence: u64,
    part: Option<Arc<Part>>,
    signal: CancellationToken,
}

impl LeaseView {
    pub(crate) fn of(turn: &Turn) -> Self {
        Self {
            lease: Arc::clone(&turn.lease),
            fence: turn.fence,
            part: turn.part.clone(),
            signal: turn.signal(),
        }
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        self.lease.name.as_str()
    }

    /// The fencing token: see [`LockGuard::fencing_token`].
    pub fn fencing_token(&self) -> u64 {
        self.fence
    }

    /// Whether the lease is held: see [`LockGuard::is_held`].
    pub fn is_held(&self) -> bool {
        self.is_trusted() && self.lease.is_held()
    }

    /// How long the lease can be trusted without a renewal. Zero when it is not [held](Self::is_held).
    pub fn remaining(&self) -> Duration {
        if self.is_held() {
            self.lease.trusted_for()
        } else {
            Duration::ZERO
        }
    }

    /// Resolves when the lease is lost: see [`LockGuard::lost`]. Never after a release.
    ///
    /// # Cancel safety
    ///
    /// It can be dropped and called again.
    pub async fn lost(&self) {
        loop {
            if !self.is_current() {
                // Released: it cannot be lost any more, unless it was before.
                return self.signal.cancelled().await;
            }
            let left = self.lease.trusted_for();
            if left.is_zero() {
                // The keeper says the same in a moment; nobody has to wait for it.
                match self.lease.locks.upgrade() {
                    Some(locks) => locks.lose(&self.lease),
                    None => drop(self.lease.lose()),
                }
                return;
            }
            tokio::select! {
                () = self.signal.cancelled() => return,
                // The clock that counts also runs while the machine sleeps; look at it at times.
                () = tokio::time::sleep(left.min(Moment::RECHECK)) => {}
            }
        }
    }

    /// The signal as a token: see [`LockGuard::cancellation_token`].
    pub fn cancellation_token(&self) -> CancellationToken {
        // The signal itself stays here: cancelling that would lose the lease.
        self.signal.child_token()
    }
}

impl LeaseView {
    /// Whether it is held, unless an open transaction that released it has committed.
    fn is_trusted(&self) -> bool {
        !self.signal.is_cancelled() && self.is_current() && self.lease.is_trusted()
    }

    /// Its holder has not released it.
    fn is_current(&self) -> bool {
        self.lease.current_turn() == self.fence
            && self.lease.idle_since().is_none()
            && !self.lease.has_ended()
            && !self.part.as_ref().is_some_and(|part| part.is_over())
    }

    /// The lock's name, as the server is told.
    pub(crate) fn full_name(&self) -> &Name {
        &self.lease.name
    }

    /// A transaction of the caller's, sent at `sent`, found it held.
    pub(crate) fn found_held(&self, sent: Moment) {
        self.lease.found_held(sent);
    }

    /// A transaction of the caller's has released it at `now`, and is open.
    pub(crate) fn release_is_open(&self, now: Moment) {
        self.lease.release_is_open(now);
    }

    /// Of a permit, which one it is.
    pub(crate) fn seat(&self) -> Option<Seat> {
        self.lease.seat.clone()
    }

    pub(crate) fn is_reentrant(&self) -> bool {
        self.lease.terms.owner.is_some()
    }

    /// The lease, marked as used inside a transaction; refused if it is not this holder's any more, or not its alone.
    pub(crate) fn use_in_transaction(&self) -> Result<&Arc<Lease>, Error> {
        if self.lease.is_joint() {
            return Err(Error::InvalidOption {
                option: "apart",
                reason: "other tasks of this process may have the same shared hold; ask for one of its own with \
                         `shared().apart()`"
                    .to_owned(),
            });
        }
        if self.lease.use_in_transaction(self.fence) && self.is_trusted() {
            Ok(&self.lease)
        } else {
            Err(self.no_longer_ours())
        }
    }

    /// Where the lock's row is.
    pub(crate) async fn home(&self) -> Result<Arc<Home>, Error> {
        let locks = self.lease.locks.upgrade().ok_or(Error::Closed)?;
        locks.engine.home().await
    }

    /// Whether the lock's row is known to be gone.
    pub(crate) async fn is_deleted(&self) -> bool {
        let Some(locks) = self.lease.locks.upgrade() else {
            return false;
        };
        let key = self.lease.key();
        let seen = locks.engine.look(vec![key]).await;
        seen.is_ok_and(|rows| rows == [None])
    }

    pub(crate) fn no_longer_ours(&self) -> Error {
        Error::LockLost {
            name: self.name().to_owned(),
        }
    }
}

impl fmt::Debug for LeaseView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseView")
            .field("name", &self.name())
            .field("fencing_token", &self.fence)
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}
