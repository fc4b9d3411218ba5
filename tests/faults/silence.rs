//! A connection that falls silent costs no lease, however short that is, and what travelled with the renewal is neither lost nor doubled.

use futures_util::future::join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::lateness::with_ttl;
use crate::support::proxy::{Command, Fault, FaultKind, Gate, Hold, Proxy, once};
use crate::support::{TestDatabase, connected, eventually, is_batch, number};
use sqlx::Connection;
use tag_lock::{AtClose, LockClient, LockGuard};

/// How long a client waits for a packet whose lease lasts so long: as the default, 5 s, is to a ttl of 4 s.
fn packet_timeout(ttl: Duration) -> Duration {
    ttl * 5 / 4
}

struct Stage {
    database: TestDatabase,
    proxy: Proxy,
    client: LockClient,
}

impl Stage {
    async fn new(ttl: Duration) -> Self {
        let database = TestDatabase::new().await;
        let proxy = Proxy::before(&database.url).await.unwrap();
        let url = proxy.url(&database.url);
        let builder = LockClient::builder(url.parse().unwrap())
            .lanes(1)
            .packet_timeout(packet_timeout(ttl))
            .request_timeout(Duration::from_secs(600));
        let client = connected(builder).await;
        Self {
            database,
            proxy,
            client,
        }
    }

    async fn acquire(&self, name: &str, ttl: Duration) -> LockGuard {
        self.client.lock(name).ttl(ttl).acquire().await.unwrap()
    }

    /// The next batches fall silent, this many, each with its connection.
    fn silence(&self, batches: usize) {
        let left = AtomicUsize::new(batches);
        let one_less = move |left: usize| left.checked_sub(1);
        self.proxy.on_command(move |command: &Command| {
            let falls = is_batch(command)
                && left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
                    .is_ok();
            if falls { Fault::HalfOpen } else { Fault::Pass }
        });
    }
}

/// Until twice the ttl has passed.
async fn outlasts(guard: &LockGuard, ttl: Duration) {
    let start = Instant::now();
    while start.elapsed() < ttl * 2 {
        assert!(guard.is_held(), "lost after {:?}", start.elapsed());
        tokio::time::sleep(ttl / 50).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_survives_a_silent_connection() {
    let each = [4, 6, 15].map(async |ttl| {
        with_ttl(Duration::from_secs(ttl), async |ttl| {
            let stage = Stage::new(Duration::from_secs(4)).await;
            let guard = stage.acquire("l", ttl).await;
            stage.silence(1);
            outlasts(&guard, ttl * 3 / 4).await;
            guard.release().await.unwrap();
        })
        .await;
    });
    join_all(each).await;
}

/// The connection that takes over may be silent too.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_survives_two_silent_connections() {
    with_ttl(Duration::from_secs(6), async |ttl| {
        let stage = Stage::new(ttl).await;
        let guard = stage.acquire("l", ttl).await;
        stage.silence(2);
        outlasts(&guard, ttl).await;
        guard.release().await.unwrap();
    })
    .await;
}

/// A client behind a proxy, whose packets may take so long, with its connection for questions open.
async fn with_a_connection_for_questions(
    database: &TestDatabase,
    limit: Duration,
) -> (Proxy, LockClient) {
    let proxy = Proxy::before(&database.url).await.unwrap();
    let builder = LockClient::builder(proxy.url(&database.url).parse().unwrap())
        .packet_timeout(limit)
        .request_timeout(limit * 5);
    let client = connected(builder).await;
    assert_eq!(client.counter("n").get().await.unwrap(), 0);
    (proxy, client)
}

/// All who wait ask over one connection, which was open before: that has a fraction of a packet's time.
#[tokio::test(flavor = "multi_thread")]
async fn those_who_wait_do_not_wait_for_a_silent_connection() {
    let database = TestDatabase::new().await;
    let limit = Duration::from_secs(60);
    let (proxy, client) = with_a_connection_for_questions(&database, limit).await;
    let other = LockClient::connect(&database.url).await.unwrap();
    let guard = other.lock("l").acquire().await.unwrap();
    let waits = tokio::spawn(client.lock("l").wait(limit * 5).acquire());
    let looks = proxy.counters();
    proxy.on_command(once(is_look, Fault::HalfOpen));
    eventually("a connection falls silent", async || {
        proxy.counters().since(&looks).faults(FaultKind::HalfOpen) > 0
    })
    .await;
    let freed = Instant::now();
    guard.release().await.unwrap();
    waits.await.unwrap().unwrap().release().await.unwrap();
    let waited = freed.elapsed();
    assert!(waited < limit / 2, "{waited:?}");
    client.close(AtClose::Release).await;
    database.remove().await;
}

/// The connection that was open breaks, and the one that takes over answers late: it is not given up for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_connection_has_the_whole_time() {
    let database = TestDatabase::new().await;
    let limit = Duration::from_secs(40);
    let (proxy, client) = with_a_connection_for_questions(&database, limit).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    proxy.on_command(move |command: &Command| {
        // Whether the row may be gone soon.
        if !command.contains_word("SELECT 1 FROM t_tag_lock t") {
            return Fault::Pass;
        }
        match count.fetch_add(1, Ordering::SeqCst) {
            0 => Fault::CutBefore,
            1 => Fault::HoldReply(Hold::For(limit / 6)),
            _ => Fault::Pass,
        }
    });
    let mut connection = database.connection().await;
    let mut transaction = connection.begin().await.unwrap();
    assert_eq!(
        client
            .counter("n")
            .add_in(&mut transaction, 1)
            .await
            .unwrap(),
        1
    );
    transaction.rollback().await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    client.close(AtClose::Release).await;
    database.remove().await;
}

/// A question of those who wait.
fn is_look(command: &Command) -> bool {
    !is_batch(command) && !command.contains_commit() && command.contains_word("FROM t_tag_lock")
}

/// Renewals, an addition and a release in one packet that falls silent, whether the server has it or not.
#[tokio::test(flavor = "multi_thread")]
async fn what_travels_with_a_renewal_is_neither_lost_nor_doubled() {
    let each = [false, true].map(async |arrives| {
        with_ttl(Duration::from_secs(4), async |ttl| {
            let stage = Stage::new(ttl).await;
            let (kept, other) = (
                stage.acquire("kept", ttl).await,
                stage.acquire("other", ttl).await,
            );
            let counter = stage.client.counter("n");
            assert_eq!(counter.add(5).await.unwrap(), 5);
            // All wait while one packet is held, and leave together behind it.
            let gate = Gate::new();
            let (held, batches) = (gate.clone(), AtomicUsize::new(0));
            stage.proxy.on_command(move |command: &Command| {
                if !is_batch(command) {
                    return Fault::Pass;
                }
                match batches.fetch_add(1, Ordering::SeqCst) {
                    0 => Fault::HoldCommand(Hold::Until(held.clone())),
                    1 if arrives => Fault::HoldReply(Hold::Until(Gate::new())),
                    1 => Fault::HalfOpen,
                    _ => Fault::Pass,
                }
            });
            let first = tokio::spawn({
                let client = stage.client.clone();
                async move { client.counter("first").add(1).await }
            });
            gate.reached().await;
            let (client, view) = (stage.client.clone(), other.view());
            let add = tokio::spawn(async move { client.counter("n").add(1).await });
            let release = tokio::spawn(other.release());
            // The renewal of the one that is kept comes to them.
            tokio::time::sleep(ttl * 2 / 5).await;
            gate.open();
            assert_eq!(first.await.unwrap().unwrap(), 1);
            outlasts(&kept, ttl).await;
            assert_eq!(add.await.unwrap().unwrap(), 6);
            release.await.unwrap().expect("it was held");
            assert!(!view.cancellation_token().is_cancelled());
            assert_eq!(counter.add(1).await.unwrap(), 7);
            let mut connection = stage.database.connection().await;
            let taken = "SELECT COUNT(*) FROM t_tag_lock WHERE kind = 1 AND status <> 0";
            assert_eq!(number(&mut connection, taken).await, 1);
            kept.release().await.unwrap();
            assert_eq!(number(&mut connection, taken).await, 0);
        })
        .await;
    });
    join_all(each).await;
}

/// The connection that takes over is there when it is needed, and not for longer.
#[tokio::test(flavor = "multi_thread")]
async fn the_connection_that_takes_over_is_closed_again() {
    with_ttl(Duration::from_secs(3), async |ttl| {
        let stage = Stage::new(ttl).await;
        let guard = stage.acquire("l", ttl).await;
        let before = stage.proxy.open_connections();
        stage.silence(1);
        eventually("another connection", async || {
            stage.proxy.open_connections() > before
        })
        .await;
        outlasts(&guard, ttl).await;
        // The silent one is the proxy's own affair.
        stage.proxy.pass_all();
        stage.proxy.cut_all();
        eventually("one connection is enough", async || {
            stage.proxy.open_connections() <= before
        })
        .await;
        assert!(guard.is_held());
        guard.release().await.unwrap();
    })
    .await;
}
