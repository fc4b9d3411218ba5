//! Holders that are killed, and holders that are stopped past the end of their lease and then go on.
//!
//! `TAG_LOCK_TEST_ROUNDS` raises the number of holders (8 killed, 4 stopped).

#![allow(
    unreachable_pub,
    reason = "the support modules are written for all tests"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "support/fenced.rs"]
mod fenced;
mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use rand::Rng;
use rustix::process::Signal;
use support::{TestDatabase, signal, spawn_worker};
use tag_lock::{Error, LockClient};

const TTL: Duration = Duration::from_secs(1);
/// What a slow machine may add. How long it takes otherwise is measured by the benchmark `leases`.
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
    fn start(worker: &str, database: &TestDatabase, name: &str) -> (Self, u64) {
        let variables = [
            ("HOLDER_URL", database.url.clone()),
            ("HOLDER_LOCK", name.to_owned()),
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

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").expect("the test listens");
    output.flush().expect("the test listens");
}

#[tokio::test]
async fn a_killed_holders_lock_is_had_after_its_ttl() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut longest = Duration::ZERO;
    for _ in 0..rounds(8) {
        let (holder, token) = Holder::start("killed_holder", &database, "killed");
        let next = tokio::spawn({
            let client = client.clone();
            async move {
                let guard = client
                    .lock("killed")
                    .ttl(TTL)
                    .acquire()
                    .await
                    .expect("a lock");
                (Instant::now(), guard)
            }
        });
        // At any moment of its renewals.
        let moment = rand::rng().random_range(Duration::ZERO..TTL);
        tokio::time::sleep(moment).await;
        let killing = Instant::now();
        signal(&holder.process, Signal::KILL);
        let (granted, guard) = next.await.expect("a grant");
        let took = granted.saturating_duration_since(killing);
        assert!(granted > killing, "granted while its holder lived");
        assert!(took <= TTL + MARGIN, "{took:?} after the kill");
        assert!(guard.fencing_token() > token);
        guard.release().await.expect("it was held");
        longest = longest.max(took);
    }
    println!("the longest takeover took {longest:?} with a ttl of {TTL:?}");
    database.remove().await;
}

#[tokio::test]
#[ignore = "the holder of a_killed_holders_lock_is_had_after_its_ttl"]
async fn killed_holder() {
    let client = LockClient::connect(&variable("HOLDER_URL"))
        .await
        .expect("connects");
    let lock = client.lock(&variable("HOLDER_LOCK")).ttl(TTL).acquire();
    let guard = lock.await.expect("a lock");
    say(&format!("held {}", guard.fencing_token()));
    std::future::pending().await
}

#[tokio::test]
async fn a_stopped_holder_knows_that_it_lost_before_it_acts() {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    fenced::create(&mut connection).await;
    let client = database.client().await;
    let mut attempted = 0;
    for _ in 0..rounds(4) {
        let (mut holder, token) = Holder::start("stopped_holder", &database, "stopped");
        holder.says("writes");
        let moment = rand::rng().random_range(Duration::ZERO..TTL / 2);
        tokio::time::sleep(moment).await;
        let stopping = Instant::now();
        signal(&holder.process, Signal::STOP);
        let next = client
            .lock("stopped")
            .ttl(TTL)
            .acquire()
            .await
            .expect("a lock");
        assert!(next.fencing_token() > token);
        // Past its whole ttl, by which the holder knows that it was stopped.
        tokio::time::sleep((TTL * 5 / 4).saturating_sub(stopping.elapsed())).await;
        signal_after(&holder.process, &mut connection, &next).await;
        let report = holder.says("report ");
        let numbers: Vec<u32> = report
            .split(' ')
            .map(|number| number.parse().expect("a number"))
            .collect();
        let [stops, held_after_stop, unsignalled, tried, accepted] = numbers[..] else {
            panic!("{report}");
        };
        assert!(stops > 0, "the holder did not notice the stop");
        assert_eq!(held_after_stop, 0, "is_held() was true after the stop");
        assert_eq!(unsignalled, 0, "lost() had not fired after the stop");
        assert!(tried > 0, "nothing was tried");
        assert_eq!(
            accepted, 0,
            "the old token was accepted {accepted} of {tried} times"
        );
        attempted += tried;
        assert!(next.is_held());
        next.release().await.expect("it was held");
    }
    println!("stopped holders: {attempted} writes attempted with old tokens, 0 accepted");
    database.remove().await;
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
    let lock = client.lock(&variable("HOLDER_LOCK")).ttl(TTL).acquire();
    let guard = lock.await.expect("a lock");
    let mut connection = support::connect(&url).await;
    say(&format!("held {}", guard.fencing_token()));
    assert!(fenced::write(&mut connection, guard.fencing_token(), "holder").await);
    say("writes");

    // Between two looks at the clock it was stopped, or the machine was very slow: both count as a stop.
    let (mut stops, mut held_after_stop, mut unsignalled) = (0, 0, 0);
    let mut before = Instant::now();
    loop {
        let now = Instant::now();
        let stopped = now - before > TTL;
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
