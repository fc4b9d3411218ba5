//! What can be broken. Each fault has a file of its own.

mod client_clock;
mod connections;
mod cut;
mod disk;
mod kill_query;
mod kill_session;
mod kill_settlement;
mod link;
mod packet;
mod purge;
mod read_only;
mod server_clock;
mod server_kill;
mod slow_packet;
mod statement_time;
mod wait_timeout;
mod worker_kill;
mod worker_stop;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use tokio::sync::watch;

use crate::fleet::{Fleet, Slot};
use crate::history::Unavailable;
use crate::server::{Node, Servers, Topology};
use crate::setup::Setup;
use crate::tallies::Tallies;
use crate::wall_clock::Clock;

/// Faults of one lane come one after another, those of different lanes at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// Single packets and links between worker and server.
    Wire,
    /// Sessions on the server.
    Session,
    /// Worker processes.
    Worker,
    /// The server as a whole.
    Server,
    /// What sessions are running.
    Query,
}

impl Lane {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Wire,
        Self::Session,
        Self::Worker,
        Self::Server,
        Self::Query,
    ];

    /// The longest time between the beginnings of two faults, unless the first one takes longer.
    #[must_use]
    pub fn longest_gap(self) -> Duration {
        Duration::from_millis(match self {
            Self::Wire => 250,
            Self::Session => 800,
            Self::Worker => 5_000,
            Self::Server => 6_500,
            Self::Query => 2_000,
        })
    }

    /// The shortest time without a fault.
    #[must_use]
    pub fn shortest_rest(self) -> Duration {
        Duration::from_millis(match self {
            Self::Wire | Self::Session => 1,
            Self::Worker | Self::Server | Self::Query => 300,
        })
    }
}

/// What stops a fault from being done.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Something that can be broken, and mended again.
pub trait Fault: Send + Sync {
    /// What it is called in `--faults` and in reports.
    fn name(&self) -> &'static str;

    /// What it must not overlap with.
    fn lane(&self) -> Lane;

    /// How often it is drawn, beside the others of its lane.
    fn weight(&self) -> u32;

    /// Whether a run has it that names no faults.
    fn is_default(&self) -> bool {
        true
    }

    /// Whether it can be done here at all.
    fn is_possible(&self, _rig: &Rig) -> bool {
        true
    }

    /// Breaks and mends it. Whether it struck; what strikes later counts itself.
    fn strike<'a>(
        &'a self,
        rig: &'a Rig,
        random: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<bool, Failure>>;
}

/// Every fault there is.
#[must_use]
pub fn all() -> Vec<Box<dyn Fault>> {
    vec![
        Box::new(cut::Cut),
        Box::new(packet::LOST_REPLY),
        Box::new(packet::LOST_COMMIT_REPLY),
        Box::new(packet::LOST_PACKET),
        Box::new(packet::FORWARDED_AND_CUT),
        Box::new(packet::RESET),
        Box::new(packet::TRUNCATED),
        Box::new(packet::TRUNCATED_REPLY),
        Box::new(packet::LATE_COMMAND),
        Box::new(packet::HALF_OPEN),
        Box::new(link::Delay),
        Box::new(link::Partition),
        Box::new(kill_session::KillSession),
        Box::new(kill_query::KillQuery),
        Box::new(kill_settlement::KillSettlement),
        Box::new(slow_packet::SlowPacket),
        Box::new(purge::Purge),
        Box::new(worker_stop::WorkerStop),
        Box::new(worker_kill::WorkerKill),
        Box::new(client_clock::ClientClock),
        Box::new(server_kill::ServerKill),
        Box::new(read_only::ReadOnly),
        Box::new(connections::Connections),
        Box::new(wait_timeout::WaitTimeout),
        Box::new(statement_time::StatementTime),
        Box::new(server_clock::ServerClock),
        Box::new(disk::DiskFull),
    ]
}

/// What faults have to work with.
pub struct Rig {
    /// What the run agreed on.
    pub setup: Setup,
    /// The servers under test.
    pub servers: Arc<Servers>,
    /// The workers.
    pub fleet: Fleet,
    /// The database's name.
    pub database: String,
    /// The account of the workers.
    pub account: String,
    /// Its password.
    pub password: String,
    /// Looks at the servers' counters.
    pub tallies: Tallies,
    /// The servers' clocks, if they can be stepped.
    pub server_clocks: Vec<Clock>,
    /// Becomes true when the load ends.
    pub ending: watch::Sender<bool>,
    /// What struck, by its name.
    pub struck: Mutex<BTreeMap<&'static str, u64>>,
    /// Whom it left without service, and when.
    pub unavailable: Mutex<Vec<Unavailable>>,
}

impl Rig {
    /// A worker's place, at random.
    pub fn any_slot(&self, random: &mut ChaCha8Rng) -> &Arc<Slot> {
        &self.fleet.slots[random.random_range(0..self.fleet.slots.len())]
    }

    /// A server, at random.
    pub fn any_node(&self, random: &mut ChaCha8Rng) -> &Node {
        &self.servers.nodes[random.random_range(0..self.servers.nodes.len())]
    }

    /// A server that takes writes, at random.
    pub fn any_writer(&self, random: &mut ChaCha8Rng) -> &Node {
        match self.servers.topology {
            Topology::AllWrite => self.any_node(random),
            Topology::SinglePrimary => self.servers.writer(),
        }
    }

    /// Counts a fault that struck.
    pub fn count(&self, name: &'static str) {
        let mut struck = self.struck.lock().unwrap_or_else(PoisonError::into_inner);
        *struck.entry(name).or_default() += 1;
    }

    /// What struck so far, also what waited in the proxies.
    #[must_use]
    pub fn struck(&self) -> BTreeMap<&'static str, u64> {
        let mut all = self
            .struck
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for slot in &self.fleet.slots {
            for (name, count) in slot.wire.struck() {
                *all.entry(name).or_default() += count;
            }
        }
        all
    }

    /// Notes that a worker, or all of them, could not be served from an instant until now.
    pub fn note_outage(&self, worker: Option<u32>, from: u64) {
        self.note(worker, false, from);
    }

    /// Notes that a worker's process stood still from an instant until now.
    pub fn note_stop(&self, worker: Option<u32>, from: u64) {
        self.note(worker, true, from);
    }

    fn note(&self, worker: Option<u32>, stopped: bool, from: u64) {
        let to = crate::instant::now();
        let mut all = self
            .unavailable
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.push(Unavailable {
            worker,
            stopped,
            silent: false,
            from,
            to,
        });
    }

    /// Waits, but no longer than the load lasts. Whether the load goes on.
    pub async fn pause(&self, time: Duration) -> bool {
        let mut ending = self.ending.subscribe();
        tokio::time::timeout(time, ending.wait_for(|ending| *ending))
            .await
            .is_err()
    }

    /// The sessions of the workers on a server.
    pub async fn sessions(&self, node: &Node) -> Vec<u64> {
        let sql = format!(
            "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{}' ORDER BY ID",
            self.account
        );
        node.numbers(&sql).await.unwrap_or_default()
    }
}
