//! Asking for a lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::guard::{LeaseView, LockGuard};
use super::shared::SharedRequest;
use super::terms::{Terms, Wait};
use super::work::{WorkOutput, under};
use crate::client::inner::Inner;
use crate::error::Error;
use crate::name::Name;
use crate::timing::MAX_DURATION;
use crate::token::Token;

/// The longest description, in characters: the width of its column.
pub(crate) const MAX_DESCRIPTION: usize = 255;
/// A shorter lease could not be told from a slow packet.
pub(crate) const MIN_TTL: Duration = Duration::from_millis(50);

/// A lock to be acquired: built by [`LockClient::lock`](crate::LockClient::lock), sent by [`acquire`](Self::acquire),
/// [`try_acquire`](Self::try_acquire), [`run`](Self::run) or [`try_run`](Self::try_run).
///
/// It has the client in it: it can be cloned, kept in a struct, and handed to another task.
///
/// ```no_run
/// use tag_lock::{LockClient, LockRequest};
///
/// struct Invoices {
///     turn: LockRequest,
/// }
///
/// impl Invoices {
///     fn new(locks: &LockClient) -> Self {
///         Self { turn: locks.lock("invoices").description("invoices") }
///     }
///
///     async fn send(&self) -> Result<(), tag_lock::Error> {
///         let guard = self.turn.clone().acquire().await?;
///         // … the work …
///         guard.release().await
///     }
/// }
/// ```
#[derive(Clone)]
#[must_use = "a lock request does nothing until it is acquired"]
pub struct LockRequest {
    client: Arc<Inner>,
    name: Arc<str>,
    ttl: Duration,
    wait: Option<Duration>,
    auto_renew: bool,
    passes: bool,
    hold_at_least: Duration,
    max_hold: Option<Duration>,
    linger: Option<Duration>,
    description: Arc<str>,
    owner: Option<String>,
}

impl LockRequest {
    pub(crate) fn new(client: Arc<Inner>, name: &str) -> Self {
        Self {
            name: name.into(),
            ttl: client.default_ttl,
            linger: None,
            client,
            wait: None,
            auto_renew: true,
            passes: true,
            hold_at_least: Duration::ZERO,
            max_hold: None,
            description: Arc::default(),
            owner: None,
        }
    }

    /// How long the lease lasts if it is not renewed: for so long the lock stays taken when its
    /// holder dies ([`hold_at_least`](Self::hold_at_least), if that is longer). Defaults to 30 s, or to
    /// what the client was built with; at least 50 ms.
    ///
    /// On a server that fails over automatically, make it longer than a failover takes.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// The ttl that was asked for.
    pub(crate) fn lasts(&self) -> Duration {
        self.ttl
    }

    /// How long [`acquire`](Self::acquire) waits for the lock. By default it waits for the holder for as long as that takes. A wait that is shorter
    /// than an answer takes is one attempt; that has a second, and the look at who holds the lock has another one.
    ///
    /// It does not wait for the server for so long. If the server cannot be reached when the lock is asked for, the call ends with
    /// [`Error::Unreachable`] after the [request timeout](crate::LockClientBuilder::request_timeout), 10 s by default. A task that waits already,
    /// for a lock that was seen held by another process, waits through an outage; behind a holder of its own process it
    /// ends with that error if the holder loses the lock in the outage.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Whether the lease is renewed as long as the guard lives, at a third of the ttl. Defaults to
    /// true. Without it the lease ends after the ttl, unless [`LockGuard::extend`] is called.
    pub fn auto_renew(mut self, auto_renew: bool) -> Self {
        self.auto_renew = auto_renew;
        self
    }

    /// An upper bound of the whole hold: the lease is not renewed past it, and is lost then.
    /// Defaults to none.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// use std::time::Duration;
    ///
    /// // Renewed for an hour at most; in any case free 30 s after its holder has died.
    /// let guard = locks
    ///     .lock("report")
    ///     .ttl(Duration::from_secs(30))
    ///     .max_hold(Duration::from_secs(3600))
    ///     .acquire()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// The lock stays taken for at least this long after the grant, even if it is released before:
    /// a job that many machines start at about the same time then runs once. Defaults to zero.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// use std::time::Duration;
    ///
    /// let request = locks.lock("send_invoices").hold_at_least(Duration::from_secs(60));
    /// if let Some(guard) = request.try_acquire().await? {
    ///     // … the job …
    ///     guard.release().await?; // taken for the rest of the minute
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn hold_at_least(mut self, hold_at_least: Duration) -> Self {
        self.hold_at_least = hold_at_least;
        self
    }

    /// How long a released lock idles: it stays with this process, still taken for all others, and the next task of this process that asks
    /// for it on the same terms has it without a statement. Zero: not at all. Defaults to what the client was built with
    /// ([`LockClientBuilder::linger`](crate::LockClientBuilder::linger)), which by default is zero.
    ///
    /// Another process that waits for the lock rings for it, and has it within milliseconds; but its [`try_acquire`](Self::try_acquire)
    /// may say `None` of a lock that only idles. A process that ends without [`close`](crate::LockClient::close), by a crash or by the end of
    /// `main`, leaves what idles taken until the leases end. A lease that was used
    /// in a transaction ([`LeaseView::verify_in`]) does not idle, nor does one that is wanted.
    ///
    /// [`LockGuard::release`] asks nobody then: that the lock was freed by force a moment ago is not told. A lease that was freed by force while it
    /// idled may be taken again for a moment, until the client has heard of it, as one that is held then is held on.
    ///
    /// It is for servers nearby: where an answer takes more than about 40 ms no lease idles.
    ///
    /// A lock with an [`owner`](Self::owner), with [`hold_at_least`](Self::hold_at_least) or [`max_hold`](Self::max_hold), or with
    /// [`auto_renew(false)`](Self::auto_renew) does not idle: to ask for that is [`Error::InvalidOption`] of `linger`. So it is for a shared hold.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// use std::time::Duration;
    ///
    /// let customer = locks.lock("customer:7").linger(Duration::from_secs(5));
    /// for _order in 0..100 {
    ///     let guard = customer.clone().acquire().await?; // the first one asks the server
    ///     guard.release().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = Some(linger);
        self
    }

    /// What the lock is held for: shown by [`LockClient::inspect`](crate::LockClient::inspect), and in the error of those who
    /// wait in vain. At most 255 characters. Defaults to nothing. While tasks of one process pass the lock on in memory, the
    /// description of the one that took it from the table stays.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into().into();
        self
    }

    /// Makes the lock re-entrant: whoever names the same owner id, in this process or in another,
    /// acquires it again while it is held; it is free after as many releases.
    ///
    /// All levels share one fencing token, and the lock lasts as long as any of them asks for. Each level has a lease of its own, no shorter
    /// than those that it found: one that is not renewed, since its process died, is counted no more once that has ended, or, while
    /// others of the owner renew theirs, within another of their ttls.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let outer = locks.lock("account:7").owner("transfer 42").acquire().await?;
    /// let inner = locks.lock("account:7").owner("transfer 42").acquire().await?;
    /// inner.release().await?; // still held
    /// outer.release().await?; // free
    /// # Ok(())
    /// # }
    /// ```
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Asks for a shared hold: many hold the lock shared at once, or one holds it for itself. See [`SharedRequest`].
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let reading = locks.lock("catalog").shared().acquire().await?;
    /// // … read; nobody who acquired the lock for itself writes meanwhile …
    /// reading.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn shared(self) -> SharedRequest {
        SharedRequest::new(self)
    }

    /// Acquires the lock, and waits for it as long as [`wait`](Self::wait) says. Tasks of one
    /// client, its clones included, get the lock in the order in which they asked; only an owner that holds it already goes past them.
    /// Requests for several locks ([`LockClient::lock_all`](crate::LockClient::lock_all)) and transactions ([`LockClient::lock_in`](crate::LockClient::lock_in)) stand beside this order.
    /// Clients take turns among each other, in no promised order. Waiting holds no connection.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// use std::time::Duration;
    /// use tag_lock::Error;
    ///
    /// match locks.lock("sale_invite").wait(Duration::from_secs(5)).acquire().await {
    ///     Ok(guard) => guard.release().await?,
    ///     Err(Error::Timeout { holder, .. }) => println!("held by {holder:?}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] and [`Error::InvalidOption`] before anything is sent. [`Error::Timeout`] when the lock was seen held and was not free
    /// in time. [`Error::Unreachable`] when the server did not answer in time: also without a [`wait`](Self::wait), after the request timeout.
    /// [`Error::Closed`] when the client is closed meanwhile. [Those of any call](Error#errors-that-any-call-may-return):
    /// [`Error::OutcomeUnknown`], say, when the connection broke and the server stayed away.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue; a grant that is on its way is released.
    pub async fn acquire(self) -> Result<LockGuard, Error> {
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

    /// Acquires the lock if it is free; `None` if it is held, or somebody who waits has it next. Does not wait for its holder; a
    /// release of this process that is on its way is waited for, and so is the answer to another attempt of this process.
    /// Only an [`owner`](Self::owner) asks beside that attempt, since it may hold the lock: if the lock comes free just then, it has it before those
    /// that wait in this process.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// match locks.lock("sale_invite").try_acquire().await? {
    ///     Some(guard) => guard.release().await?,
    ///     None => println!("somebody else is at it"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), but never [`Error::Timeout`]; [`Error::OutcomeUnknown`] if there was no answer in
    /// time, and [`Error::Unreachable`] if the lease was over when its grant was heard of: either is given back.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases a grant that is on its way.
    pub async fn try_acquire(self) -> Result<Option<LockGuard>, Error> {
        self.send(Wait::Not).await
    }

    /// Acquires the lock, runs `work`, and releases. When the lease is lost, `work` is cancelled at
    /// its next await. The result is one: `work` answers `()`, or a `Result` whose error can be made from an
    /// [`Error`]; see [`WorkOutput`].
    ///
    /// `work` is given a view of the lease, which [verifies](LeaseView::verify_in) inside of its transactions.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let sent = locks
    ///     .lock("send_invoices")
    ///     .run(|lease| async move {
    ///         println!("sending under fencing token {}", lease.fencing_token());
    ///         Ok::<_, tag_lock::Error>(42)
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// That of `work`; [`Error::LockLost`] if the lease was lost before `work` ended or before it was released;
    /// otherwise as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` and releases the lock. A panic in `work` releases it too.
    pub async fn run<F, O>(self, work: impl FnOnce(LeaseView) -> F) -> Result<O::Value, O::Error>
    where
        F: Future<Output = O>,
        O: WorkOutput,
    {
        let guard = self.acquire().await?;
        under(guard, work).await
    }

    /// As [`run`](Self::run) if the lock is free; `None`, and `work` does not run, if it is held elsewhere.
    ///
    /// With [`hold_at_least`](Self::hold_at_least) for a job that many machines start and one runs:
    ///
    /// ```no_run
    /// # async fn send_invoices() {}
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// use std::time::Duration;
    ///
    /// let job = locks.lock("send_invoices").hold_at_least(Duration::from_secs(60));
    /// if job.try_run(|_| send_invoices()).await?.is_none() {
    ///     println!("another machine does it, or did it within the last minute");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// That of `work`; [`Error::LockLost`] as in [`run`](Self::run); otherwise as [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn try_run<F, O>(
        self,
        work: impl FnOnce(LeaseView) -> F,
    ) -> Result<Option<O::Value>, O::Error>
    where
        F: Future<Output = O>,
        O: WorkOutput,
    {
        match self.try_acquire().await? {
            Some(guard) => under(guard, work).await.map(Some),
            None => Ok(None),
        }
    }

    /// Never passes on in memory: each hold is a grant of its own.
    pub(crate) fn apart(mut self) -> Self {
        self.passes = false;
        self
    }

    pub(crate) async fn send(&self, wait: Wait) -> Result<Option<LockGuard>, Error> {
        let name = Name::of(Arc::clone(&self.name))?;
        let terms = self.terms()?;
        self.client.acquire(&name, terms, wait).await
    }

    pub(super) fn client(&self) -> &Arc<Inner> {
        &self.client
    }

    pub(super) fn name(&self) -> Result<Name, Error> {
        Name::of(Arc::clone(&self.name))
    }

    pub(super) fn how_long(&self) -> Wait {
        self.wait.map_or(Wait::Forever, Wait::For)
    }

    /// The terms of a shared hold.
    pub(super) fn shared_terms(&self) -> Result<Terms, Error> {
        let invalid = |option, reason: &str| {
            let reason = reason.to_owned();
            Err(Error::InvalidOption { option, reason })
        };
        if self.owner.is_some() {
            return invalid(
                "owner",
                "a shared hold has none: leave it out, or acquire the lock for itself",
            );
        }
        if self.linger.is_some_and(|linger| !linger.is_zero()) {
            return invalid("linger", "a shared hold does not idle: leave it out");
        }
        let terms = self.terms()?;
        Ok(Terms {
            linger: Duration::ZERO,
            ..terms
        })
    }

    /// Checks the options against each other.
    pub(crate) fn terms(&self) -> Result<Terms, Error> {
        let invalid = |option, reason: String| Err(Error::InvalidOption { option, reason });
        if self.ttl < MIN_TTL {
            return invalid(
                "ttl",
                format!("{:?} is too short; use at least {MIN_TTL:?}", self.ttl),
            );
        }
        let linger = self.linger.unwrap_or(self.client.linger);
        for (option, value) in [
            ("ttl", self.ttl),
            ("hold_at_least", self.hold_at_least),
            ("linger", linger),
        ] {
            if value > MAX_DURATION {
                return invalid(option, format!("{value:?} is longer than {MAX_DURATION:?}"));
            }
        }
        if let Some(max_hold) = self.max_hold
            && (max_hold < self.hold_at_least || max_hold < MIN_TTL)
        {
            return invalid(
                "max_hold",
                format!("{max_hold:?} is shorter than hold_at_least, or than {MIN_TTL:?}"),
            );
        }
        if self.description.chars().count() > MAX_DESCRIPTION {
            return invalid(
                "description",
                format!("it is longer than {MAX_DESCRIPTION} characters; shorten it"),
            );
        }
        if self.owner.is_some() && !self.hold_at_least.is_zero() {
            return invalid(
                "hold_at_least",
                "a re-entrant lock has none: its levels end one by one".to_owned(),
            );
        }
        if self.linger.is_some_and(|linger| !linger.is_zero())
            && (self.owner.is_some()
                || !self.auto_renew
                || self.max_hold.is_some()
                || !self.hold_at_least.is_zero())
        {
            return invalid(
                "linger",
                "a lock with an owner, a minimum or a longest hold, or without renewal does not idle"
                    .to_owned(),
            );
        }
        if self.owner.as_deref() == Some("") {
            return invalid("owner", "it is empty; name one".to_owned());
        }
        Ok(Terms {
            ttl: self.ttl,
            auto_renew: self.auto_renew,
            passes: self.passes,
            hold_at_least: self.hold_at_least,
            max_hold: self.max_hold,
            linger,
            description: Arc::clone(&self.description),
            owner: self.owner.as_deref().map(Token::of_text),
        })
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the owner: whoever knows it can enter the lock.
        f.debug_struct("LockRequest")
            .field("name", &self.name)
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
