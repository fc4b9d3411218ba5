//! A client's wall clock that is wrong does not matter.
//!
//! The clock is stepped by `support/wall_clock.c`, which is preloaded into a process and moves what that
//! process takes for the time of day. The C compiler that links these tests compiles it.

#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use tag_lock::{Error, LockClient};

use crate::support::TestDatabase;
use crate::support::processes::worker;
use crate::support::wall_clock::{Clock, HOUR};

/// A renewal has two thirds of it: a machine may stand still for four seconds.
const TTL: Duration = Duration::from_secs(6);

#[tokio::test]
async fn the_clients_wall_clock_does_not_matter() {
    let database = TestDatabase::new().await;
    let clock = Clock::here();
    let mut process = worker("stepped_client")
        .envs(clock.variables())
        .env("STEPPED_URL", &database.url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut input = process.stdin.take().expect("its input");
    let mut output = BufReader::new(process.stdout.take().expect("its output")).lines();
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
    assert!(process.wait().expect("it ended").success());
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
