//! Storms of first-time inserts, releases, counters and deletes of old rows, from several processes: the *server's*
//! deadlock counter does not move. The same storm on the article's first version makes it move, so it can be seen.
//!
//! `TAG_LOCK_TEST_ROUNDS` multiplies the operations (1 by default).

#[allow(unreachable_pub, reason = "it belongs to the benchmark")]
#[path = "../../benches/race/contestants/article.rs"]
mod article;

use std::io::read_to_string;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::RngExt;
use rand::seq::SliceRandom;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};
use tag_lock::LockClient;
use tokio::task::JoinSet;

use self::article::{Article, Version};
use crate::support;
use crate::support::deadlocks::counted;
use crate::support::{
    TestDatabase, connect, connected, makes_deadlocks, no_deadlocks_since, number, patient, run,
    server_deadlocks, spawn_worker,
};

const PROCESSES: usize = 3;
const TASKS: usize = 32;
/// Of each task.
const OPERATIONS: usize = 60;
/// For so long all processes insert into one neighbourhood of names.
const WAVE: Duration = Duration::from_millis(100);
/// The names of a neighbourhood.
const NEIGHBOURS: u32 = 200;
const TTL: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_first_inserts_does_not_deadlock() {
    assert_server_counts_deadlocks().await;
    let database = TestDatabase::new().await;
    let before = server_deadlocks().await;
    let begun = Instant::now();
    let done = Workers::start("tag-lock", &database).finish().await;
    println!("tag-lock: {done} in {:.1?}", begun.elapsed());
    no_deadlocks_since(before).await;
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_storm_on_the_first_version_does() {
    let _makes_some = makes_deadlocks().await;
    assert_server_counts_deadlocks().await;
    let database = TestDatabase::empty().await;
    Article::create_tables(&database.url).await.unwrap();
    let before = counted().await;
    let mut workers = Workers::start("article", &database);
    let begun = Instant::now();
    // It gets through the storm in minutes, if at all: a few deadlocks are enough. A machine that lets few of its
    // tasks run at once may need another one.
    while counted().await - before < 20 {
        assert!(
            begun.elapsed() < Duration::from_secs(600),
            "this storm cannot see deadlocks"
        );
        if workers.have_ended() {
            workers = Workers::start("article", &database);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(workers);
    let deadlocks = counted().await - before;
    println!("the article's first version: the server counted {deadlocks} deadlocks");
    database.remove().await;
}

/// The counter of MySQL stands still where the performance schema is off.
async fn assert_server_counts_deadlocks() {
    if !support::is_mariadb() {
        let mut connection = connect(&support::server_url()).await;
        let on = number(&mut connection, "SELECT @@performance_schema").await;
        assert_eq!(on, 1, "the server does not count errors");
    }
}

/// The storm's processes; they end with this.
struct Workers(Vec<Child>);

impl Workers {
    fn start(subject: &str, database: &TestDatabase) -> Self {
        let variables = [
            ("STORM", subject.to_owned()),
            ("STORM_URL", database.url.clone()),
        ];
        Self(
            (0..PROCESSES)
                .map(|_| spawn_worker("storm_worker", &variables))
                .collect(),
        )
    }

    fn have_ended(&mut self) -> bool {
        self.0
            .iter_mut()
            .all(|worker| worker.try_wait().unwrap().is_some())
    }

    /// Waits for their ends; what they did.
    async fn finish(mut self) -> String {
        let mut done = [0; 3];
        for worker in &mut self.0 {
            let mut output = worker.stdout.take().unwrap();
            let reading = tokio::task::spawn_blocking(move || read_to_string(&mut output));
            let text = reading.await.unwrap().unwrap();
            assert!(worker.wait().unwrap().success(), "a worker failed:\n{text}");
            let counts = text.lines().find_map(|line| line.strip_prefix("done "));
            for (sum, count) in done.iter_mut().zip(counts.unwrap().split(' ')) {
                *sum += count.parse::<u64>().unwrap();
            }
        }
        let [locks, counters, deletes] = done;
        assert!(locks > 0 && counters > 0 && deletes > 0, "{done:?}");
        format!("{locks} locks, {counters} additions, {deletes} deleted rows")
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            // It may have ended by itself.
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a process of the storms"]
async fn storm_worker() {
    let url = std::env::var("STORM_URL").unwrap();
    let subject = Arc::new(match std::env::var("STORM").unwrap().as_str() {
        "article" => Subject::Article(Article::new(Version::First, &url, TASKS).unwrap()),
        _ => Subject::TagLock(connected(patient(&url)).await),
    });
    let operations = OPERATIONS * rounds();
    let done: Arc<[AtomicU64; 3]> = Arc::default();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (subject, done, url) = (Arc::clone(&subject), Arc::clone(&done), url.clone());
        tasks.spawn(async move {
            if task == 0 {
                let mut connection = connect(&url).await;
                run(
                    &mut connection,
                    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
                )
                .await;
                // For as long as the others are at work.
                while Arc::strong_count(&done) > 2 {
                    let deleted = subject.delete_old(&mut connection).await;
                    done[2].fetch_add(deleted, Ordering::Relaxed);
                }
                return;
            }
            for _ in 0..operations {
                // Half of them are first-time inserts; the others find the row, or where it was.
                let age = rand::rng().random_range(0..4_u64).saturating_sub(1);
                let name = name(wave() - age);
                if rand::random_bool(0.7) {
                    subject.lock_and_release(&name).await;
                    done[0].fetch_add(1, Ordering::Relaxed);
                } else {
                    subject.add(&name).await;
                    done[1].fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    let [locks, counters, deletes] = done.each_ref().map(|count| count.load(Ordering::Relaxed));
    println!("\ndone {locks} {counters} {deletes}");
}

/// What is stormed.
enum Subject {
    TagLock(LockClient),
    Article(Article),
}

impl Subject {
    async fn lock_and_release(&self, name: &str) {
        match self {
            Self::TagLock(client) => {
                // A lease that does not renew cannot pass in memory: every grant and release is a statement.
                let request = client.lock(name).ttl(TTL).auto_renew(rand::random());
                if let Some(guard) = request.try_acquire().await.unwrap() {
                    guard.release().await.unwrap();
                }
            }
            Self::Article(article) => {
                let result = match article.lock(name, TTL).await {
                    Ok(true) => article.unlock(name).await,
                    Ok(false) => Ok(()),
                    Err(error) => Err(error),
                };
                result.unwrap_or_else(|error| self.failed(&error));
            }
        }
    }

    async fn add(&self, name: &str) {
        match self {
            Self::TagLock(client) => drop(client.counter(name).add(1).await.unwrap()),
            Self::Article(article) => {
                let result = article.incr(name, 1).await.map(drop);
                result.unwrap_or_else(|error| self.failed(&error));
            }
        }
    }

    /// Deletes rows of an earlier wave by their primary keys, in one transaction that locks their stripes first.
    async fn delete_old(&self, connection: &mut MySqlConnection) -> u64 {
        let (table, kind, free) = match self {
            // Whoever holds a lock must find it; nobody misses a counter here.
            Self::TagLock(_) => ("t_tag_lock", "kind", "AND (kind = 2 OR status = 0)"),
            Self::Article(_) => ("article_lock", "0", ""),
        };
        let (wave, some) = (
            wave() - rand::rng().random_range(1..4),
            rand::random_range(1..=10),
        );
        let old =
            format!("SELECT lock_name, {kind} FROM {table} WHERE lock_name LIKE '{wave:012}:%'");
        let mut rows: Vec<(String, i64)> = sqlx::raw_sql(AssertSqlSafe(old))
            .fetch_all(&mut *connection)
            .await
            .unwrap()
            .iter()
            .map(|row| (row.get_unchecked(0), row.get_unchecked(1)))
            .collect();
        rows.shuffle(&mut rand::rng());
        rows.truncate(some);
        let mut stripes: Vec<u32> = rows.iter().map(|(name, _)| stripe(name)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let key = |name: &str, kind: i64| match self {
            Self::TagLock(_) => format!("lock_name = '{name}' AND kind = {kind} AND slot = 0"),
            Self::Article(_) => format!("lock_name = '{name}'"),
        };
        let locks = stripes.iter().map(|stripe| {
            let key = key(&format!("center_lock_{stripe:02}"), 0);
            format!("SELECT COUNT(*) FROM {table} WHERE {key} FOR UPDATE")
        });
        let deletes = rows.iter().map(|(name, kind)| {
            let key = key(name, *kind);
            format!("DELETE FROM {table} WHERE {key} {free}")
        });
        run(connection, "START TRANSACTION").await;
        let mut deleted = 0;
        for sql in locks.chain(deletes) {
            let result = sqlx::raw_sql(AssertSqlSafe(sql))
                .execute(&mut *connection)
                .await;
            match result {
                Ok(result) => deleted += result.rows_affected(),
                Err(error) => {
                    self.failed(&error);
                    run(connection, "ROLLBACK").await;
                    return 0;
                }
            }
        }
        run(connection, "COMMIT").await;
        deleted
    }

    /// A deadlock may hit anybody on the article's version, also for the hundredth time.
    fn failed(&self, error: &sqlx::Error) {
        assert!(matches!(self, Self::Article(_)), "{error}");
    }
}

/// The neighbourhood into which all processes insert now.
fn wave() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis() / WAVE.as_millis()).unwrap()
}

/// A name of a wave. Every other wave has neighbours of one stripe only.
fn name(wave: u64) -> String {
    let neighbour = rand::rng().random_range(0..NEIGHBOURS);
    let plain = format!("{wave:012}:{neighbour:03}");
    if wave.is_multiple_of(2) {
        return plain;
    }
    (0_u32..)
        .map(|extra| format!("{plain}:{extra:04}"))
        .find(|name| stripe(name) == 7)
        .unwrap()
}

fn stripe(name: &str) -> u32 {
    crc32fast::hash(name.as_bytes()) % 100
}

fn rounds() -> usize {
    let rounds = std::env::var("TAG_LOCK_TEST_ROUNDS");
    rounds.map_or(1, |rounds| rounds.parse().unwrap())
}
