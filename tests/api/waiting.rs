//! Who waits for a lock: clients that last beside clients that live for one turn, owners, clients far away, short waits, and waits
//! for a server that does not answer. Shares are counted in turns, not in time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tag_lock::{AtClose, Error, LockClient, LockState};
use tokio::task::JoinSet;

use crate::support::proxy::Proxy;
use crate::support::{TestDatabase, connected, eventually, patient};

const HOLD: Duration = Duration::from_millis(5);
/// Nobody waits for longer on a machine that is not broken.
const LONG: Duration = Duration::from_secs(100);

/// From here on the client has its connections, and the lock its row.
async fn warm(client: &LockClient) {
    let guard = client.lock("x").acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// How many turns one task has while others have so many.
struct Share {
    turns: Arc<AtomicU64>,
    others: Arc<AtomicU64>,
    enough: u64,
}

impl Share {
    fn new(enough: u64) -> Self {
        Self {
            turns: Arc::default(),
            others: Arc::default(),
            enough,
        }
    }

    fn is_over(&self) -> bool {
        self.others.load(Relaxed) >= self.enough
    }

    /// One turn; false when it has lasted long enough.
    async fn turn(&self, client: &LockClient, owner: Option<String>, counter: &AtomicU64) -> bool {
        let mut request = client.lock("x");
        if let Some(owner) = owner {
            request = request.owner(owner);
        }
        // Who still waits when all have had enough is let go.
        let acquiring = request.acquire();
        tokio::pin!(acquiring);
        let guard = loop {
            match tokio::time::timeout(Duration::from_millis(200), &mut acquiring).await {
                Ok(guard) => break guard.unwrap(),
                Err(_) if self.is_over() => return false,
                Err(_) => {}
            }
        };
        tokio::time::sleep(HOLD).await;
        counter.fetch_add(1, Relaxed);
        guard.release().await.unwrap();
        !self.is_over()
    }
}

/// One task of a client that lasts, beside eight others that each run as `other` says, until those have had `enough` turns.
async fn share(database: &TestDatabase, enough: u64, other: Other) -> (u64, u64) {
    let share = Arc::new(Share::new(enough));
    let mut others = JoinSet::new();
    let one = database.client().await;
    for task in 0..8 {
        let (share, url) = (Arc::clone(&share), database.url.clone());
        let mut client = match other {
            Other::ClientOfOneTurn => connected(patient(&url)).await,
            Other::OwnerOfOneTurn => one.clone(),
        };
        others.spawn(async move {
            for turn in 0.. {
                let owner = match other {
                    Other::ClientOfOneTurn => None,
                    Other::OwnerOfOneTurn => Some(format!("job {task} {turn}")),
                };
                if !share.turn(&client, owner, &share.others).await {
                    return;
                }
                if let Other::ClientOfOneTurn = other {
                    client.close(AtClose::Release).await;
                    client = connected(patient(&url)).await;
                }
            }
        });
    }
    let client = database.client().await;
    while share.turn(&client, None, &share.turns).await {}
    while let Some(ended) = others.join_next().await {
        ended.unwrap();
    }
    (share.turns.load(Relaxed), share.others.load(Relaxed))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Other {
    /// As command-line tools and periodic jobs are.
    ClientOfOneTurn,
    OwnerOfOneTurn,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_lasts_has_its_share_beside_clients_of_one_turn() {
    let database = TestDatabase::new().await;
    let (turns, others) = share(&database, 160, Other::ClientOfOneTurn).await;
    println!("{turns} turns, eight others {others}");
    assert!(turns >= others / 8 / 2, "{turns} beside {others}");
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_has_its_share_beside_owners_of_one_turn() {
    let database = TestDatabase::new().await;
    let (turns, others) = share(&database, 160, Other::OwnerOfOneTurn).await;
    println!("{turns} turns, eight others {others}");
    assert!(turns >= others / 8 / 2, "{turns} beside {others}");
    database.remove().await;
}

/// Owners wait in the order in which they came, and each of their turns costs what an acquire and a release cost.
#[tokio::test(flavor = "multi_thread")]
async fn owners_of_one_client_are_served_in_their_order_for_two_packets_each() {
    const OWNERS: usize = 40;
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let client = connected(patient(&proxy.url(&database.url))).await;
    let other = database.client().await;
    let held = other.lock("x").acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for number in 0..OWNERS {
        let (order, client) = (Arc::clone(&order), client.clone());
        let asked = Arc::new(tokio::sync::Notify::new());
        let telling = Arc::clone(&asked);
        tasks.spawn(async move {
            let mut acquiring =
                Box::pin(client.lock("x").owner(format!("owner {number}")).acquire());
            // It stands in line once it was polled.
            assert!((&mut acquiring).now_or_never().is_none());
            telling.notify_one();
            let guard = acquiring.await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        });
        asked.notified().await;
    }
    let before = proxy.round_trips();
    held.release().await.unwrap();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let trips = proxy.round_trips() - before;
    println!("{trips} round trips for {OWNERS} owners");
    let order = order.lock().unwrap().clone();
    assert!(order.iter().copied().eq(0..OWNERS), "{order:?}");
    assert!(trips <= 4 * OWNERS as u64, "{trips}");
    database.remove().await;
}

/// Only whoever had the guard keeps the lock for its minimum hold.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_was_dropped_keeps_the_lock_for_no_minimum_hold() {
    let database = TestDatabase::new().await;
    let (client, other) = (database.client().await, database.client().await);
    let mut dropped = 0;
    for number in 0..60 {
        let name = format!("job {number}");
        client
            .lock(&name)
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        let acquiring = client
            .lock(&name)
            .hold_at_least(Duration::from_secs(600))
            .acquire();
        match tokio::time::timeout(Duration::from_micros(number * 50), acquiring).await {
            Ok(guard) => drop(guard.unwrap()),
            Err(_) => {
                dropped += 1;
                let lock = other.lock(&name).wait(LONG);
                lock.acquire().await.unwrap().release().await.unwrap();
            }
        }
    }
    println!("{dropped} of 60 were dropped");
    assert!(dropped > 0);
    let held = client.lock("kept").hold_at_least(Duration::from_secs(600));
    held.acquire().await.unwrap().release().await.unwrap();
    let kept = other.inspect("kept").await.unwrap().unwrap();
    assert_eq!(kept.state, LockState::Kept);
    database.remove().await;
}

/// A question there takes twice as long as the others give way.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_far_away_has_its_turns() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let near = database.client().await;
    let far = connected(patient(&proxy.url(&database.url))).await;
    warm(&far).await;
    let way = Duration::from_millis(75);
    proxy.set_delay(way, way);
    let over = Arc::new(AtomicBool::new(false));
    // Which client had the turns, one after the other.
    let turns = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for (which, client) in [(0, &near), (1, &far)] {
        for _ in 0..4 {
            let (client, over, turns) = (client.clone(), Arc::clone(&over), Arc::clone(&turns));
            tasks.spawn(async move {
                while !over.load(Relaxed) {
                    let guard = client.lock("x").acquire().await.unwrap();
                    turns.lock().unwrap().push(which);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    guard.release().await.unwrap();
                }
            });
        }
    }
    let start = Instant::now();
    let passed = || {
        let turns = turns.lock().unwrap();
        turns.windows(2).filter(|two| two[0] != two[1]).count()
    };
    while passed() < 20 {
        assert!(
            start.elapsed() < LONG,
            "it went to and fro {} times",
            passed()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    over.store(true, Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    println!("to and fro {} times in {:?}", passed(), start.elapsed());
    database.remove().await;
}

/// The answer is on its way to somebody else: an attempt beside it waits for it, and a wait ends when it says.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_is_told_from_a_lock_that_is_held() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let client = connected(patient(&proxy.url(&database.url))).await;
    warm(&client).await;
    proxy.pause();
    let acquire = |wait: u64| {
        let client = client.clone();
        tokio::spawn(async move {
            let lock = client.lock("x").wait(Duration::from_millis(wait));
            lock.acquire().await
        })
    };
    let first = acquire(500);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let tried = tokio::spawn({
        let client = client.clone();
        async move { client.lock("x").try_acquire().await }
    });
    let second = acquire(50);
    for (which, waited) in [("first", first), ("second", second)] {
        let error = waited.await.unwrap().unwrap_err();
        assert!(
            matches!(error, Error::Unreachable { .. }),
            "{which}: {error}"
        );
    }
    assert!(!tried.is_finished(), "nobody has seen that it is held");
    proxy.resume();
    let guard = tried.await.unwrap().unwrap().expect("it was free");
    guard.release().await.unwrap();
    database.remove().await;
}

/// So does a wait for several locks, for several permits, and for a shared hold of a lock whose lease idles in this very client.
#[tokio::test(flavor = "multi_thread")]
async fn every_wait_ends_when_it_says() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let client = connected(patient(&proxy.url(&database.url))).await;
    warm(&client).await;
    let idles = client.lock("idle").linger(Duration::from_secs(3_600));
    idles.acquire().await.unwrap().release().await.unwrap();
    proxy.pause();
    let wait = Duration::from_millis(500);
    let all = client.lock_all(["a", "b"]).wait(wait).acquire();
    let many = client.semaphore("s", 3).wait(wait);
    let shared = client.lock("idle").wait(wait).shared().acquire();
    let begun = Instant::now();
    let (all, many, shared) = tokio::join!(all, many.acquire_many(2), shared);
    // Without a packet's time limit, let alone a request's.
    assert!(begun.elapsed() < Duration::from_secs(25));
    let errors = [
        ("several locks", all.map(drop).unwrap_err()),
        ("several permits", many.map(drop).unwrap_err()),
        ("a shared hold", shared.map(drop).unwrap_err()),
    ];
    for (what, error) in errors {
        assert!(
            matches!(error, Error::Unreachable { .. }),
            "{what}: {error}"
        );
    }
    proxy.resume();
    // Nothing is left of what was given up.
    let all = client.lock_all(["a", "b", "idle"]).acquire().await.unwrap();
    all.release().await.unwrap();
    let many = client.semaphore("s", 3).acquire_many(3).await.unwrap();
    many.release().await.unwrap();
    database.remove().await;
}

/// It was told that the lease is lost: that is what it is told again, and not that the server cannot be reached.
#[tokio::test(flavor = "multi_thread")]
async fn during_a_partition_a_lost_lease_is_lost_and_a_wait_ends_with_its_reason() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let client = connected(patient(&proxy.url(&database.url))).await;
    let other = database.client().await;
    let waited_for = other.lock("other").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move {
            let lock = client.lock("other").wait(Duration::from_secs(8));
            lock.acquire().await
        }
    });
    let guard = client
        .lock("l")
        .ttl(Duration::from_secs(2))
        .acquire()
        .await
        .unwrap();
    proxy.pause();
    guard.lost().await;
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, Error::LockLost { .. }), "{error}");
    assert!(!waiting.is_finished());
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    proxy.resume();
    waited_for.release().await.unwrap();
    eventually("what was lost is free", || async {
        let info = other.inspect("l").await.unwrap().unwrap();
        info.state == LockState::Free
    })
    .await;
    database.remove().await;
}

/// Tasks say what they are at; that does not keep the lock from passing from one to the next in memory.
#[tokio::test(flavor = "multi_thread")]
async fn turns_pass_in_memory_whatever_they_are_described_by() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let client = connected(patient(&proxy.url(&database.url))).await;
    warm(&client).await;
    let before = proxy.round_trips();
    let mut tasks = JoinSet::new();
    for task in 0..16 {
        let client = client.clone();
        tasks.spawn(async move {
            for _ in 0..50 {
                let lock = client.lock("x").description(format!("task {task}"));
                lock.acquire().await.unwrap().release().await.unwrap();
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let trips = proxy.round_trips() - before;
    println!("{trips} round trips for 800 turns");
    assert!(trips < 400, "{trips}");
    database.remove().await;
}
