//! A server's clock that is wrong: it is noticed when it steps, and tokens keep writes exclusive.
//!
//! The clock is stepped by `support/wall_clock.c`, which is preloaded into a process and moves what that
//! process takes for the time of day. The C compiler that links these tests compiles it.

#![cfg(target_os = "linux")]

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::wall_clock::{HOUR, SteppedServer};
use crate::support::{TestDatabase, alone, eventually, fenced, number};
use tag_lock::Error;

/// A renewal has two thirds of it: a machine may stand still for four seconds.
const TTL: Duration = Duration::from_secs(6);

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
    let _alone = alone().await;
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
