//! The server goes away and comes back, cleanly or not: leases survive, clients reconnect by themselves, and
//! no increment is lost or doubled.
//!
//! These tests stop the server, so they need one of their own: that of `scripts/with-mysql`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::alone::server;
use crate::support::{self, TestDatabase, alone};
use futures_util::future::join_all;
use tag_lock::{AtClose, Error, LockClient, LockState};

const HOUR: Duration = Duration::from_secs(3_600);

/// A client whose requests outlast the server's absence.
async fn patient_client(database: &TestDatabase) -> LockClient {
    LockClient::builder(database.url.parse().unwrap())
        .request_timeout(HOUR)
        .connect()
        .await
        .unwrap()
}

/// Tasks that add to a counter until they are told to stop, and what they were told.
struct Adders {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<Vec<i64>>>,
}

impl Adders {
    fn start(client: &LockClient) -> Self {
        let (stop, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let tasks = (0..16)
            .map(|_| {
                let (client, stop, done) = (client.clone(), Arc::clone(&stop), Arc::clone(&done));
                tokio::spawn(async move {
                    let mut values = Vec::new();
                    while !stop.load(Ordering::SeqCst) {
                        values.push(client.counter("n").add(1).await.unwrap());
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                    values
                })
            })
            .collect();
        Self { stop, done, tasks }
    }

    /// Waits until they have added some more.
    async fn progress(&self) {
        let before = self.done.load(Ordering::SeqCst);
        support::eventually("the adders get on", async || {
            self.done.load(Ordering::SeqCst) > before + 100
        })
        .await;
    }

    /// Every value that they were told, in order.
    async fn stop(self) -> Vec<i64> {
        self.stop.store(true, Ordering::SeqCst);
        let mut values = Vec::new();
        for task in self.tasks {
            values.extend(task.await.unwrap());
        }
        values.sort_unstable();
        values
    }
}

async fn survives(how: &'static str) {
    let database = TestDatabase::new().await;
    let (a, b) = (
        patient_client(&database).await,
        patient_client(&database).await,
    );
    let mut guards = Vec::new();
    for number in 0..20 {
        // All outlast the server's absence, however long a slow machine takes for it.
        let ttl = [HOUR, 2 * HOUR][number % 2];
        let name = format!("job {number}");
        guards.push(a.lock(&name).ttl(ttl).acquire().await.unwrap());
    }
    let first = guards[0].fencing_token();
    let adders = [Adders::start(&a), Adders::start(&b)];
    for _ in 0..2 {
        for adders in &adders {
            adders.progress().await;
        }
        server(how).await;
        // Asked for while there is no server; answered when there is one again.
        let meanwhile = {
            let b = b.clone();
            tokio::spawn(async move { b.lock("another job").acquire().await })
        };
        assert!(guards.iter().all(tag_lock::LockGuard::is_held));
        // Half of them ask for a renewal while the server is away.
        let half = guards.iter().step_by(2);
        let renewed = join_all(half.map(|guard| guard.extend(HOUR)));
        let (renewed, ()) = tokio::join!(renewed, server("start"));
        assert!(renewed.iter().all(Result::is_ok), "{renewed:?}");
        drop(meanwhile.await.unwrap().unwrap());
        for adders in &adders {
            adders.progress().await;
        }
        for guard in &guards {
            assert!(guard.is_held(), "{guard:?}");
            assert!(b.lock(guard.name()).try_acquire().await.unwrap().is_none());
            let info = b.inspect(guard.name()).await.unwrap().unwrap();
            assert_eq!(info.state, LockState::Held);
        }
    }
    let [x, y] = adders;
    let mut values = x.stop().await;
    values.extend(y.stop().await);
    values.sort_unstable();
    let expected: Vec<i64> = (1..).take(values.len()).collect();
    assert_eq!(values, expected, "an increment was lost or doubled");
    let left = database.client().await.counter("n").get().await.unwrap();
    assert_eq!(Some(&left), values.last());
    for guard in guards {
        guard.release().await.unwrap();
    }
    let again = b.lock("job 0").try_acquire().await.unwrap().unwrap();
    assert!(again.fencing_token() > first);
    drop(again);
    a.close(AtClose::Release).await;
    b.close(AtClose::Release).await;
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_and_started_again() {
    let _alone = alone().await;
    survives("stop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_and_started_again() {
    let _alone = alone().await;
    survives("kill").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_ends_meanwhile_is_lost() {
    let _alone = alone().await;
    lease_that_ends().await;
}

async fn lease_that_ends() {
    let database = TestDatabase::new().await;
    // Short, since requests wait for its end; longer than a machine may stand still.
    let impatient = LockClient::builder(database.url.parse().unwrap())
        .packet_timeout(Duration::from_secs(4))
        .request_timeout(Duration::from_secs(4));
    let impatient = support::connected(impatient).await;
    let ttl = Duration::from_secs(3);
    let guard = impatient.lock("job").ttl(ttl).acquire().await.unwrap();
    server("stop").await;
    // By this client's own clock: nobody else says so.
    guard.lost().await;
    assert!(!guard.is_held());
    let (n, first, second) = (
        impatient.counter("n"),
        impatient.lock("other"),
        impatient.lock("another"),
    );
    let (seen, connected, added, acquired, tried) = tokio::join!(
        impatient.inspect("job"),
        LockClient::connect(&database.url),
        n.add(1),
        first.acquire(),
        second.try_acquire()
    );
    for error in [seen.unwrap_err(), connected.unwrap_err()] {
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    }
    for error in [
        added.unwrap_err(),
        acquired.unwrap_err(),
        tried.unwrap_err(),
    ] {
        // Unknown if it went into a connection that ended only then.
        assert!(
            matches!(
                error,
                Error::Unreachable { .. } | Error::OutcomeUnknown { .. }
            ),
            "{error:?}"
        );
    }
    server("start").await;
    let other = database.client().await;
    let next = other.lock("job").acquire().await.unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    assert!(matches!(guard.release().await, Err(Error::LockLost { .. })));
    assert_eq!(other.counter("n").add(1).await.unwrap(), 1);
    support::eventually("the client heals", async || {
        impatient.counter("healed").add(1).await.is_ok()
    })
    .await;
    next.release().await.unwrap();
    database.remove().await;
}
