//! A client process that is stopped at any point delays nobody, and one that is stopped in the middle of an error path
//! delays others for about the second after which the server ends its transaction.
//!
//! `TAG_LOCK_TEST_ROUNDS` multiplies the stops (1 by default).

#![cfg(unix)]

use std::io::Read;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rustix::process::Signal;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};
use tag_lock::LockClient;
use tokio::sync::Mutex;

use crate::support::lateness::Lateness;
use crate::support::proxy::{Command, Fault, Gate, Hold, Proxy, once};
use crate::support::{TestDatabase, eventually, number, run, signal, spawn_worker};

/// About a second is what the server needs to end a transaction. A machine that is late gets more.
const BOUND: Duration = Duration::from_secs(5);
/// What the server allows an open transaction.
const IDLE: Duration = Duration::from_secs(1);
const STRIPES: u32 = 100;

/// Two processes at work and a server are enough for a machine.
static MACHINE: Mutex<()> = Mutex::const_new(());

/// A process that works behind a proxy, and one that must not be delayed: this one.
struct Stage {
    database: TestDatabase,
    proxy: Proxy,
    worker: Worker,
    client: LockClient,
    names: Vec<String>,
    rounds: AtomicU64,
    connection: Mutex<MySqlConnection>,
    lateness: Lateness,
}

/// The process that is stopped; it ends with this.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        // Also when it is stopped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Stage {
    async fn new() -> Self {
        let database = TestDatabase::new().await;
        let proxy = Proxy::before(&database.url).await.unwrap();
        let variables = [("STALL_URL", proxy.url(&database.url))];
        let stage = Self {
            worker: Worker(spawn_worker("stall_worker", &variables)),
            client: database.client().await,
            names: names("other"),
            rounds: AtomicU64::new(0),
            connection: Mutex::new(database.connection().await),
            lateness: Lateness::watch(),
            proxy,
            database,
        };
        stage.worker_goes_on().await;
        stage.others_go_on().await;
        stage
    }

    fn stop(&self) {
        signal(&self.worker.0, Signal::STOP);
    }

    fn go_on(&self) {
        signal(&self.worker.0, Signal::CONT);
    }

    /// Waits until the process has done something.
    async fn worker_goes_on(&self) {
        let sql = "SELECT CAST(COALESCE(SUM(count), 0) AS SIGNED) FROM t_tag_lock \
                   WHERE kind = 2 AND lock_name LIKE 'stopped%'";
        let before = number(&mut *self.connection.lock().await, sql).await;
        eventually("the worker goes on", async || {
            number(&mut *self.connection.lock().await, sql).await > before
        })
        .await;
    }

    /// Locks, releases and counts a name that exists and one that does not on every stripe; how long the slowest of them took, without what the machine was
    /// late by.
    async fn others_go_on(&self) -> Duration {
        let before = self.lateness.so_far();
        let took = self.all_others().await;
        took.saturating_sub(self.lateness.so_far().saturating_sub(before))
    }

    async fn all_others(&self) -> Duration {
        let client = &self.client;
        let round = self.rounds.fetch_add(1, Relaxed);
        let new = names(&format!("other, round {round},"));
        let operations = self.names.iter().zip(&new).map(async |(name, new)| {
            let begun = Instant::now();
            let guard = client.lock(name).try_acquire().await.unwrap();
            guard
                .expect("nobody else wants it")
                .release()
                .await
                .unwrap();
            client.counter(name).add(1).await.unwrap();
            client.counter(new).add(1).await.unwrap();
            begun.elapsed()
        });
        let slowest = join_all(operations).await.into_iter().max();
        slowest.unwrap()
    }

    /// How many stripes are locked.
    async fn locked_stripes(&self) -> u32 {
        let mut locked = 0;
        for stripe in 0..STRIPES {
            let sql = format!(
                "SELECT COUNT(*) FROM (SELECT 1 FROM t_tag_lock WHERE lock_name = 'center_lock_{stripe:02}' \
                 AND kind = 0 AND slot = 0 LIMIT 1 FOR UPDATE SKIP LOCKED) k"
            );
            locked += u32::from(number(&mut *self.connection.lock().await, &sql).await == 0);
        }
        locked
    }

    /// The connections to this database on which a statement that contains `text` runs, this one excepted.
    async fn running(&self, text: &str) -> Vec<u64> {
        let sql = format!(
            "SELECT CAST(id AS UNSIGNED) FROM information_schema.processlist WHERE db = '{}' AND command = 'Query' \
             AND info LIKE '%{text}%' AND id <> CONNECTION_ID()",
            self.database.name
        );
        let mut connection = self.connection.lock().await;
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut *connection);
        let rows = rows.await.unwrap();
        rows.iter().map(|row| row.get_unchecked(0)).collect()
    }

    async fn kill_query(&self, id: u64) {
        // It may have ended.
        let sql = AssertSqlSafe(format!("KILL QUERY {id}"));
        let mut connection = self.connection.lock().await;
        let _ = sqlx::raw_sql(sql).execute(&mut *connection).await;
    }

    async fn remove(self) {
        drop(self.worker);
        drop(self.client);
        self.database.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_stopped_anywhere_delays_nobody() {
    let _alone = MACHINE.lock().await;
    let stage = Stage::new().await;
    let rollbacks = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&rollbacks);
    stage.proxy.on_command(move |command| {
        counted.fetch_add(u64::from(command.contains_word("ROLLBACK")), Relaxed);
        Fault::Pass
    });
    let (mut at_work, mut slowest) = (Vec::new(), Vec::new());
    for round in 0..25 * rounds() {
        at_work.push(stage.others_go_on().await);
        random_pause(20_000).await;
        let connections = stage.proxy.open_connections();
        stage.stop();
        // They are done while it is stopped.
        slowest.push(stage.others_go_on().await);
        if round % 10 == 9 {
            // No transaction was open that the server had to end by now.
            tokio::time::sleep(IDLE * 2).await;
            let ended = stage.proxy.open_connections() < connections;
            assert!(
                !ended || rollbacks.load(Relaxed) > 0,
                "it was stopped in a transaction"
            );
        }
        stage.go_on();
        stage.worker_goes_on().await;
    }
    report("at work", at_work);
    report("stopped anywhere", slowest);
    stage.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_stopped_before_its_rollback_delays_others_for_a_second() {
    let _alone = MACHINE.lock().await;
    let stage = Stage::new().await;
    let mut foreign = stage.database.connection().await;
    let mut slowest = Vec::new();
    while slowest.len() < 4 * rounds() {
        let gate = Gate::new();
        let hold = Fault::HoldCommand(Hold::Until(gate.clone()));
        let is_rollback = |command: &Command| command.contains_word("ROLLBACK");
        stage.proxy.on_command(once(is_rollback, hold));
        // A packet comes to wait for this stripe, with lower ones in hand, and fails there.
        run(&mut foreign, "START TRANSACTION").await;
        let stripe = "lock_name = 'center_lock_90' AND kind = 0 AND slot = 0";
        let sql = format!("SELECT COUNT(*) FROM t_tag_lock WHERE {stripe} FOR UPDATE");
        number(&mut foreign, &sql).await;
        let killed = slowest.len() % 4 != 3;
        if killed {
            eventually("a packet waits for the stripe", async || {
                let waiting = stage.running("kind=0%FOR UPDATE").await;
                for id in &waiting {
                    stage.kill_query(*id).await;
                }
                !waiting.is_empty()
            })
            .await;
        }
        // Otherwise it runs into its lock wait timeout.
        gate.reached().await;
        stage.stop();
        run(&mut foreign, "ROLLBACK").await;
        let locked = stage.locked_stripes().await;
        let delay = stage.others_go_on().await;
        println!("with {locked} stripes locked (killed: {killed}), others took {delay:.2?}");
        if locked > 0 {
            slowest.push(delay);
        }
        stage.go_on();
        gate.open();
        stage.worker_goes_on().await;
    }
    report("stopped before the rollback", slowest);
    stage.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_stopped_near_an_error_delays_others_for_a_second() {
    let _alone = MACHINE.lock().await;
    let stage = Stage::new().await;
    let mut slowest = Vec::new();
    for _ in 0..25 * rounds() {
        random_pause(20_000).await;
        for id in stage.running("t_tag_lock").await {
            stage.kill_query(id).await;
        }
        random_pause(1_000).await;
        stage.stop();
        slowest.push(stage.others_go_on().await);
        stage.go_on();
        stage.worker_goes_on().await;
    }
    report("stopped near an error", slowest);
    stage.remove().await;
}

fn report(what: &str, mut slowest: Vec<Duration>) {
    slowest.sort();
    let (rounds, half) = (slowest.len(), slowest[slowest.len() / 2]);
    let worst = *slowest.last().unwrap();
    println!(
        "{what}, {rounds} rounds: the others' slowest took {half:.2?} in half of them, {worst:.2?} at worst"
    );
    assert!(worst < BOUND, "others were delayed for {worst:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the process that is stopped"]
async fn stall_worker() {
    // The process must not outlive the test.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let url = std::env::var("STALL_URL").unwrap();
    let client = LockClient::connect(&url).await.unwrap();
    // What was killed may fail; what matters is that it is at work whenever it can be.
    let work = (0..STRIPES).map(async |stripe| {
        let name = name_of("stopped", stripe);
        for round in 0_u64.. {
            if let Ok(guard) = client.lock(&name).acquire().await {
                let _ = guard.release().await;
            }
            // A name that exists, and one that does not and needs its stripe.
            let _ = client.counter(&name).add(1).await;
            let new = name_of(&format!("stopped, round {round},"), stripe);
            let _ = client.counter(&new).add(1).await;
        }
    });
    join_all(work).await;
}

/// A name of each stripe.
fn names(prefix: &str) -> Vec<String> {
    (0..STRIPES).map(|stripe| name_of(prefix, stripe)).collect()
}

fn name_of(prefix: &str, stripe: u32) -> String {
    (0..)
        .map(|number| format!("{prefix} {number}"))
        .find(|name| crc32fast::hash(name.as_bytes()) % STRIPES == stripe)
        .unwrap()
}

/// Up to so many microseconds: moments are random, nothing depends on them.
async fn random_pause(micros: u64) {
    let pause = rand::random_range(0..=micros);
    tokio::time::sleep(Duration::from_micros(pause)).await;
}

fn rounds() -> usize {
    let rounds = std::env::var("TAG_LOCK_TEST_ROUNDS");
    rounds.map_or(1, |rounds| rounds.parse().unwrap())
}
