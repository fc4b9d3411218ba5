//! What a run and its workers agree on: written to the run's directory before the first worker starts.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::oracle::Rules;

/// The variable that tells a worker which slot it runs in.
pub const SLOT: &str = "TORTURE_SLOT";
/// The variable that tells a worker its database. Not an argument: those are for all to see.
pub const URL: &str = "TORTURE_URL";
/// The file of unprotected values in a run's directory.
const SHARED: &str = "shared";

/// What the workers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Critical sections over a value that nothing else protects.
    Mutex,
    /// Writes to a resource that checks fencing tokens.
    Fenced,
    /// A counter as a sequence of tickets.
    Tickets,
    /// A counter within bounds.
    Stock,
    /// Transactions over accounts that verify their lock.
    Bank,
    /// Locks and counters that each have one user: few packets, of few rows.
    Solo,
    /// Locks whose leases idle between their users: few tasks, so that they do.
    Linger,
    /// Jobs whose slots come with the time: each is asked for by many, also by those who are late.
    Jobs,
    /// Permits of semaphores, of which more are wanted than there are.
    Permits,
    /// Several locks at once, and transfers between their accounts, beside single locks of the same names.
    Together,
    /// Locks that many hold shared, or one for itself.
    Shared,
    /// Elections: candidates, leaders whose work is dropped when they lose, and observers.
    Election,
    /// A few locks that all kinds of clients want at once, each worker being of one kind: near, far away, new for every turn, owners.
    Crowd,
    /// All of the first six at once.
    Mixed,
}

/// How many tasks of a worker do what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// Tasks of the workload `mutex`.
    pub mutex: u32,
    /// Tasks of the workload `fenced`.
    pub fenced: u32,
    /// Tasks of the workload `tickets`.
    pub tickets: u32,
    /// Tasks of the workload `stock`.
    pub stock: u32,
    /// Tasks of the workload `bank`.
    pub bank: u32,
    /// Tasks of the workload `solo`.
    pub solo: u32,
    /// Tasks of the workload `jobs`.
    #[serde(default)]
    pub jobs: u32,
    /// Tasks of the workload `permits`.
    #[serde(default)]
    pub permits: u32,
    /// Tasks of the workload `together` that ask for several locks.
    #[serde(default)]
    pub together: u32,
    /// Tasks of the workload `together` that ask for one of them.
    #[serde(default)]
    pub beside: u32,
    /// Tasks of the workload `shared` that read.
    #[serde(default)]
    pub readers: u32,
    /// Tasks of the workload `shared` that read in transactions.
    #[serde(default)]
    pub vouchers: u32,
    /// Tasks of the workload `shared` that write.
    #[serde(default)]
    pub writers: u32,
    /// Tasks of the workload `election` that campaign.
    #[serde(default)]
    pub candidates: u32,
    /// Tasks of the workload `election` that observe.
    #[serde(default)]
    pub observers: u32,
    /// Tasks of the workload `crowd`.
    #[serde(default)]
    pub crowd: u32,
}

impl Workload {
    /// The tasks of one worker.
    #[must_use]
    pub fn shares(self) -> Shares {
        let none = Shares {
            mutex: 0,
            fenced: 0,
            tickets: 0,
            stock: 0,
            bank: 0,
            solo: 0,
            jobs: 0,
            permits: 0,
            together: 0,
            beside: 0,
            readers: 0,
            vouchers: 0,
            writers: 0,
            candidates: 0,
            observers: 0,
            crowd: 0,
        };
        match self {
            Self::Mutex => Shares { mutex: 256, ..none },
            Self::Fenced => Shares {
                fenced: 128,
                ..none
            },
            Self::Tickets => Shares {
                tickets: 600,
                ..none
            },
            Self::Stock => Shares { stock: 300, ..none },
            // Each has a connection of its own.
            Self::Bank => Shares { bank: 24, ..none },
            // Packets of one row or two.
            Self::Solo => Shares { solo: 3, ..none },
            // Each has a connection of its own.
            Self::Jobs => Shares { jobs: 24, ..none },
            Self::Permits => Shares {
                permits: 48,
                ..none
            },
            // Each of the first has a connection of its own.
            Self::Together => Shares {
                together: 12,
                beside: 8,
                ..none
            },
            // Each of the last two has a connection of its own. So many readers that without a wish of the writers there is always
            // somebody who reads.
            Self::Shared => Shares {
                readers: 16,
                vouchers: 4,
                writers: 3,
                ..none
            },
            Self::Election => Shares {
                candidates: 16,
                observers: 2,
                ..none
            },
            Self::Crowd => Shares { crowd: 6, ..none },
            Self::Linger => Shares {
                mutex: 12,
                fenced: 4,
                bank: 4,
                ..none
            },
            // Many wait for each lock: most turns pass on in memory, and every process wants each name. Bank and
            // fenced tasks cost the server most, and a stock's history is the more lenient the more is under way.
            Self::Mixed => Shares {
                mutex: 768,
                fenced: 8,
                tickets: 400,
                stock: 32,
                bank: 6,
                solo: 4,
                ..none
            },
        }
    }
}

/// How many counters each kind of work has: many tasks add to each.
pub const COUNTERS: u32 = 6;

/// How many semaphores there are.
const SEMAPHORES: u32 = 6;

/// The name of a counter that many tasks use.
#[must_use]
pub fn counter(word: &str, random: &mut ChaCha8Rng) -> String {
    format!("{word}:{}", random.random_range(0..COUNTERS))
}

/// A semaphore, by its name and the number of its permits.
pub type Semaphore = (String, u32);

/// All semaphores: of 1 to 4 permits.
pub fn semaphores() -> impl Iterator<Item = Semaphore> {
    (0..SEMAPHORES).map(|number| (format!("permits:{number}"), 1 + number % 4))
}

/// What a slot of a semaphore is called, as the library calls it.
#[must_use]
pub fn slot(semaphore: &str, slot: u32) -> String {
    format!("{semaphore}#{slot}")
}

/// What only one has who takes several permits, as the library calls it.
#[must_use]
pub fn turnstile(semaphore: &str) -> String {
    format!("{semaphore}#many")
}

/// What the locks are called that are taken together, before their numbers.
pub const TOGETHER: &str = "together";

/// What the locks are called that are held shared, before their numbers.
pub const SHARED_LOCKS: &str = "shared";

/// How many locks are held shared: few, so that many want each.
pub const SHARED_NAMES: u32 = 4;

/// How many of these are used in transactions, the first ones: the rows of the others are purged.
pub const SHARED_IN_TRANSACTIONS: u32 = 2;

/// The most names of locks that are taken together, and of elections: few, so that many want each.
pub const CROWDED: u32 = 8;

/// How many locks all kinds of clients want at once.
pub const CROWD_NAMES: u32 = 2;

/// How far away from the server the second worker of each four is in the workload `crowd`, there and back.
const FAR: Duration = Duration::from_millis(150);

/// The stripe of one of them.
#[must_use]
pub fn busy_stripe(random: &mut ChaCha8Rng) -> u32 {
    let word = if random.random() { "tickets" } else { "stock" };
    crc32fast::hash(counter(word, random).as_bytes()) % 100
}

/// What a run's workers need to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Where everything random comes from.
    pub seed: u64,
    /// What the workers do.
    pub workload: Workload,
    /// The lease of most locks, in milliseconds.
    pub ttl_ms: u64,
    /// How long a released lease idles, in milliseconds.
    #[serde(default)]
    pub linger_ms: u64,
    /// How many names each kind of work has: tasks and workers share them.
    pub names: u32,
    /// The stocks lie within 0 and this.
    pub stock: i64,
    /// Where the resource that checks tokens listens.
    pub resource: SocketAddr,
    /// How much longer than a ttl one may wait for a lock that nobody holds, in milliseconds.
    pub patience_ms: u64,
    /// How often others may have a lock while a worker waits for it.
    #[serde(default)]
    pub passed_over: Option<u64>,
    /// By how much what the tasks of one client do has to be apart to be in order, in milliseconds; none where a worker does not write that its
    /// tasks have a client each.
    #[serde(default)]
    pub in_order_within_ms: Option<u64>,
    /// By how much a call may take longer than it said, in milliseconds.
    #[serde(default)]
    pub ends_within_ms: Option<u64>,
    /// Whether plain leases exclude: not when the server's clock is stepped.
    pub leases_exclude: bool,
    /// Whether a read shows what others have committed: not where each worker reads from a server of its own.
    pub reads_are_current: bool,
}

impl Setup {
    /// The lease of most locks.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    /// How long a released lease idles.
    #[must_use]
    pub fn linger(&self) -> Duration {
        Duration::from_millis(self.linger_ms)
    }

    /// How far away from the server the worker in this slot is, there and back.
    #[must_use]
    pub fn distance(&self, slot: u32) -> Duration {
        if self.workload == Workload::Crowd && slot % 4 == 1 {
            FAR
        } else {
            Duration::ZERO
        }
    }

    /// Where the unprotected values are.
    #[must_use]
    pub fn shared(directory: &Path) -> PathBuf {
        directory.join(SHARED)
    }

    /// Which of the oracle's checks hold.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules {
            leases_exclude: self.leases_exclude,
            served_within: Some(self.patience_ms * 1_000_000),
            passed_over: self.passed_over,
            in_order_within: self.in_order_within_ms.map(|apart| apart * 1_000_000),
            ends_within: self.ends_within_ms.map(|most| most * 1_000_000),
            ..Rules::default()
        }
    }

    /// Writes it for the workers.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        fs::write(path(directory), serde_json::to_vec_pretty(self)?)
    }

    /// Reads it.
    ///
    /// # Errors
    ///
    /// If the directory is not one of a run.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let path = path(directory);
        let text = fs::read(&path).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!(
                    "{} cannot be read; is this the directory of a run? {error}",
                    path.display()
                ),
            )
        })?;
        Ok(serde_json::from_slice(&text)?)
    }
}

fn path(directory: &Path) -> PathBuf {
    directory.join("setup.json")
}
