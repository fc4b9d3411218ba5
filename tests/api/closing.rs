//! A client ends once, whoever asks for it and however often, and also when nobody does and nobody has it any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support;
use crate::support::proxy::{Fault, Gate, Hold, Proxy, once};
use crate::support::{TestDatabase, connected, eventually, is_batch, number};
use tag_lock::{AtClose, Error, LockClient};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const SHORT: Duration = Duration::from_millis(200);

/// A client whose addition does not arrive before the gate is opened.
struct Stage {
    database: TestDatabase,
    proxy: Proxy,
    client: LockClient,
    gate: Gate,
    add: JoinHandle<Result<i64, Error>>,
}

impl Stage {
    async fn new() -> Self {
        let database = TestDatabase::new().await;
        let proxy = Proxy::before(&database.url).await.unwrap();
        let client = connected(support::patient(&proxy.url(&database.url))).await;
        client.counter("n").add(1).await.unwrap();
        let gate = Gate::new();
        let hold = Fault::HoldCommand(Hold::Until(gate.clone()));
        proxy.on_command(once(is_batch, hold));
        let other = client.clone();
        let add = tokio::spawn(async move { other.counter("n").add(1).await });
        gate.reached().await;
        Self {
            database,
            proxy,
            client,
            gate,
            add,
        }
    }

    /// The addition has been made, and no connection is left.
    async fn check(self) {
        assert!(self.add.is_finished(), "closed with an addition under way");
        assert_eq!(self.add.await.unwrap().unwrap(), 2);
        self.proxy.all_closed().await;
        let closed = self.client.counter("n").add(1).await;
        assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
        let mut connection = self.database.connection().await;
        let sql = "SELECT count FROM t_tag_lock WHERE kind = 2 AND lock_name = 'n'";
        assert_eq!(number(&mut connection, sql).await, 2);
        self.database.remove().await;
    }
}

fn closing(client: &LockClient) -> JoinHandle<()> {
    let client = client.clone();
    tokio::spawn(async move { client.close(AtClose::Release).await })
}

#[tokio::test(flavor = "multi_thread")]
async fn who_closes_behind_a_dropped_close_waits_for_the_end() {
    let stage = Stage::new().await;
    // However often.
    for _ in 0..20 {
        let close = stage.client.close(AtClose::Release);
        let dropped = tokio::time::timeout(SHORT / 10, close).await;
        assert!(dropped.is_err(), "closed with an addition under way");
    }
    let mut close = closing(&stage.client);
    let early = tokio::time::timeout(SHORT, &mut close).await;
    assert!(early.is_err(), "closed with an addition under way");
    stage.gate.open();
    close.await.unwrap();
    stage.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_who_close_at_once_wait_for_one_end() {
    let stage = Stage::new().await;
    let mut closes: Vec<_> = (0..20).map(|_| closing(&stage.client)).collect();
    for close in &mut closes {
        let early = tokio::time::timeout(SHORT / 10, close).await;
        assert!(early.is_err(), "closed with an addition under way");
    }
    stage.gate.open();
    for close in closes {
        close.await.unwrap();
    }
    // And once more, when all has ended.
    stage.client.close(AtClose::Release).await;
    stage.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn close_within_says_whether_all_has_ended() {
    let stage = Stage::new().await;
    assert!(!stage.client.close_within(AtClose::Release, SHORT).await);
    stage.gate.open();
    let long = Duration::from_secs(120);
    assert!(stage.client.close_within(AtClose::Release, long).await);
    assert!(
        stage
            .client
            .close_within(AtClose::Release, Duration::ZERO)
            .await
    );
    stage.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_who_closes_says_what_becomes_of_held_locks() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let guard = client.lock("kept").acquire().await.unwrap();
    client.close(AtClose::Keep).await;
    client.close(AtClose::Release).await;
    assert!(guard.is_held());
    let other = database.client().await;
    assert!(other.lock("kept").try_acquire().await.unwrap().is_none());
    database.remove().await;
}

/// Accepts connections and closes them, and counts them.
async fn dead_server() -> (std::net::SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, attempts) = (listener.local_addr().unwrap(), Arc::<AtomicU64>::default());
    let counted = Arc::clone(&attempts);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            drop(socket);
        }
    });
    (address, attempts)
}

/// The server goes away while a release is under way, and its client is dropped: it does not try for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_nobody_has_any_more_ends_without_its_server() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let (dead, attempts) = dead_server().await;
    let packet = Duration::from_millis(500);
    let builder = LockClient::builder(proxy.url(&database.url).parse().unwrap())
        .packet_timeout(packet)
        .request_timeout(packet * 2);
    let client = connected(builder).await;
    // An hour: its end is not what ends the attempts.
    let ttl = Duration::from_secs(3_600);
    let guard = client.lock("l").ttl(ttl).acquire().await.unwrap();
    proxy.on_command(once(is_batch, Fault::CutBefore));
    proxy.set_upstream(dead);
    drop(guard);
    eventually("it tries", async || attempts.load(Ordering::SeqCst) > 0).await;
    drop(client);
    // Twice 0.5 s, 3 s, three times 0.5 s, and once more 0.5 s; then two quiet seconds show it.
    let start = Instant::now();
    let mut last = (attempts.load(Ordering::SeqCst), Instant::now());
    while last.1.elapsed() < Duration::from_secs(3) {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it tries for ever: {} attempts",
            attempts.load(Ordering::SeqCst)
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = attempts.load(Ordering::SeqCst);
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
    println!(
        "the last of {} attempts came {:?} behind the drop",
        last.0,
        last.1 - start
    );
    proxy.all_closed().await;
    database.remove().await;
}

/// With its server it ends at once, and what was held and queued is done.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_nobody_has_any_more_gives_back_and_closes() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let client = connected(support::patient(&proxy.url(&database.url))).await;
    let guard = client.lock("l").acquire().await.unwrap();
    let view = guard.view();
    drop(client);
    // A guard is enough.
    tokio::time::sleep(SHORT).await;
    assert!(guard.is_held() && proxy.open_connections() > 0);
    drop(guard);
    proxy.all_closed().await;
    assert!(!view.cancellation_token().is_cancelled());
    let mut connection = database.connection().await;
    let taken = "SELECT COUNT(*) FROM t_tag_lock WHERE kind = 1 AND status <> 0";
    assert_eq!(number(&mut connection, taken).await, 0);
    database.remove().await;
}
