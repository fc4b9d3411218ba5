//! Everything that races: each contestant in a file of its own, behind one trait.

pub mod article;
mod article_versions;
mod distributed_lock_mysql;
mod floor_bulk;
mod floor_commit;
mod floor_round_trip;
mod for_update;
mod get_lock;
mod optimistic;
mod redis;
mod redlock;
pub mod roster;
mod tag_lock;
mod unique_insert;

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::arena::Arena;
use crate::pause::{self, Pause};

/// Why an operation failed; counted, and the first of each slice is shown.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The result of a contestant's operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Connections of a contestant that needs one for each statement in flight. More only queue inside the server.
pub const POOL: usize = 64;

/// The session settings that serve every contestant but `article-v1` best.
pub const READ_COMMITTED: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// What a contestant is and can do.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Its name in the table and in the JSON.
    pub name: &'static str,
    /// It has locks.
    pub locks: bool,
    /// It has counters.
    pub counters: bool,
    /// It is no lock at all: a measure of what the server can do.
    pub floor: bool,
    /// It talks to the MySQL server of the race, so a relay can stand between.
    pub mysql: bool,
    /// It sends several statements at once, the last of which is a `COMMIT`: as many round trips as commits, where
    /// the server counts statements.
    pub packets: bool,
    /// [`Contestant::fill`] puts rows into its table.
    pub fills: bool,
    /// How many pairs one call of [`Contestant::lock`] stands for; more than one for the bulk floor only.
    pub pairs_per_call: u32,
    /// It gains nothing from more tasks than this.
    pub most_tasks: usize,
    /// Its connections, where they do not go to the MySQL server.
    pub connections: Option<u64>,
    /// The longest pause before it asks again for a lock that is held, where it cannot wait better.
    pub longest_pause: Duration,
}

impl Profile {
    /// A lock on the MySQL server.
    pub const LOCK: Self = Self {
        name: "",
        locks: true,
        counters: false,
        floor: false,
        mysql: true,
        fills: false,
        packets: false,
        pairs_per_call: 1,
        most_tasks: usize::MAX,
        connections: None,
        longest_pause: pause::LONGEST,
    };
}

/// A way to make locks, counters or both. Cloned into each task.
pub trait Contestant: Clone + Send + Sync + 'static {
    /// What it is and can do.
    const PROFILE: Profile;

    /// What a holder keeps, and what the release needs.
    type Held: Send + 'static;

    /// Sets the stage before a measurement: empty tables, no old locks. Runs in one process only.
    fn prepare(_arena: &Arena) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Connects, for `tasks` tasks in this process.
    fn open(arena: &Arena, tasks: usize) -> impl Future<Output = Result<Self>> + Send;

    /// Takes the lock `name` for `ttl` when it is free; `None` when it is held.
    fn try_lock(
        &self,
        name: &str,
        ttl: Duration,
    ) -> impl Future<Output = Result<Option<Self::Held>>> + Send;

    /// Takes the lock `name` for `ttl`, waiting for it until `until`; `None` when it was held all that time.
    ///
    /// Asks again after a pause. A contestant that can wait better does it its own way.
    fn lock(
        &self,
        name: &str,
        ttl: Duration,
        until: Instant,
    ) -> impl Future<Output = Result<Option<Self::Held>>> + Send {
        async move {
            let mut pause = Pause::up_to(Self::PROFILE.longest_pause);
            loop {
                if let Some(held) = self.try_lock(name, ttl).await? {
                    return Ok(Some(held));
                }
                if Instant::now() >= until {
                    return Ok(None);
                }
                pause.wait().await;
            }
        }
    }

    /// Releases a lock.
    fn unlock(&self, held: Self::Held) -> impl Future<Output = Result<()>> + Send;

    /// Adds `delta` to the counter `name`, which starts at 0; the new value.
    fn add(&self, _name: &str, _delta: i64) -> impl Future<Output = Result<i64>> + Send {
        async { Err("no counters".into()) }
    }

    /// Puts rows for the names `grow-0` … into the table, as held leases or as free rows.
    ///
    /// A contestant that renews its leases returns what it holds; it is kept until the measurement is over.
    fn fill(
        &self,
        _names: u64,
        _held: bool,
    ) -> impl Future<Output = Result<Vec<Self::Held>>> + Send {
        async { Err("no table".into()) }
    }

    /// How many times this client has waited for an answer, where the server's `Questions` would not tell.
    fn round_trips(&self) -> Option<u64> {
        None
    }

    /// Closes the connections.
    fn close(self) -> impl Future<Output = ()> + Send {
        async {}
    }
}
