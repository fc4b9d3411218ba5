//! Holders that are killed, and holders that are stopped past the end of their lease and then go on.
//!
//! `TAG_LOCK_TEST_ROUNDS` raises the number of holders (8 killed, 4 stopped).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support;
use crate::support::fenced;
use crate::support::lateness::{Lateness, assert_on_any_machine, with_ttl};
use crate::support::{TestDatabase, signal, spawn_worker};
use futures_util::FutureExt;
use rand::RngExt;
use rustix::process::Signal;
use tag_lock::{Error, LockClient};

/// What each round begins with: a machine that is late gets more.
const TTL: Duration = Duration::from_secs(2);
/// What may come on top of it, and of what the machine was late by. How long it takes is measured by the benchmark
/// `leases`.
const MARGIN: Duration = Duration::from_secs(1);
/// How often a holder that has found its lease lost writes all the same, as one that does not look would.
const STALE_WRITES: u32 = 20;

fn rounds(default: u32) -> u32 {
    let rounds = std::env::var("TAG_LOCK_TEST_ROUNDS").ok();
    rounds.map_or(default, |rounds| {
        rounds.parse().expect("a number of rounds")
    })
}

/// A worker and what it says. It is killed when the test is done with it.
struct Holder {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Holder {
    /// Starts one and waits until it says that it holds the lock.
    fn start(worker: &str, database: &TestDatabase, name: &str, ttl: Duration) -> (Self, u64) {
        let variables = [
            ("HOLDER_URL", database.url.clone()),
            ("HOLDER_LOCK", name.to_owned()),
            ("HOLDER_TTL", ttl.as_millis().to_string()),
        ];
        let mut process = spawn_worker(worker, &variables);
        let output = BufReader::new(process.stdout.take().expect("its output"));
        let mut holder = Self { process, output };
        let token = holder.says("held ").parse().expect("a token");
        (holder, token)
    }

    /// The rest of the next line that starts like this; others, such as the test runner's, are skipped.
    fn says(&mut self, start: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let length = self.output.read_line(&mut line).expect("its output");
            assert!(length > 0, "the holder ended before it said {start:?}");
            // The test runner does not end its own line before the first one of ours.
            if let Some((_, rest)) = line.split_once(start) {
                return rest.trim().to_owned();
            }
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).expect("only a test starts this")
}

fn ttl() -> Duration {
    Duration::from_millis(variable("HOLDER_TTL").parse().expect("a number"))
}

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").expect("the test listens");
    output.flush().expect("the test listens");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_holders_lock_is_had_after_its_ttl() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    for _ in 0..rounds(8) {
        with_ttl(TTL, async |ttl| killed(&database, &client, ttl).await).await;
    }
    database.remove().await;
}

async fn killed(database: &TestDatabase, client: &LockClient, ttl: Duration) {
    let name = format!("killed {:016x}", rand::random::<u64>());
    let (holder, token) = Holder::start("killed_holder", database, &name, ttl);
    let next = tokio::spawn({
        let client = client.clone();
        async move {
            let request = client.lock(&name).ttl(ttl);
            let guard = request.acquire().await.expect("a lock");
            (Instant::now(), guard)
        }
    });
    // At any moment of its renewals.
    let moment = rand::rng().random_range(Duration::ZERO..ttl);
    tokio::time::sleep(moment).await;
    let lateness = Lateness::watch();
    let killing = Instant::now();
    signal(&holder.process, Signal::KILL);
    let (granted, guard) = next.await.expect("a grant");
    let late = lateness.so_far();
    let took = granted.saturating_duration_since(killing);
    assert!(granted > killing, "granted while its holder lived");
    assert!(
        took <= ttl + MARGIN + late,
        "{took:?} after the kill, on a machine that was late by {late:?}"
    );
    assert_on_any_machine(guard.fencing_token() > token, "the token did not rise");
    guard.release().await.expect("it was held");
    println!("the takeover took {took:?} with a ttl of {ttl:?}");
}

#[tokio::test]
#[ignore = "the holder of a_killed_holders_lock_is_had_after_its_ttl"]
async fn killed_holder() {
    let client = LockClient::connect(&variable("HOLDER_URL"))
        .await
        .expect("connects");
    let lock = client.lock(&variable("HOLDER_LOCK")).ttl(ttl()).acquire();
    let guard = lock.await.expect("a lock");
    say(&format!("held {}", guard.fencing_token()));
    std::future::pending().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_holder_knows_that_it_lost_before_it_acts() {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    fenced::create(&mut connection).await;
    let client = database.client().await;
    let attempted = AtomicU32::new(0);
    for _ in 0..rounds(4) {
        with_ttl(TTL, async |ttl| {
            let tried = stopped(&database, &client, ttl).await;
            attempted.fetch_add(tried, Ordering::Relaxed);
        })
        .await;
    }
    println!("stopped holders: {attempted:?} writes attempted with old tokens, 0 accepted");
    database.remove().await;
}

/// How many writes it attempted with its old token.
async fn stopped(database: &TestDatabase, client: &LockClient, ttl: Duration) -> u32 {
    let mut connection = database.connection().await;
    let (mut holder, token) = Holder::start("stopped_holder", database, "stopped", ttl);
    holder.says("writes");
    let moment = rand::rng().random_range(Duration::ZERO..ttl / 2);
    tokio::time::sleep(moment).await;
    let stopping = Instant::now();
    signal(&holder.process, Signal::STOP);
    let next = client.lock("stopped").ttl(ttl).acquire();
    let next = next.await.expect("a lock");
    assert_on_any_machine(next.fencing_token() > token, "the token did not rise");
    // Past its whole ttl, by which the holder knows that it was stopped.
    tokio::time::sleep((ttl * 5 / 4).saturating_sub(stopping.elapsed())).await;
    signal_after(&holder.process, &mut connection, &next).await;
    let report = holder.says("report ");
    let numbers: Vec<u32> = report
        .split(' ')
        .map(|number| number.parse().expect("a number"))
        .collect();
    let [stops, held_after_stop, unsignalled, tried, accepted] = numbers[..] else {
        panic!("{report}");
    };
    assert_on_any_machine(held_after_stop == 0, "is_held() was true after the stop");
    assert_on_any_machine(unsignalled == 0, "lost() had not fired after the stop");
    assert!(tried > 0, "nothing was tried");
    assert_on_any_machine(accepted == 0, "the old token was accepted");
    assert!(stops > 0, "the holder did not notice the stop");
    assert!(next.is_held());
    next.release().await.expect("it was held");
    tried
}

/// Writes with the new token, then lets the holder go on.
async fn signal_after(
    holder: &Child,
    connection: &mut sqlx::mysql::MySqlConnection,
    next: &tag_lock::LockGuard,
) {
    assert!(fenced::write(connection, next.fencing_token(), "next").await);
    signal(holder, Signal::CONT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the holder of a_stopped_holder_knows_that_it_lost_before_it_acts"]
async fn stopped_holder() {
    let url = variable("HOLDER_URL");
    let client = LockClient::connect(&url).await.expect("connects");
    let lock = client.lock(&variable("HOLDER_LOCK")).ttl(ttl()).acquire();
    let guard = lock.await.expect("a lock");
    let mut connection = support::connect(&url).await;
    say(&format!("held {}", guard.fencing_token()));
    assert!(fenced::write(&mut connection, guard.fencing_token(), "holder").await);
    say("writes");

    let ttl = ttl();
    // Between two looks at the clock it was stopped, or the machine was very slow: both count as a stop.
    let (mut stops, mut held_after_stop, mut unsignalled) = (0, 0, 0);
    let mut before = Instant::now();
    loop {
        let now = Instant::now();
        let stopped = now - before > ttl;
        before = now;
        let held = guard.is_held();
        if stopped {
            stops += 1;
            held_after_stop += u32::from(held);
            unsignalled += u32::from(guard.lost().now_or_never().is_none());
        }
        if !held {
            break;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    // Others would have looked before; this one writes on.
    let mut accepted = 0;
    for _ in 0..STALE_WRITES {
        accepted += u32::from(fenced::write(&mut connection, guard.fencing_token(), "stale").await);
    }
    let released = guard.release().await;
    assert!(
        matches!(released, Err(Error::LockLost { .. })),
        "{released:?}"
    );
    say(&format!(
        "report {stops} {held_after_stop} {unsignalled} {STALE_WRITES} {accepted}"
    ));
}
