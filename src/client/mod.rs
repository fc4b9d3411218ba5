//! The client: where locks and counters come from.

mod builder;
pub(crate) mod inner;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;

pub use self::builder::{LockClientBuilder, Stripes};
use self::inner::Inner;
use crate::address;
use crate::counter::{Counter, CounterInfo};
use crate::election::Election;
use crate::error::Error;
use crate::inspect::LockInfo;
use crate::job::Job;
use crate::lock::{LockAllRequest, LockRequest};
use crate::name::Name;
use crate::permit::Semaphore;
use crate::sql::row::RowKey;
use crate::watch::LockWatch;

/// A client for locks and counters. Cheap to clone; all clones share their connections.
///
/// It opens connections of its own: two for its lanes and one to read; when they are needed, and until they have idled for ten seconds,
/// one for what people ask ([`inspect`](Self::inspect), [`list`](Self::list)), one for several locks at once, one for renewals whose lane does not answer, and up to four for
/// requests that wait for locks; and for moments a few more. Never more than twice its lanes and twelve: an application whose pool is exhausted can still renew its locks. Where the account may have a few only
/// (`max_user_connections`), it takes at most half of them, and where it gets fewer than it wants, its lanes share what they
/// have: one is enough.
///
/// # Runtimes
///
/// A client belongs to the tokio runtime on which it was connected: its tasks, which send requests and renew leases, run there.
/// When that runtime ends, the client ends with it, and its leases run out; while that runtime is blocked, or nobody drives it, nothing is
/// sent and nothing is renewed. Calls may come from other runtimes: where the client's does not run its tasks, they end with
/// [`Error::NotDriven`] a second or two after the request timeout. A call needs a runtime with a timer for its time limit.
/// [`own_thread`](LockClientBuilder::own_thread) gives the client a thread and a runtime of its own, so that none of this matters.
///
/// # Dropped calls in a transaction
///
/// The calls whose names end in `_in` work on a connection of yours. The future of one may be dropped in the middle: by a time limit, by
/// `select!`, by a web server whose client has hung up. Then drop the `Transaction` too: nothing of it is committed, and lock and counter are as
/// before. sqlx rolls it back before the connection is used again; a pool does so at once. Until the server has read that, the row may stay
/// locked: a statement that waits for a row waits on, for `innodb_lock_wait_timeout` (50 s by default) at most; if that ends in
/// an error, the pool closes the connection. On a connection of your own, close it.
///
/// Do not go on in such a transaction: it is not known whether the statement was carried out.
///
/// Where the network cuts the server's answer in two just then, sqlx 0.9 loses its place, and the pool loses that connection until the server
/// closes it (`wait_timeout`). A transaction in a task of its own (`tokio::spawn`) is not dropped with its caller.
#[derive(Clone)]
pub struct LockClient {
    inner: Arc<Inner>,
}

impl LockClient {
    fn new(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }

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
    /// [`Error::InvalidOption`] if the URL cannot be read, or names no database; [`Error::Unreachable`],
    /// [`Error::AccessDenied`], [`Error::TooManyConnections`], [`Error::NoDatabase`]. That the tables are missing is not noticed here, but by the
    /// first request.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(address::read(url)?).connect().await
    }

    /// As [`connect`](Self::connect), but without a look at the server: an application starts while its database is away, and
    /// the client connects with its first request.
    ///
    /// ```no_run
    /// # #[tokio::main] async fn main() -> Result<(), tag_lock::Error> {
    /// let locks = tag_lock::LockClient::connect_lazy("mysql://user:password@localhost/shop")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if the URL cannot be read, or names no database.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn connect_lazy(url: &str) -> Result<Self, Error> {
        Self::builder(address::read(url)?).connect_lazy()
    }

    /// A client with options of its own.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
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
        LockClientBuilder::new(connect)
    }

    /// Creates the tables, or brings them up to date. Safe when many processes start at once. The
    /// account needs the privileges to create tables.
    ///
    /// # Errors
    ///
    /// [`Error::AccessDenied`] without these privileges; [`Error::Migrate`] if the notes of the
    /// migrations were changed by hand, or another migration does not end; [those of any call](Error#errors-that-any-call-may-return).
    ///
    /// # Cancel safety
    ///
    /// A migration that was cut off is completed by the next one.
    pub async fn migrate(&self) -> Result<(), Error> {
        crate::schema::migrate(&self.inner.connect).await
    }

    /// A lock by its name: 1 to 255 characters that do not end in a space. `A` and `a` are different
    /// names. An invalid name is told by the first call that needs it: [`Error::InvalidName`].
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let guard = locks.lock("sale_invite").acquire().await?;
    /// // … the work …
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock(&self, name: &str) -> LockRequest {
        LockRequest::new(Arc::clone(&self.inner), name)
    }

    /// Several locks at once, all or none: 1 to 256 names as [`lock`](Self::lock) takes them, in any order. See [`LockAllRequest`].
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let accounts = locks.lock_all(["account:1", "account:2"]).acquire().await?;
    /// // … the work …
    /// accounts.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_all<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> LockAllRequest {
        let names = names.into_iter().map(|name| name.as_ref().to_owned());
        LockAllRequest::new(Arc::clone(&self.inner), names.collect())
    }

    /// A counter by its name: one as [`lock`](Self::lock) takes it. A lock of the same name is something else. An invalid name is told by the
    /// first call that needs it: [`Error::InvalidName`].
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let ticket = locks.counter("ticket").add(1).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn counter(&self, name: &str) -> Counter {
        Counter::new(Arc::clone(&self.inner), name)
    }

    /// A job by its name: work that is done once for each of its slots, on however many machines. The name has no `@`: its slots are called
    /// `invoices@2026-11-22` in the table. A lock of the same name is something else.
    ///
    /// ```no_run
    /// # async fn send_invoices() -> Result<(), tag_lock::Error> { Ok(()) }
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// // Every machine calls this each night; one of them sends.
    /// locks.job("invoices").slot("2026-11-22").run_once(|_| send_invoices()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn job(&self, name: &str) -> Job {
        Job::new(Arc::clone(&self.inner), name)
    }

    /// A semaphore by its name and its number of permits, 1 to 1,024: at most so many tasks hold one at once, over all processes. The name
    /// has no `#`, and at most 250 characters. A lock of the same name is something else. An invalid name is told by the first call that needs it:
    /// [`Error::InvalidName`]; an invalid number of permits, too: [`Error::InvalidOption`]. See [`Semaphore`].
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let permit = locks.semaphore("api", 10).acquire().await?;
    /// // … one of ten at a time …
    /// permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn semaphore(&self, name: &str, permits: u32) -> Semaphore {
        Semaphore::new(Arc::clone(&self.inner), name, permits)
    }

    /// An election by its name: of all who campaign one leads, until it resigns or loses its lease. It is the lock of the same name, whose
    /// description is the leader's value. See [`Election`].
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let leadership = locks.election("scheduler").campaign("http://10.0.0.7:8080").await?;
    /// // … lead …
    /// leadership.resign().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn election(&self, name: &str) -> Election {
        Election::new(Arc::clone(&self.inner), name)
    }

    /// Watches a lock: a stream of who holds it, which begins with how things stand. See [`LockWatch`].
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let mut watch = locks.watch("sale_invite")?;
    /// while let Some(holder) = watch.next().await {
    ///     match holder? {
    ///         Some(holder) => println!("held by {} since {}", holder.held_by, holder.since),
    ///         None => println!("free"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`].
    pub fn watch(&self, name: &str) -> Result<LockWatch, Error> {
        Ok(LockWatch::new(Arc::clone(&self.inner), Name::new(name)?))
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
    /// [`Error::InvalidName`]; [those of any call](Error#errors-that-any-call-may-return).
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn inspect(&self, name: &str) -> Result<Option<LockInfo>, Error> {
        let key = RowKey::lock(Name::new(name)?);
        self.inner.inspect(&key).await
    }

    /// The locks that are taken and whose names begin with `prefix` (empty: all), in the server's order of their names, `limit` at a time; give
    /// the last name of a page as `after` of the next one. A page of fewer than `limit` is the last one.
    ///
    /// The server finds the names that begin so by its index. Among them there is no index of what is taken: it reads rows until it has found as
    /// many as it may give, ten thousand in a query, on a connection that nobody waits for but those who list and inspect.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let mut after = None;
    /// loop {
    ///     let page = locks.list("invoice:", after.as_deref(), 100).await?;
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
    /// [Those of any call](Error#errors-that-any-call-may-return). With a prefix of more than 255 characters, which no name has, it is an empty list.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<LockInfo>, Error> {
        self.inner.list(prefix, after, limit).await
    }

    /// The counters that were set and whose names begin with `prefix` (empty: all), in the server's order of their names, `limit` at a
    /// time; give the last name of a page as `after` of the next one. A page of fewer than `limit` is the last one. A [deleted](Counter::delete)
    /// counter is not one of them. One whose [window](Counter::window) has ended is, with the value 0, until a [purge](Self::purge) takes its row.
    ///
    /// It reads the rows of all names that begin so, as [`list`](Self::list) does.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// for prize in locks.list_counters("prize:", None, 100).await? {
    ///     println!("{}: {} left", prize.name, prize.value);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [Those of any call](Error#errors-that-any-call-may-return). With a prefix of more than 255 characters, which no name has, it is an empty list.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn list_counters(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<CounterInfo>, Error> {
        self.inner.list_counters(prefix, after, limit).await
    }

    /// Frees a lock, whoever holds it; for operators. Returns whether it was taken: `false` also if its lease had ended by itself.
    ///
    /// The old holder's [`lost`](crate::LockGuard::lost) fires with its next renewal: a third of the ttl, at most. Without renewal it fires at the end of
    /// the lease. While tasks of its process pass the lock on in memory, or take it again where it [idles](crate::LockRequest::linger), it fires
    /// within about 100 ms. From then on its release is [`Error::LockLost`]. Until then only
    /// [`verify_in`](crate::LockGuard::verify_in) and the [fencing token](crate::LockGuard::fencing_token) stop it.
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
    /// [`Error::InvalidName`]; [`Error::Busy`] while a transaction holds the lock's row; [those of any call](Error#errors-that-any-call-may-return).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the release back.
    pub async fn force_release(&self, name: &str) -> Result<bool, Error> {
        let checked = Name::new(name)?;
        // It idled in this very client.
        if self.inner.locks.wake(&checked).await {
            return Ok(true);
        }
        self.inner.force_release(RowKey::lock(checked)).await
    }

    /// How often this client saw the server's clock being stepped (by more than a second). A step forward
    /// ends leases early; only fencing tokens and transactions that verify are safe across it.
    pub fn server_clock_steps(&self) -> u64 {
        self.inner.engine.clock_steps()
    }

    /// Ends the client: waiting acquires fail with [`Error::Closed`], what is held is released or kept
    /// until its lease ends, what was queued is sent, what is unknown is settled. Then its connections are closed, and nothing of the
    /// client runs any more, but for the timers of leases that were kept.
    ///
    /// It takes a bounded time, also while the server is away: the packets in flight have two packet timeouts and three seconds (they may
    /// wait for locks), then the rest has the request timeout, or three packet timeouts if that is longer; what is not done by then is given
    /// up. By default that is 28 s.
    ///
    /// All clones of the client end, once: whoever calls it again, on whatever clone, waits for the same end, and what the first call
    /// says about held locks counts.
    ///
    /// Without it, a client ends in the same way, in the background, when its last clone, guard and call is gone.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) {
    /// locks.close(tag_lock::AtClose::Release).await;
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the rest to the background; another call waits for it.
    pub async fn close(&self, held: AtClose) {
        self.begin_to_close(held);
        self.inner.engine.ended().await;
    }

    /// As [`close`](Self::close), but waits for `time` at most. True: all that was under way has come to its end, and nothing of the
    /// client runs any more. False: it had not within this time, or was given up.
    ///
    /// Nothing is cut off when the time is over: the client goes on to end in the background, for as long as `close` would take, unless the
    /// program ends. Another call waits further. With a `time` of zero it only begins, or asks how things stand.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) {
    /// use std::time::Duration;
    /// use tag_lock::AtClose;
    ///
    /// if !locks.close_within(AtClose::Release, Duration::from_secs(5)).await {
    ///     eprintln!("some locks are free only when their leases end");
    /// }
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// As [`close`](Self::close).
    pub async fn close_within(&self, held: AtClose, time: Duration) -> bool {
        self.begin_to_close(held);
        let ended = tokio::time::timeout(time, self.inner.engine.ended());
        ended.await.unwrap_or(false)
    }

    fn begin_to_close(&self, held: AtClose) {
        self.inner.locks.close(held == AtClose::Release);
        self.inner.engine.shut_down();
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
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
