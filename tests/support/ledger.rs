//! Load that keeps books: every acknowledged change is written down, and the database has to agree.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "included by several tests, each of which uses its own part"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tag_lock::{Error, LockClient, LockState};
use tokio::task::JoinSet;

use crate::support::{TestDatabase, number};

/// Longer than any test: a lease that ends by itself would hide one that leaked.
pub const TTL: Duration = Duration::from_secs(3_600);
/// More than the stock ever is.
const SHELF: i64 = 40;
/// Locks that tasks of several clients want.
const SHARED_LOCKS: usize = 3;

/// What was acknowledged.
#[derive(Debug, Default)]
pub struct Ledger {
    pub tickets: Vec<i64>,
    pub sum: i64,
    pub stock: i64,
    pub refused: u64,
    pub exchanged: i64,
    pub once: i64,
    pub holds: u64,
    pub reads: u64,
    /// Requests that got an error: what was asked, and the error.
    pub errors: Vec<String>,
}

/// Tasks that work on counters and locks until they are told to stop.
pub struct Load {
    stop: Arc<AtomicBool>,
    /// The stock was sold out once, or full.
    refused: Arc<AtomicBool>,
    tasks: JoinSet<Ledger>,
}

/// What the holders of a shared lock see of each other, outside the database.
#[derive(Default)]
struct Held {
    inside: AtomicBool,
    fence: AtomicU64,
}

impl Load {
    /// Starts the same tasks for each client.
    pub fn start(clients: &[LockClient], seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let refused = Arc::new(AtomicBool::new(false));
        let shared: Arc<[Held]> = (0..SHARED_LOCKS).map(|_| Held::default()).collect();
        let mut tasks = JoinSet::new();
        for (client_number, client) in clients.iter().enumerate() {
            for task in 0..20_usize {
                let worker = Worker {
                    client: client.clone(),
                    stop: Arc::clone(&stop),
                    refused: Arc::clone(&refused),
                    random: StdRng::seed_from_u64(
                        seed ^ (client_number as u64) << 32 ^ task as u64,
                    ),
                    name: format!("{client_number}/{task}"),
                    ledger: Ledger::default(),
                };
                let shared = Arc::clone(&shared);
                tasks.spawn(async move {
                    match task {
                        0..5 => worker.draw_tickets().await,
                        5..8 => worker.add_sums().await,
                        8..12 => worker.trade().await,
                        12..14 => worker.exchange().await,
                        14..16 => worker.add_once().await,
                        16..18 => worker.lock_alone().await,
                        _ => worker.lock_shared(&shared).await,
                    }
                });
            }
        }
        Self {
            stop,
            refused,
            tasks,
        }
    }

    /// Lets the load run until `done`, and until all kinds of work were done: a slow machine comes to a refusal later.
    pub async fn until(&mut self, mut done: impl FnMut() -> bool) {
        while !done() || !self.refused.load(Ordering::Relaxed) {
            if let Some(ended) = self.tasks.try_join_next() {
                panic!("a task ended early: {ended:?}");
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Stops the load and adds up the books.
    pub async fn finish(mut self) -> Ledger {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Ledger::default();
        while let Some(ledger) = self.tasks.join_next().await {
            all.add(ledger.expect("a task without a panic"));
        }
        all
    }
}

impl Ledger {
    fn add(&mut self, other: Self) {
        self.tickets.extend(other.tickets);
        self.sum += other.sum;
        self.stock += other.stock;
        self.refused += other.refused;
        self.exchanged += other.exchanged;
        self.once += other.once;
        self.holds += other.holds;
        self.reads += other.reads;
        self.errors.extend(other.errors);
    }

    /// Compares the books with the database, which must be at rest, and asserts that no request failed.
    pub async fn check(&self, database: &TestDatabase) {
        assert!(
            self.errors.is_empty(),
            "requests failed: {:#?}",
            self.errors
        );
        let mut connection = database.connection().await;
        let mut value = async |name: &str| {
            let sql = format!(
                "SELECT COALESCE(SUM(count), 0) FROM t_tag_lock WHERE kind = 2 AND lock_name = '{name}'"
            );
            number(&mut connection, &sql).await
        };
        let drawn: BTreeSet<i64> = self.tickets.iter().copied().collect();
        assert_eq!(drawn.len(), self.tickets.len(), "a ticket was drawn twice");
        let count = i64::try_from(self.tickets.len()).expect("few tickets");
        assert!(drawn.iter().copied().eq(1..=count), "tickets have gaps");
        assert_eq!(value("tickets").await, count, "tickets");
        assert_eq!(value("sum").await, self.sum, "the sum of additions");
        assert_eq!(value("stock").await, self.stock, "stock");
        assert_eq!(value("exchanged").await, self.exchanged, "exchanges");
        assert_eq!(value("once").await, self.once, "additions with an id");
        let held = "SELECT COUNT(*) FROM t_tag_lock WHERE kind = 1 AND status <> 0 AND description = 'load'";
        assert_eq!(number(&mut connection, held).await, 0, "leases that leaked");
        let worked = [
            count > 0,
            self.exchanged > 0,
            self.once > 0,
            self.holds > 0,
            self.refused > 0,
            self.reads > 0,
        ];
        assert_eq!(worked, [true; 6], "all kinds of work were done: {self:?}");
    }
}

/// One task of the load.
struct Worker {
    client: LockClient,
    stop: Arc<AtomicBool>,
    refused: Arc<AtomicBool>,
    random: StdRng,
    name: String,
    ledger: Ledger,
}

impl Worker {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Writes an error down; the value otherwise.
    fn noted<T>(&mut self, what: &str, result: Result<T, Error>) -> Option<T> {
        result
            .map_err(|error| self.ledger.errors.push(format!("{what}: {error:?}")))
            .ok()
    }

    async fn draw_tickets(mut self) -> Ledger {
        let client = self.client.clone();
        let counter = client.counter("tickets");
        while self.goes_on() {
            let result = counter.add(1).await;
            if let Some(ticket) = self.noted("add", result) {
                self.ledger.tickets.push(ticket);
            }
        }
        self.ledger
    }

    async fn add_sums(mut self) -> Ledger {
        let client = self.client.clone();
        let counter = client.counter("sum");
        while self.goes_on() {
            let delta = self.random.random_range(-1_000..=1_000);
            let result = counter.add(delta).await;
            if self.noted("add", result).is_some() {
                self.ledger.sum += delta;
            }
            let result = counter.get().await;
            self.ledger.reads += u64::from(self.noted("get", result).is_some());
            let result = client.list("", None, 5).await;
            self.ledger.reads += u64::from(self.noted("list", result).is_some());
        }
        self.ledger
    }

    /// Takes one at a time, and now and then brings some.
    async fn trade(mut self) -> Ledger {
        let client = self.client.clone();
        let counter = client.counter("stock");
        while self.goes_on() {
            let delta = if self.random.random_bool(0.15) { 5 } else { -1 };
            let result = counter.add_within(delta, 0..=SHELF).await;
            match self.noted("add_within", result) {
                Some(Some(left)) => {
                    assert!((0..=SHELF).contains(&left), "{left} in stock");
                    self.ledger.stock += delta;
                }
                Some(None) => {
                    self.ledger.refused += 1;
                    self.refused.store(true, Ordering::Relaxed);
                }
                None => {}
            }
        }
        self.ledger
    }

    async fn exchange(mut self) -> Ledger {
        let client = self.client.clone();
        let counter = client.counter("exchanged");
        let mut expected = 0;
        while self.goes_on() {
            let result = counter.compare_exchange(expected, expected + 1).await;
            match self.noted("compare_exchange", result) {
                Some(Ok(_)) => {
                    self.ledger.exchanged += 1;
                    expected += 1;
                }
                Some(Err(found)) => expected = found,
                None => {}
            }
        }
        self.ledger
    }

    async fn add_once(mut self) -> Ledger {
        let client = self.client.clone();
        let counter = client.counter("once");
        let mut operation = 0;
        while self.goes_on() {
            operation += 1;
            let id = format!("{}/{operation}", self.name);
            let first = counter.add_once(&id, 1).await;
            let Some(first) = self.noted("add_once", first) else {
                continue;
            };
            self.ledger.once += 1;
            let second = counter.add_once(&id, 1).await;
            if let Some(second) = self.noted("add_once", second) {
                assert_eq!(second, first, "the repeat of an operation");
            }
        }
        self.ledger
    }

    /// Locks that nobody else wants: what is acknowledged stands in the table.
    async fn lock_alone(mut self) -> Ledger {
        let client = self.client.clone();
        let name = format!("alone {}", self.name);
        let mut last = 0;
        while self.goes_on() {
            let request = client.lock(&name).ttl(TTL).description("load");
            let Some(guard) = self.noted("acquire", request.acquire().await) else {
                continue;
            };
            assert!(guard.fencing_token() > last, "a fencing token went back");
            last = guard.fencing_token();
            let result = guard.release().await;
            if self.noted("release", result).is_none() {
                continue;
            }
            self.ledger.holds += 1;
            let result = client.inspect(&name).await;
            if let Some(info) = self.noted("inspect", result) {
                let info = info.expect("a row");
                assert_eq!(info.state, LockState::Free, "after an acknowledged release");
            }
        }
        self.ledger
    }

    async fn lock_shared(mut self, shared: &[Held]) -> Ledger {
        let client = self.client.clone();
        while self.goes_on() {
            let number = self.random.random_range(0..shared.len());
            let held = &shared[number];
            let name = format!("shared {number}");
            let request = client.lock(&name).ttl(TTL).description("load");
            let Some(guard) = self.noted("acquire", request.acquire().await) else {
                continue;
            };
            assert!(!held.inside.swap(true, Ordering::SeqCst), "two holders");
            let before = held.fence.swap(guard.fencing_token(), Ordering::SeqCst);
            assert!(guard.fencing_token() > before, "a fencing token went back");
            tokio::task::yield_now().await;
            held.inside.store(false, Ordering::SeqCst);
            let result = guard.release().await;
            self.ledger.holds += u64::from(self.noted("release", result).is_some());
        }
        self.ledger
    }
}

/// How many rounds a test runs: `TAG_LOCK_TEST_ROUNDS`, or `default`.
pub fn rounds(default: u64) -> u64 {
    std::env::var("TAG_LOCK_TEST_ROUNDS").map_or(default, |rounds| {
        rounds.parse().expect("TAG_LOCK_TEST_ROUNDS is a number")
    })
}

/// The seed of a test's chances: `TAG_LOCK_TEST_SEED`, or a fresh one; printed, so that a failure shows it.
pub fn seed() -> u64 {
    let seed = std::env::var("TAG_LOCK_TEST_SEED").map_or_else(
        |_| rand::random(),
        |seed| seed.parse().expect("TAG_LOCK_TEST_SEED is a number"),
    );
    println!("TAG_LOCK_TEST_SEED={seed}");
    seed
}
