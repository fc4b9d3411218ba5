//! A TCP proxy before a MySQL or MariaDB server that breaks things on purpose, at a chosen command.
//!
//! ```ignore
//! let proxy = Proxy::before(&database_url).await?;
//! let pool = MySqlPool::connect(&proxy.url(&database_url)).await?;
//! proxy.on_command(once(Command::contains_commit, Fault::CutAfter(Upstream::Replied)));
//! ```
//!
//! It reads the handshake, each command with its text, and finds the end of each reply, also of several results. A
//! connection that turns to TLS, compression or query attributes it cannot read: delays and the switches for the whole
//! proxy still work there, and no hook is asked ([`Counters::unreadable`] tells). [`Proxy::url`] turns TLS off.
//!
//! Where what lives: `packet`, `handshake`, `command` and `reply` read the protocol; `fault`, `gate` and `hooks` are
//! what a test says; `dialogue` applies faults to what is said, without I/O; `pipe` is the wire with its delay;
//! `connection` and `listener` move bytes.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "included by many tests and benchmarks, each of which uses its own part"
)]

mod address;
mod command;
mod connection;
mod counters;
mod dialogue;
mod fault;
mod gate;
mod handshake;
mod hooks;
mod listener;
mod owed;
mod packet;
mod pipe;
mod reply;
mod state;

use std::fmt::{self, Display};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use self::state::{Shared, locked};

pub use self::address::host_and_port;
pub use self::command::{Command, CommandKind};
pub use self::counters::{Counters, Recorded};
pub use self::fault::{Fault, FaultKind, Upstream};
pub use self::gate::{Gate, Hold};
pub use self::handshake::{Capabilities, Login};
pub use self::hooks::{RandomFaults, nth, once};
pub use self::packet::{Framing, Packet};
pub use self::reply::{Progress, Reply};

/// A running proxy. Dropping it stops it and closes its connections.
#[must_use = "a proxy stops when it is dropped"]
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    listener: AbortHandle,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1, and forwards to `upstream`, a `SocketAddr` or `"host:port"`.
    ///
    /// # Errors
    ///
    /// If it cannot listen. Whether the server is there shows with the first connection.
    pub async fn start(upstream: impl Display) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared::new(upstream.to_string()));
        let task = tokio::spawn(listener::accept(listener, Arc::clone(&shared)));
        Ok(Self {
            addr,
            shared,
            listener: task.abort_handle(),
        })
    }

    /// The same, before the server that a database's URL names.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub async fn before(database_url: &str) -> io::Result<Self> {
        Self::start(address::host_and_port(database_url)).await
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// A database's URL, led through this proxy: host and port are replaced, user, password, path and query stay. TLS
    /// is turned off unless the query already has an `ssl-mode`; a `socket`, which would lead past the proxy, goes.
    pub fn url(&self, database_url: &str) -> String {
        address::with_address(database_url, self.addr)
    }

    /// Sends new connections to another server.
    pub fn set_upstream(&self, upstream: impl Display) {
        *locked(&self.shared.upstream) = upstream.to_string();
    }

    /// How long bytes are under way in each direction, as on a long wire: a round trip lasts both longer, and
    /// bandwidth stays. Holds for what is sent from now on. Timers are exact to a millisecond, and never early.
    pub fn set_delay(&self, to_server: Duration, to_client: Duration) {
        let mut link = locked(&self.shared.link);
        link.to_server = to_server;
        link.to_client = to_client;
    }

    /// Adds up to this much at random to both delays; the order stays.
    pub fn set_jitter(&self, jitter: Duration) {
        locked(&self.shared.link).jitter = jitter;
    }

    /// Asks `hook` about each command from now on, on all connections.
    pub fn on_command(&self, hook: impl Fn(&Command) -> Fault + Send + Sync + 'static) {
        *locked(&self.shared.hook) = Arc::new(hook);
    }

    /// Whether a `KILL` is answered as if it had ended its session, and does not arrive: so a session that its client gave up may
    /// live on, with what was sent to it.
    pub fn ignore_kills(&self, ignores: bool) {
        self.shared.ignores_kills.store(ignores, Ordering::Relaxed);
    }

    /// Lets all commands pass from now on. What is held stays held.
    pub fn pass_all(&self) {
        self.on_command(|_| Fault::Pass);
    }

    /// Nothing moves any more, and nothing is lost: neither bytes nor ends of connections, and no one is greeted.
    pub fn pause(&self) {
        self.shared
            .switches
            .send_modify(|switches| switches.paused = true);
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.shared
            .switches
            .send_modify(|switches| switches.paused = false);
    }

    /// Closes all connections now, those that are paused or half-open too. New ones are welcome.
    pub fn cut_all(&self) {
        self.shared
            .switches
            .send_modify(|switches| switches.cuts += 1);
    }

    /// While `true`, new connections are closed as soon as they are accepted.
    pub fn refuse(&self, refusing: bool) {
        self.shared
            .switches
            .send_modify(|switches| switches.refusing = refusing);
    }

    /// How many connections are open now.
    pub fn open_connections(&self) -> usize {
        *self.shared.open.borrow()
    }

    /// Waits until no connection is open, so that the server has been told of each one's end.
    pub async fn all_closed(&self) {
        self.down_to(0).await;
    }

    /// Waits until at most `count` connections are open.
    pub async fn down_to(&self, count: usize) {
        let mut open = self.shared.open.subscribe();
        // The sender cannot be gone: it is in `self`.
        let _ = open.wait_for(|open| *open <= count).await;
    }

    /// What has passed so far.
    pub fn counters(&self) -> Counters {
        locked(&self.shared.counters).clone()
    }

    /// How many commands with a reply were forwarded so far.
    pub fn round_trips(&self) -> u64 {
        locked(&self.shared.counters).round_trips
    }

    /// Starts or stops recording commands. Either forgets what was recorded.
    pub fn record(&self, recording: bool) {
        *locked(&self.shared.recorded) = recording.then(Vec::new);
    }

    /// What was recorded since the last time, in the order in which it was forwarded.
    pub fn take_recorded(&self) -> Vec<Recorded> {
        locked(&self.shared.recorded)
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}
