//! Clocks that are wrong: the client's wall clock does not matter; the server's is noticed when it steps,
//! and tokens keep writes exclusive.
//!
//! The clocks are stepped by `support/wall_clock.c`, which is preloaded into a process and moves what that
//! process takes for the time of day. The C compiler that links these tests compiles it.

#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crate::support::wall_clock::{Clock, HOUR, SteppedServer};
use crate::support::{self, fenced};
use crate::support::{TestDatabase, eventually, number};
use tag_lock::{Error, LockClient};

/// A renewal has two thirds of it: a machine may stand still for four seconds.
const TTL: Duration = Duration::from_secs(6);

/// These tests restart the server.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test]
async fn the_clients_wall_clock_does_not_matter() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let database = TestDatabase::new().await;
    let clock = Clock::here();
    let mut worker = support::worker("stepped_client")
        .envs(clock.variables())
        .env("STEPPED_URL", &database.url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut input = worker.stdin.take().expect("its input");
    let mut output = BufReader::new(worker.stdout.take().expect("its output")).lines();
    let mut says = |what: &str| {
        let said = output.find_map(|line| {
            let line = line.expect("its output");
            line.split_once(what)
                .map(|(_, rest)| rest.trim().to_owned())
        });
        said.unwrap_or_else(|| panic!("the client ended before it said {what:?}"))
    };
    says("ready");
    let others = database.client().await;
    for hours in [1, -1, 24, -24, 0] {
        clock.step(hours * HOUR);
        writeln!(input, "{hours}").expect("it listens");
        // The whole life of locks passes while the clock is wrong, renewals included.
        says("done");
        let refused = others
            .lock("stepped held")
            .try_acquire()
            .await
            .expect("an answer");
        assert!(refused.is_none(), "its lease was lost at {hours} h");
    }
    drop(input);
    says("held to the end");
    assert!(worker.wait().expect("it ended").success());
    database.remove().await;
}

#[tokio::test]
#[ignore = "the client of the_clients_wall_clock_does_not_matter"]
async fn stepped_client() {
    let url = std::env::var("STEPPED_URL").expect("only a test starts this");
    let start = SystemTime::now();
    let client = LockClient::connect(&url).await.expect("connects");
    let held = client
        .lock("stepped held")
        .ttl(TTL)
        .acquire()
        .await
        .expect("a lock");
    println!("\nready");
    let lines = std::io::stdin().lines();
    for hours in lines {
        let hours: i64 = hours.expect("the test speaks").parse().expect("a number");
        // It is this process's clock that was stepped.
        let hour = Duration::from_secs(3_600);
        match hours {
            1.. => assert!(
                SystemTime::now() > start + hour * 9 / 10,
                "the step did not arrive"
            ),
            0 => {}
            _ => assert!(SystemTime::now() < start, "the step did not arrive"),
        }
        let since = Instant::now();
        let guard = client
            .lock("stepped")
            .ttl(TTL)
            .acquire()
            .await
            .expect("a lock");
        // A renewal and a half.
        while since.elapsed() < TTL / 2 {
            assert!(guard.is_held() && held.is_held(), "lost at {hours} h");
            assert!(guard.remaining() <= TTL);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let waited = Instant::now();
        let waiting = client
            .lock("stepped")
            .wait(Duration::from_millis(200))
            .acquire()
            .await;
        assert!(matches!(waiting, Err(Error::Timeout { .. })), "{waiting:?}");
        assert!(
            waited.elapsed() < Duration::from_secs(60),
            "a wait of 200 ms followed the clock"
        );
        guard.release().await.expect("it was held");
        println!("\ndone");
    }
    assert!(!held.cancellation_token().is_cancelled());
    held.release().await.expect("it was held");
    println!("\nheld to the end");
}

/// What `tracing` was told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<u8>>>);

impl Write for Told {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Told {
    fn listen() -> (Self, tracing::subscriber::DefaultGuard) {
        let told = Self::default();
        let writer = told.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        // Everything of these tests runs on one thread.
        (told, tracing::subscriber::set_default(subscriber))
    }

    fn steps(&self) -> usize {
        let told = self.0.lock().expect("no panic");
        String::from_utf8_lossy(&told)
            .matches("clock was stepped")
            .count()
    }
}

#[tokio::test]
async fn tokens_keep_writes_exclusive_when_the_servers_clock_is_stepped() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let server = SteppedServer::start();
    let (told, _listening) = Told::listen();
    let database = TestDatabase::new().await;
    let mut resource = database.connection().await;
    fenced::create(&mut resource).await;
    let (first, second) = (database.client().await, database.client().await);
    // Both clients have seen the server's clock before it steps.
    for client in [&first, &second] {
        let guard = client.lock("warm").acquire().await.expect("a lock");
        guard.release().await.expect("it was held");
    }
    let before = number(&mut resource, "SELECT UNIX_TIMESTAMP()").await;
    let (mut attempted, mut accepted, mut last) = (0, 0, 0);
    for (by, hours) in [(1, 1), (-1, 0), (-1, -1), (1, 0)] {
        let guard = first
            .lock("stepped")
            .ttl(TTL)
            .acquire()
            .await
            .expect("a lock");
        let token = guard.fencing_token();
        assert!(token > last, "a token went back, {hours} h");
        assert!(fenced::write(&mut resource, token, "first").await);
        let seen = told.steps();
        server.step(hours * HOUR);
        let now = number(&mut resource, "SELECT UNIX_TIMESTAMP()").await;
        assert!(
            (now - before - hours * HOUR).abs() < 1_000,
            "the server's clock did not step"
        );
        let still_held = if by > 0 {
            // The lease ends early: the second one is granted the lock, and the first one learns of it with
            // its next renewal only.
            Some(guard)
        } else {
            // The lease ends late, unless it is renewed or released.
            let waiting = second.lock("stepped").wait(TTL / 3).acquire().await;
            assert!(matches!(waiting, Err(Error::Timeout { .. })), "{waiting:?}");
            assert!(guard.is_held(), "a step back is no loss");
            guard.release().await.expect("it was held");
            None
        };
        let next = second
            .lock("stepped")
            .ttl(TTL)
            .acquire()
            .await
            .expect("a lock");
        assert!(next.fencing_token() > token, "a token went back, {hours} h");
        assert!(fenced::write(&mut resource, next.fencing_token(), "second").await);
        for _ in 0..5 {
            attempted += 1;
            accepted += u32::from(fenced::write(&mut resource, token, "stale").await);
        }
        if let Some(guard) = still_held {
            guard.lost().await;
            let released = guard.release().await;
            assert!(
                matches!(released, Err(Error::LockLost { .. })),
                "{released:?}"
            );
        }
        last = next.fencing_token();
        next.release().await.expect("it was held");
        eventually("the step is told", || async { told.steps() > seen }).await;
    }
    assert!(attempted > 0);
    assert_eq!(accepted, 0, "old tokens were accepted");
    let log = fenced::log(&mut resource).await;
    assert!(log.windows(2).all(|pair| pair[0].0 < pair[1].0), "{log:?}");
    println!(
        "{} steps told, {attempted} stale writes attempted, 0 accepted",
        told.steps()
    );
    first.close(tag_lock::AtClose::Release).await;
    second.close(tag_lock::AtClose::Release).await;
    database.remove().await;
    drop(server);
}
