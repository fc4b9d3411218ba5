//! The client: where locks and counters come from.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;
use tracing::Instrument;

use crate::clock::Moment;
use crate::counter::Counter;
use crate::engine::outcome::Outcome;
use crate::engine::request::Request;
use crate::engine::session::Session;
use crate::engine::{Engine, EngineOptions};
use crate::error::Error;
use crate::inspect::{LockInfo, LockState};
use crate::lock::registry::{Locks, Wait};
use crate::lock::{LockGuard, LockRequest, Terms};
use crate::name::Name;
use crate::sql::inspect;
use crate::sql::operation::{ForceRelease, Operation};
use crate::sql::reply::FREE;
use crate::sql::row::RowKey;
use crate::sql::session::Commit;
use crate::telemetry;
use crate::token::Token;
use crate::touched::Touched;

/// Nothing lasts longer: an interval that leaves the calendar would be NULL.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(10 * 365 * 86_400);
/// The most lanes: there are a hundred stripes.
const MAX_LANES: usize = 32;
/// How long a look at the holder may take when a wait has ended in vain.
const LOOK: Duration = Duration::from_secs(1);

/// A client for locks and counters. Cheap to clone; all clones share their connections.
///
/// It opens connections of its own, two for its lanes and one to read, and for moments a few more, never more than twice its
/// lanes and twelve: an application whose pool is exhausted can still renew its locks. Where the account may have a few only
/// (`max_user_connections`), it takes at most half of them, and where it gets fewer than it wants, its lanes share what they
/// have: one is enough.
#[derive(Clone)]
pub struct LockClient {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Arc<Engine>,
    locks: Arc<Locks>,
    connect: MySqlConnectOptions,
    default_ttl: Duration,
    packet_timeout: Duration,
    touched: Touched,
}

impl LockClient {
    /// Connects to the server of a URL: `mysql://user:password@host:port/database`.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tag_lock::Error> {
    /// let locks = tag_lock::LockClient::connect("mysql://user:password@localhost/shop").await?;
    /// locks.migrate().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`], [`Error::AccessDenied`], [`Error::TooManyConnections`], or [`Error::Database`] if the URL
    /// cannot be read. That the tables are missing is not noticed here, but by the first request.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let options: MySqlConnectOptions = url.parse().map_err(Error::from_sqlx)?;
        Self::builder(options).connect().await
    }

    /// A client with options of its own.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use sqlx::mysql::MySqlConnectOptions;
    /// use tag_lock::LockClient;
    ///
    /// # async fn example() -> Result<(), tag_lock::Error> {
    /// let options = MySqlConnectOptions::new().host("db.example.org").username("shop").database("shop");
    /// let locks = LockClient::builder(options)
    ///     .default_ttl(Duration::from_secs(60))
    ///     .holder("billing-3")
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(connect: MySqlConnectOptions) -> LockClientBuilder {
        LockClientBuilder {
            connect,
            lanes: 2,
            default_ttl: Duration::from_secs(30),
            packet_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(10),
            holder: None,
        }
    }

    /// Creates the tables, or brings them up to date. Safe when many processes start at once. The
    /// account needs the privileges to create tables.
    ///
    /// # Errors
    ///
    /// [`Error::AccessDenied`] without these privileges; [`Error::Migrate`] if the notes of the
    /// migrations were changed by hand, or another migration does not end; others as the server gives cause for.
    ///
    /// # Cancel safety
    ///
    /// A migration that was cut off is completed by the next one.
    pub async fn migrate(&self) -> Result<(), Error> {
        crate::schema::migrate(&self.inner.connect).await
    }

    /// A lock by its name: 1 to 255 characters that do not end in a space. `A` and `a` are different
    /// names.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let guard = locks.lock("sale_invite").acquire().await?;
    /// // … the work …
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock(&self, name: &str) -> LockRequest<'_> {
        LockRequest::new(self, name)
    }

    /// A counter by its name. A lock of the same name is something else.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let ticket = locks.counter("ticket").add(1).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn counter(&self, name: &str) -> Counter<'_> {
        Counter::new(self, name)
    }

    /// What stands in the table about a lock; `None` if it was never taken.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// if let Some(info) = locks.inspect("sale_invite").await? {
    ///     println!("{:?} by {} for {:?} more", info.state, info.held_by, info.remaining);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; others as the server gives cause for.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn inspect(&self, name: &str) -> Result<Option<LockInfo>, Error> {
        let name = Name::new(name)?;
        let mut found = self.show(inspect::one(name.as_str())).await?;
        Ok(found.pop())
    }

    /// The locks that are taken, in the server's order of their names, `limit` at a time; give the last
    /// name of a page as `after` of the next one.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let mut after = None;
    /// loop {
    ///     let page = locks.list(after.as_deref(), 100).await?;
    ///     for lock in &page {
    ///         println!("{} by {}", lock.name, lock.held_by);
    ///     }
    ///     match page.last() {
    ///         Some(last) => after = Some(last.name.clone()),
    ///         None => break,
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As the server gives cause for.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn list(&self, after: Option<&str>, limit: u32) -> Result<Vec<LockInfo>, Error> {
        self.show(inspect::taken(after, limit)).await
    }

    async fn show(&self, sql: String) -> Result<Vec<LockInfo>, Error> {
        let rows = self.inner.engine.query(sql).await?;
        rows.iter()
            .map(|row| LockInfo::from_row(row).map_err(Error::from_sqlx))
            .collect()
    }

    /// Frees a lock, whoever holds it: for operators. Whether it was taken. Its holder's lost signal
    /// fires with its next renewal (at the end of the lease without one, and within about 100 ms while tasks of its
    /// process pass the lock on in memory), and its release is [`Error::LockLost`] from then on; whatever it still does
    /// under the lock only fencing can stop.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// if locks.force_release("sale_invite").await? {
    ///     println!("it was taken, and is free now");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; [`Error::Busy`] while a transaction holds the lock's row; others as the
    /// server gives cause for.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the release back.
    pub async fn force_release(&self, name: &str) -> Result<bool, Error> {
        let key = RowKey::lock(Name::new(name)?);
        let seen = self.inner.engine.look(vec![key.clone()]).await?;
        let Some(row) = seen.first().copied().flatten() else {
            return Ok(false);
        };
        if row.status == FREE {
            return Ok(false);
        }
        let operation = Operation::ForceRelease(ForceRelease {
            token: Token::random(),
            fence: row.fence,
        });
        let answer = self
            .inner
            .engine
            .call(key, Request::Operation(operation))
            .await?;
        let released = matches!(answer.outcome, Outcome::Released { .. });
        if released {
            tracing::warn!(lock = name, "a lock was released by force");
        }
        Ok(released)
    }

    /// How often this client saw the server's clock being stepped (by more than a second). A step forward
    /// ends leases early; only fencing tokens and transactions that verify are safe across it.
    pub fn server_clock_steps(&self) -> u64 {
        self.inner.engine.clock_steps()
    }

    /// Ends the client: waiting acquires fail with [`Error::Closed`], what is held is released or kept
    /// until its lease ends, what was queued is sent, what is unknown is settled. Then nothing of the client
    /// runs any more, but for the timers of leases that were kept. While the server is away it waits for the packets in
    /// flight and then for the request timeout, or for three packet timeouts if that is longer, and gives up what is not
    /// done by then.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) {
    /// locks.close(tag_lock::AtClose::Release).await;
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the rest to the background.
    pub async fn close(&self, held: AtClose) {
        self.inner.locks.close(held == AtClose::Release);
        self.inner.engine.close().await;
    }

    pub(crate) fn locks(&self) -> &Locks {
        &self.inner.locks
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// A connection of its own, for work that is not for the lanes.
    pub(crate) async fn open_session(&self, commit: Commit) -> Result<Session, Error> {
        Session::open(&self.inner.connect, commit, self.inner.packet_timeout)
            .await
            .map_err(Error::from_sqlx)
    }

    pub(crate) fn touched(&self) -> &Touched {
        &self.inner.touched
    }

    pub(crate) fn default_ttl(&self) -> Duration {
        self.inner.default_ttl
    }

    /// Acquires for a [`LockRequest`].
    pub(crate) async fn acquire(
        &self,
        name: Name,
        terms: Terms,
        wait: Wait,
    ) -> Result<Option<LockGuard>, Error> {
        let locks = &self.inner.locks;
        let start = Moment::now();
        let acquiring = locks.acquire(name.clone(), terms, wait);
        match acquiring.instrument(telemetry::acquire(&name)).await? {
            Some(turn) => {
                telemetry::acquired(&name, turn.fence, Moment::now().since(start));
                Ok(Some(LockGuard::new(Arc::clone(locks), turn)))
            }
            None => {
                telemetry::refused(&name, Moment::now().since(start));
                match wait {
                    Wait::Not => Ok(None),
                    Wait::For(_) | Wait::Forever => Err(self.timed_out(&name).await),
                }
            }
        }
    }

    /// The error of a wait in vain: who is in the way is worth a look, but not an error of its own.
    pub(crate) async fn timed_out(&self, name: &Name) -> Error {
        let look = tokio::time::timeout(LOOK, self.inspect(name.as_str())).await;
        let info = look
            .ok()
            .and_then(Result::ok)
            .flatten()
            .filter(|info| info.state != LockState::Free);
        Error::Timeout {
            name: name.to_string(),
            holder: info.as_ref().map(LockInfo::holder),
            remaining: info.map(|info| info.remaining),
        }
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the connect options: they have the password.
        f.debug_struct("LockClient")
            .field("host", &self.inner.connect.get_host())
            .field("database", &self.inner.connect.get_database())
            .finish_non_exhaustive()
    }
}

/// What [`LockClient::close`] does with locks that are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtClose {
    /// Releases them; their lost signals fire.
    #[default]
    Release,
    /// Leaves them in the table until their leases end: nobody renews them any more, and their guards and signals
    /// tell when they end.
    Keep,
}

/// Options of a [`LockClient`].
#[derive(Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct LockClientBuilder {
    connect: MySqlConnectOptions,
    lanes: usize,
    default_ttl: Duration,
    packet_timeout: Duration,
    request_timeout: Duration,
    holder: Option<String>,
}

impl LockClientBuilder {
    /// How many lanes write, 1 to 32, on a connection each where the account may have so many. Defaults to 2: while one
    /// waits for its commit, the other one works.
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes;
        self
    }

    /// The ttl of locks that do not say one. Defaults to 30 s.
    pub fn default_ttl(mut self, ttl: Duration) -> Self {
        self.default_ttl = ttl;
        self
    }

    /// How long the server may take for one packet before its connection is given up. Defaults to 5 s;
    /// at least 100 ms. The server ends a packet's wait for a lock after one second: with less than two, a table that somebody
    /// has locked looks like a server that does not answer.
    pub fn packet_timeout(mut self, timeout: Duration) -> Self {
        self.packet_timeout = timeout;
        self
    }

    /// How long a request may take, all attempts together, waiting for a lock excepted. Defaults to
    /// 10 s; not less than the packet timeout.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Who this client is, for those who inspect its locks: at most 255 characters. Defaults to
    /// `host/pid`.
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for options that make no sense; otherwise as
    /// [`LockClient::connect`].
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn connect(self) -> Result<LockClient, Error> {
        self.check()?;
        // Wrong addresses and passwords are told here, not by the first request.
        let session = Session::open(&self.connect, Commit::Automatic, self.packet_timeout)
            .await
            .map_err(Error::from_sqlx)?;
        let account_limit = session.account_limit;
        // The lanes may need its place.
        drop(session);
        // Exhaustive: a new option cannot be forgotten here.
        let Self {
            connect,
            lanes,
            default_ttl,
            packet_timeout,
            request_timeout,
            holder,
        } = self;
        let engine = Arc::new(Engine::start(EngineOptions {
            connect: connect.clone(),
            account_limit,
            lanes,
            packet_limit: packet_timeout,
            request_limit: request_timeout,
        }));
        let locks = Locks::start(Arc::clone(&engine), &holder.unwrap_or_else(host_and_pid));
        Ok(LockClient {
            inner: Arc::new(Inner {
                engine,
                locks,
                connect,
                default_ttl,
                packet_timeout,
                touched: Touched::default(),
            }),
        })
    }

    fn check(&self) -> Result<(), Error> {
        let invalid = |option, reason: &str| {
            Err(Error::InvalidOption {
                option,
                reason: reason.to_owned(),
            })
        };
        if self.lanes == 0 || self.lanes > MAX_LANES {
            return invalid("lanes", "use 1 to 32");
        }
        if self.packet_timeout < Duration::from_millis(100) || self.packet_timeout > MAX_DURATION {
            return invalid("packet_timeout", "use at least 100 ms");
        }
        if self.request_timeout < self.packet_timeout || self.request_timeout > MAX_DURATION {
            return invalid("request_timeout", "use at least the packet timeout");
        }
        if self.holder.as_deref().unwrap_or_default().chars().count() > 255 {
            return invalid("holder", "use at most 255 characters");
        }
        Ok(())
    }
}

impl fmt::Debug for LockClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the connect options: they have the password.
        f.debug_struct("LockClientBuilder")
            .field("host", &self.connect.get_host())
            .field("lanes", &self.lanes)
            .finish_non_exhaustive()
    }
}

fn host_and_pid() -> String {
    #[cfg(unix)]
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    #[cfg(not(unix))]
    let host = std::env::var("COMPUTERNAME").unwrap_or_else(|_| "host".to_owned());
    format!("{host}/{}", std::process::id())
}
