//! Who is next, and what that costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use sqlx::Connection;
use tag_lock::{Error, LockClient};
use tokio::task::JoinSet;

use super::{HOUR, shared};
use crate::support::proxy::Proxy;
use crate::support::{
    TestDatabase, connected, eventually, no_deadlocks_since, patient, run, server_deadlocks,
};

/// One acquire and one release of the process, whoever reads between.
#[tokio::test(flavor = "multi_thread")]
async fn who_joins_costs_no_packet() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let client = connected(patient(&proxy.url(&database.url))).await;
    let first = shared(&client, "l").acquire().await.unwrap();
    let before = proxy.counters();
    let mut guards = Vec::new();
    for _ in 0..100 {
        let guard = shared(&client, "l").acquire().await.unwrap();
        assert_eq!(guard.fencing_token(), first.fencing_token());
        guards.push(guard);
    }
    let view = guards[0].view();
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert!(!view.is_held(), "its guard is released");
    assert!(first.is_held());
    let packets = proxy.counters().since(&before).commits;
    assert_eq!(packets, 0, "joining and leaving sent packets");
    first.release().await.unwrap();
    let packets = proxy.counters().since(&before).commits;
    assert!(packets > 0, "the count counts");
    database.remove().await;
}

/// Somebody who frees the lock to take it in a transaction of his is not forestalled by those who read.
#[tokio::test(flavor = "multi_thread")]
async fn who_frees_a_door_takes_it_next() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let mut connection = database.connection().await;
    let mut kept_out = false;
    // At once, or for a while nobody is kept out any more.
    for _ in 0..200 {
        let reader = shared(&one, "l").acquire().await.unwrap();
        reader.release().await.unwrap();
        let mut tx = connection.begin().await.unwrap();
        let taken = other.try_lock_in(&mut tx, "l").await.unwrap();
        assert!(taken.is_some(), "nobody reads any more");
        tx.rollback().await.unwrap();
        if shared(&one, "l").try_acquire().await.unwrap().is_none() {
            kept_out = true;
            break;
        }
    }
    assert!(kept_out);
    // For a moment: he did not take it.
    let reader = shared(&one, "l").acquire().await.unwrap();
    reader.release().await.unwrap();
    database.remove().await;
}

/// Takes holds that overlap, again and again.
async fn reads(client: LockClient, stops: Arc<AtomicBool>, done: Arc<AtomicU64>) {
    while !stops.load(Ordering::SeqCst) {
        let guard = shared(&client, "l").acquire().await.unwrap();
        tokio::time::sleep(Duration::from_millis(30)).await;
        guard.release().await.unwrap();
        done.fetch_add(1, Ordering::SeqCst);
    }
}

/// Without the wish there is always somebody who reads.
#[tokio::test(flavor = "multi_thread")]
async fn readers_that_never_pause_do_not_starve_a_writer() {
    let database = TestDatabase::new().await;
    let (stops, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let mut readers = JoinSet::new();
    for _ in 0..3 {
        let client = database.client().await;
        for _ in 0..4 {
            readers.spawn(reads(client.clone(), Arc::clone(&stops), Arc::clone(&done)));
            tokio::time::sleep(Duration::from_millis(7)).await;
        }
    }
    let writer = database.client().await;
    for _ in 0..5 {
        let before = done.load(Ordering::SeqCst);
        let guard = writer.lock("l").ttl(HOUR).acquire().await.unwrap();
        guard.release().await.unwrap();
        // And the readers have their turn.
        eventually("readers go on", async || {
            done.load(Ordering::SeqCst) > before
        })
        .await;
    }
    stops.store(true, Ordering::SeqCst);
    while let Some(ended) = readers.join_next().await {
        ended.unwrap();
    }
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_that_never_pause_do_not_starve_a_reader() {
    let database = TestDatabase::new().await;
    let stops = Arc::<AtomicBool>::default();
    let mut writers = JoinSet::new();
    for _ in 0..3 {
        let client = database.client().await;
        for _ in 0..3 {
            let (client, stops) = (client.clone(), Arc::clone(&stops));
            writers.spawn(async move {
                while !stops.load(Ordering::SeqCst) {
                    let guard = client.lock("l").ttl(HOUR).acquire().await.unwrap();
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    guard.release().await.unwrap();
                }
            });
        }
    }
    let reader = database.client().await;
    for _ in 0..5 {
        let guard = shared(&reader, "l").acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    stops.store(true, Ordering::SeqCst);
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    database.remove().await;
}

/// Positive: so many read; negative: somebody writes.
#[derive(Default)]
struct Inside(AtomicI64);

impl Inside {
    async fn reads(&self) {
        assert!(
            self.0.fetch_add(1, Ordering::SeqCst) >= 0,
            "beside a writer"
        );
        tokio::time::sleep(Duration::from_millis(3)).await;
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    async fn writes(&self) {
        let before = self.0.swap(-1_000_000, Ordering::SeqCst);
        assert_eq!(before, 0, "a writer beside others");
        tokio::time::sleep(Duration::from_millis(3)).await;
        let after = self.0.swap(0, Ordering::SeqCst);
        assert_eq!(after, -1_000_000, "others beside a writer");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_readers_and_writers_exclude_each_other() {
    let database = TestDatabase::new().await;
    let deadlocks = server_deadlocks().await;
    let (inside, downgraded) = (Arc::<Inside>::default(), Arc::<AtomicU64>::default());
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let client = database.client().await;
        for task in 0..6 {
            let (client, inside) = (client.clone(), Arc::clone(&inside));
            let downgraded = Arc::clone(&downgraded);
            tasks.spawn(async move {
                for round in 0..8 {
                    match (task + round) % 6 {
                        0 => {
                            let guard = client.lock("l").ttl(HOUR).acquire().await.unwrap();
                            inside.writes().await;
                            guard.release().await.unwrap();
                        }
                        1 => {
                            let guard = client.lock("l").ttl(HOUR).acquire().await.unwrap();
                            inside.writes().await;
                            match guard.downgrade().await {
                                Ok(guard) => {
                                    downgraded.fetch_add(1, Ordering::SeqCst);
                                    inside.reads().await;
                                    guard.release().await.unwrap();
                                }
                                // It is released: each time that the packet came, somebody was at the row.
                                Err(Error::Busy { .. }) => {}
                                Err(error) => panic!("{error}"),
                            }
                        }
                        2 => {
                            let guard = client.lock_all(["l", "m"]).ttl(HOUR).acquire().await;
                            let guard = guard.unwrap();
                            inside.writes().await;
                            guard.release().await.unwrap();
                        }
                        3 => {
                            let guard = shared(&client, "l").apart().acquire().await.unwrap();
                            inside.reads().await;
                            guard.release().await.unwrap();
                        }
                        _ => {
                            let guard = shared(&client, "l").acquire().await.unwrap();
                            inside.reads().await;
                            guard.release().await.unwrap();
                        }
                    }
                }
            });
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert!(downgraded.load(Ordering::SeqCst) > 0);
    no_deadlocks_since(deadlocks).await;
    database.remove().await;
}

/// A wish, and the readers' turn, are written with the server's time. If its clock goes back they lie far ahead.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_goes_back_keeps_nobody_out_for_long() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let mut connection = database.connection().await;
    let ahead = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6)) + 3600000000";
    let door = "WHERE kind=1 AND lock_name='l'";
    let reader = shared(&one, "l").acquire().await.unwrap();
    // A wish: readers come in, and a new one is heard.
    let wish = format!("UPDATE t_tag_lock SET count={ahead} {door}");
    run(&mut connection, &wish).await;
    let second = shared(&other, "l").try_acquire().await.unwrap();
    second.expect("nobody wishes").release().await.unwrap();
    let waits = other.lock("l").ttl(HOUR);
    let waiting = tokio::spawn(async move { waits.acquire().await });
    eventually("the writer is heard", async || {
        shared(&other, "l").try_acquire().await.unwrap().is_none()
    })
    .await;
    reader.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    // The readers' turn.
    let reader = shared(&one, "l").acquire().await.unwrap();
    let turn = format!("UPDATE t_tag_lock SET previous={ahead} {door}");
    run(&mut connection, &turn).await;
    let waits = other.lock("l").ttl(HOUR);
    let waiting = tokio::spawn(async move { waits.acquire().await });
    eventually("the writer is heard", async || {
        shared(&other, "l").try_acquire().await.unwrap().is_none()
    })
    .await;
    reader.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    // The door is free, and its wish lies ahead.
    run(&mut connection, &wish).await;
    let reader = shared(&one, "l").try_acquire().await.unwrap();
    reader.expect("nobody writes").release().await.unwrap();
    database.remove().await;
}

/// A transaction has the lock's row at any time, and the next one waits for it in the row's own queue: it is never seen free.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_that_never_pause_do_not_starve_a_reader() {
    let database = TestDatabase::new().await;
    let (stops, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let mut writers = JoinSet::new();
    let writes = database.client().await;
    for _ in 0..4 {
        let (client, stops, done) = (writes.clone(), Arc::clone(&stops), Arc::clone(&done));
        let mut connection = database.connection().await;
        writers.spawn(async move {
            while !stops.load(Ordering::SeqCst) {
                let mut tx = connection.begin().await.unwrap();
                match client.lock_in(&mut tx, "l").await {
                    Ok(_) => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        tx.commit().await.unwrap();
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                    // The reader came first.
                    Err(Error::Timeout { .. }) => tx.rollback().await.unwrap(),
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    let reader = database.client().await;
    for _ in 0..5 {
        let before = done.load(Ordering::SeqCst);
        eventually("transactions go on", async || {
            done.load(Ordering::SeqCst) > before + 4
        })
        .await;
        let guard = shared(&reader, "l").acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    stops.store(true, Ordering::SeqCst);
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    database.remove().await;
}

/// A packet may stand in the door's queue for a second or two: nobody is kept by that who wants an answer sooner.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_while_a_transaction_keeps_the_door() {
    let database = TestDatabase::new().await;
    let (reads, writes) = (database.client().await, database.client().await);
    let mut connection = database.connection().await;
    // Its rows are there.
    let guard = shared(&reads, "l").acquire().await.unwrap();
    guard.release().await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    writes.lock_in(&mut tx, "l").await.unwrap();
    let waits = shared(&reads, "l");
    let waiting = tokio::spawn(async move { waits.acquire().await });
    for _ in 0..10 {
        let error = shared(&reads, "l").wait(Duration::from_millis(300));
        let error = error.acquire().await.unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        let tried = shared(&reads, "l").try_acquire().await.unwrap();
        assert!(tried.is_none());
    }
    assert!(!waiting.is_finished());
    tx.commit().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    database.remove().await;
}
