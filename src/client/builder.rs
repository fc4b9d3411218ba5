//! Options of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;

use super::LockClient;
use super::inner::Inner;
use crate::address;
use crate::engine::session::Session;
use crate::engine::{Engine, EngineOptions};
use crate::error::Error;
use crate::lock::MIN_TTL;
use crate::lock::registry::Locks;
use crate::lock::registry::in_use::InUse;
use crate::metric;
use crate::purge::{self, Purger};
use crate::sql::session::Commit;
use crate::timing::MAX_DURATION;
use crate::touched::Touched;
use crate::watch::Watches;

/// The most lanes. A request goes to the lane whose number is its name's stripe modulo the number of lanes. There are a hundred stripes: each
/// of 32 lanes has three or four of them, while some of 64 would have twice as many as others. And each lane has a connection.
const MAX_LANES: usize = 32;

/// Which requests take the row of their name's stripe before the row of the name: see
/// [`LockClientBuilder::stripes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stripes {
    /// Those whose row is created, and those that want a name which several clients want at once: they stand in line at
    /// the stripe.
    #[default]
    WhenNeeded,
    /// Each acquire and each change of a counter, as the original design does. Requests that wait for a transaction of the
    /// application take none, and neither do renewals and releases. It costs throughput, and orders all that happens on a stripe.
    EveryRequest,
}

/// Options of a [`LockClient`].
#[derive(Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct LockClientBuilder {
    connect: MySqlConnectOptions,
    lanes: usize,
    stripes: Stripes,
    default_ttl: Duration,
    linger: Duration,
    purge_after: Option<Duration>,
    packet_timeout: Duration,
    request_timeout: Duration,
    own_thread: bool,
    holder: Option<String>,
}

impl LockClientBuilder {
    pub(super) fn new(connect: MySqlConnectOptions) -> Self {
        Self {
            connect,
            lanes: 2,
            stripes: Stripes::default(),
            default_ttl: Duration::from_secs(30),
            linger: Duration::ZERO,
            purge_after: None,
            packet_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(10),
            own_thread: false,
            holder: None,
        }
    }

    /// How many lanes write, 1 to 32, on a connection each where the account may have so many. Defaults to 2: while one
    /// waits for its commit, the other one works.
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes;
        self
    }

    /// Which requests take the stripe of their name first. Defaults to [`Stripes::WhenNeeded`].
    pub fn stripes(mut self, stripes: Stripes) -> Self {
        self.stripes = stripes;
        self
    }

    /// The ttl of locks that do not say one. Defaults to 30 s; from 50 ms to ten years.
    pub fn default_ttl(mut self, ttl: Duration) -> Self {
        self.default_ttl = ttl;
        self
    }

    /// How long released locks idle, unless their requests say otherwise: see [`LockRequest::linger`](crate::LockRequest::linger). Defaults to
    /// zero: not at all. Locks with an owner, a minimum or a longest hold, or without renewal never do.
    ///
    /// While there are leases that may idle, the client reads one row every 12 ms, and every 5 ms for a moment after somebody has rung; at most
    /// 16,384 idle, and past that those that have idled longest are given back.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Has the client delete again and again what [`LockClient::purge`] would, if nothing changed it for `age` (at least an hour). Off by
    /// default: rows stay. Of [jobs](crate::LockClient::job) the slots that are done go too: a machine that comes to such a slot later than that
    /// runs it again.
    ///
    /// Of all clients that are built so one works at a time, in small steps with pauses, on a connection of its own; it begins within ten
    /// seconds, and then after a sixteenth of `age`, once a minute to once an hour. It holds the lock `tag_lock: purge` meanwhile. The account
    /// needs the DELETE privilege. What goes wrong is told by a warning in the log, and tried again.
    ///
    /// ```no_run
    /// # async fn example(options: sqlx::mysql::MySqlConnectOptions) -> Result<(), tag_lock::Error> {
    /// use std::time::Duration;
    ///
    /// // A lock for each order: rows that nobody has used for a month go by themselves.
    /// let month = Duration::from_secs(30 * 86_400);
    /// let locks = tag_lock::LockClient::builder(options).purge_after(month).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn purge_after(mut self, age: Duration) -> Self {
        self.purge_after = Some(age);
        self
    }

    /// How long the server may take for one packet. Then the client gives up the connection, and goes on over a fresh one.
    /// Defaults to 5 s; from 100 ms to ten years, and not longer than the [request timeout](Self::request_timeout): raise that, too.
    ///
    /// Use at least two seconds. The server ends a packet's wait for a row or table after one second; with less than two, a table that somebody
    /// has locked looks like a server that does not answer.
    ///
    /// Those who wait for locks ask about them over a connection of their own. If it does not answer within an eighth of this time, or 1.25 s
    /// if that is more, the client asks over a fresh one: a connection that has fallen silent does not hold them up for long. For ten seconds after such
    /// a late answer each has the whole time, since the server may be slow.
    pub fn packet_timeout(mut self, timeout: Duration) -> Self {
        self.packet_timeout = timeout;
        self
    }

    /// How long a request may take, all attempts together, waiting for a lock excepted. Defaults to
    /// 10 s; not less than the [packet timeout](Self::packet_timeout), and ten years at most.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Whether the client's tasks run on a thread of their own, with a runtime that runs nothing else. Defaults to false: then they run
    /// on the runtime on which [`connect`](Self::connect) is called, and on no other.
    ///
    /// Without it, whatever blocks that runtime (a computation, a blocking call) for as long as a lease lasts costs the lease, and its
    /// end costs all leases and ends the client. With it, leases are renewed whatever the callers' runtimes do, and the client may be
    /// used from several of them, also one after the other, as tests and synchronous programs do. It costs each request that goes to the
    /// server two changes of threads.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tag_lock::LockClient;
    ///
    /// let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// let options = "mysql://user:password@localhost/shop".parse()?;
    /// let guard = runtime.block_on(async {
    ///     let locks = LockClient::builder(options).own_thread(true).connect().await?;
    ///     locks.lock("report").acquire().await
    /// })?;
    /// // … blocking work for as long as it takes: the lease is renewed meanwhile …
    /// runtime.block_on(guard.release())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn own_thread(mut self, own_thread: bool) -> Self {
        self.own_thread = own_thread;
        self
    }

    /// Who this client is, for those who inspect its locks: at most 255 characters. Defaults to
    /// `host/pid`.
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// Connects. The client belongs to the runtime on which this is called, unless it has its [own thread](Self::own_thread).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for options that make no sense, or if the thread cannot be started; otherwise as
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
        metric::describe();
        // Wrong addresses and passwords are told here, not by the first request.
        let session = Session::open(&self.connect, Commit::Automatic, self.packet_timeout)
            .await
            .map_err(Error::from_sqlx)?;
        let account_limit = session.account_limit;
        // The lanes may need its place.
        drop(session);
        self.start(account_limit)
    }

    /// As [`connect`](Self::connect), but without a look at the server: an application starts while its database is away, and
    /// the client connects with its first request. That the address or the password is wrong is told by that, too.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for options that make no sense, or if the [own thread](Self::own_thread) cannot be started.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn connect_lazy(self) -> Result<LockClient, Error> {
        self.check()?;
        metric::describe();
        // The first connection tells.
        self.start(0)
    }

    /// The client, of an account that may have so many connections; 0 if nothing limits them.
    fn start(self, account_limit: i64) -> Result<LockClient, Error> {
        // Exhaustive: a new option cannot be forgotten here.
        let Self {
            connect,
            lanes,
            stripes,
            default_ttl,
            linger,
            purge_after,
            packet_timeout,
            request_timeout,
            own_thread,
            holder,
        } = self;
        let engine = Engine::start(EngineOptions {
            connect: connect.clone(),
            account_limit,
            lanes,
            every_stripe: stripes == Stripes::EveryRequest,
            packet_limit: packet_timeout,
            request_limit: request_timeout,
            own_thread,
        })?;
        let engine = Arc::new(engine);
        let locks = Locks::start(Arc::clone(&engine), &holder.unwrap_or_else(host_and_pid));
        if let Some(age) = purge_after {
            let purger = Purger {
                connect: connect.clone(),
                limit: packet_timeout,
            };
            let (weak, stopped) = (Arc::downgrade(&locks), locks.stopped.clone());
            let purge = move || purge::run(weak.clone(), purger.clone(), age, stopped.clone());
            engine.keep_running("the purge", purge);
        }
        Ok(LockClient::new(Inner {
            in_use: InUse::of(&locks),
            watches: Watches::new(Arc::clone(&engine), locks.stopped.clone()),
            engine,
            locks,
            connect,
            default_ttl,
            linger,
            packet_timeout,
            touched: Touched::default(),
        }))
    }

    fn check(&self) -> Result<(), Error> {
        let invalid = |option, reason: &str| {
            Err(Error::InvalidOption {
                option,
                reason: reason.to_owned(),
            })
        };
        address::check_database(&self.connect)?;
        if let Some(age) = self.purge_after {
            purge::check_age("purge_after", age)?;
        }
        if self.default_ttl < MIN_TTL || self.default_ttl > MAX_DURATION {
            return invalid("default_ttl", "use 50 ms to ten years");
        }
        if self.linger > MAX_DURATION {
            return invalid("linger", "use ten years at most");
        }
        if self.lanes == 0 || self.lanes > MAX_LANES {
            return invalid("lanes", "use 1 to 32");
        }
        if self.packet_timeout < Duration::from_millis(100) || self.packet_timeout > MAX_DURATION {
            return invalid("packet_timeout", "use 100 ms to ten years");
        }
        if self.request_timeout < self.packet_timeout {
            return invalid(
                "request_timeout",
                "it is shorter than the packet timeout: use at least that, or shorten the packet timeout",
            );
        }
        if self.request_timeout > MAX_DURATION {
            return invalid("request_timeout", "use ten years at most");
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with an option is told as it is, before anything is sent.
    #[test]
    fn what_is_wrong_with_an_option_is_told() {
        let builder = || LockClientBuilder::new(MySqlConnectOptions::new().database("shop"));
        let ms = Duration::from_millis;
        let too_long = MAX_DURATION + ms(1);
        builder().check().expect("the defaults are right");
        for ttl in [ms(50), MAX_DURATION] {
            builder().default_ttl(ttl).check().expect("a ttl");
        }
        for (wrong, text) in [
            (
                builder().default_ttl(ms(49)),
                "invalid default_ttl: use 50 ms",
            ),
            (builder().default_ttl(Duration::ZERO), "invalid default_ttl"),
            (builder().default_ttl(too_long), "to ten years"),
            (builder().packet_timeout(ms(99)), "use 100 ms to ten years"),
            (builder().packet_timeout(too_long), "to ten years"),
            (
                builder().packet_timeout(Duration::from_secs(11)),
                "invalid request_timeout: it is shorter than the packet timeout",
            ),
            (
                builder().request_timeout(too_long),
                "invalid request_timeout: use ten years at most",
            ),
        ] {
            let error = wrong.check().expect_err(text).to_string();
            assert!(error.contains(text), "{error}, but not: {text}");
        }
    }
}
