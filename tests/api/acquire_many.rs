//! Several permits of one semaphore at once, all or none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::{TestDatabase, eventually, no_deadlocks_since, server_deadlocks};
use sqlx::Connection;
use tag_lock::{Error, LockClient, Semaphore};
use tokio::task::JoinSet;

const HOUR: Duration = Duration::from_secs(3_600);

fn semaphore(client: &LockClient, permits: u32) -> Semaphore {
    client.semaphore("cores", permits).ttl(HOUR)
}

/// How many permits are taken.
async fn taken(client: &LockClient, permits: u32) -> usize {
    semaphore(client, permits).list().await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_are_granted_or_none_is() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let cores = semaphore(&one, 10);
    let six = cores.acquire_many(6).await.unwrap();
    assert!(six.is_held() && !six.remaining().is_zero());
    let slots: BTreeSet<u32> = six.slots().iter().copied().collect();
    assert_eq!((slots.len(), six.slots().len()), (6, 6), "different ones");
    assert!(slots.iter().all(|slot| *slot < 10));
    let tokens: Vec<(u32, u64)> = six.fencing_tokens().collect();
    assert_eq!(tokens.len(), 6);
    assert_eq!(taken(&other, 10).await, 6);
    for client in [&one, &other] {
        let five = semaphore(client, 10).try_acquire_many(5).await.unwrap();
        assert!(five.is_none(), "{five:?}");
        assert_eq!(taken(&other, 10).await, 6, "nothing is kept");
        let waits = semaphore(client, 10).wait(Duration::from_millis(300));
        let error = waits.acquire_many(5).await.unwrap_err();
        assert!(
            matches!(&error, Error::Timeout { name, .. } if name == "cores"),
            "{error}"
        );
        assert_eq!(taken(&other, 10).await, 6, "nothing is kept");
    }
    let four = semaphore(&other, 10).try_acquire_many(4).await.unwrap();
    let four = four.expect("four are free");
    assert!(four.slots().iter().all(|slot| !slots.contains(slot)));
    let single = semaphore(&one, 10).try_acquire().await.unwrap();
    assert!(single.is_none(), "all ten are taken");
    six.release().await.unwrap();
    assert!(four.is_held());
    four.release().await.unwrap();
    let all = semaphore(&other, 10).acquire_many(10).await.unwrap();
    assert_eq!(all.slots(), (0..10).collect::<Vec<_>>());
    // In a transaction of the caller's.
    let mut connection = database.connection().await;
    let mut tx = connection.begin().await.unwrap();
    all.verify_in(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert!(one.semaphore("cores", 10).force_release(3).await.unwrap());
    let mut tx = connection.begin().await.unwrap();
    let verified = all.verify_in(&mut tx).await;
    assert!(matches!(verified, Err(Error::LockLost { .. })));
    tx.rollback().await.unwrap();
    assert!(matches!(all.release().await, Err(Error::LockLost { .. })));
    assert_eq!(taken(&one, 10).await, 0);
    for count in [0, 11] {
        let error = semaphore(&one, 10).acquire_many(count).await.unwrap_err();
        assert!(
            matches!(
                error,
                Error::InvalidOption {
                    option: "count",
                    ..
                }
            ),
            "{error}"
        );
    }
    database.remove().await;
}

/// Two that had a part each would wait for each other for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_comes_to_its_end() {
    const PERMITS: u32 = 10;
    let database = TestDatabase::new().await;
    let deadlocks = server_deadlocks().await;
    let (held, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = JoinSet::new();
    for process in 0..3_u32 {
        let client = database.client().await;
        for task in 0..6_u32 {
            let (client, held, most) = (client.clone(), Arc::clone(&held), Arc::clone(&most));
            tasks.spawn(async move {
                let cores = semaphore(&client, PERMITS);
                for round in 0..8 {
                    // Singles among them.
                    let count = [6, 1, 10, 4, 1, 7][((process + task + round) % 6) as usize];
                    let permits = cores.acquire_many(count).await.unwrap();
                    let now = held.fetch_add(count, Ordering::SeqCst) + count;
                    most.fetch_max(now, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    assert!(permits.is_held());
                    held.fetch_sub(count, Ordering::SeqCst);
                    permits.release().await.unwrap();
                }
            });
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert_eq!(
        most.load(Ordering::SeqCst),
        PERMITS,
        "all were held at once, and no more"
    );
    no_deadlocks_since(deadlocks).await;
    database.remove().await;
}

/// Singles of two other clients take what is free as soon as it is.
#[tokio::test(flavor = "multi_thread")]
async fn singles_that_never_pause_do_not_starve_it() {
    let database = TestDatabase::new().await;
    let stops = Arc::<AtomicBool>::default();
    let mut singles = JoinSet::new();
    for _ in 0..2 {
        let client = database.client().await;
        for _ in 0..4 {
            let (client, stops) = (client.clone(), Arc::clone(&stops));
            singles.spawn(async move {
                while !stops.load(Ordering::SeqCst) {
                    let permit = semaphore(&client, 4).acquire().await.unwrap();
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    permit.release().await.unwrap();
                }
            });
        }
    }
    let client = database.client().await;
    for _ in 0..3 {
        let all = semaphore(&client, 4).acquire_many(4).await.unwrap();
        assert_eq!(all.slots(), [0, 1, 2, 3]);
        all.release().await.unwrap();
    }
    stops.store(true, Ordering::SeqCst);
    while let Some(ended) = singles.join_next().await {
        ended.unwrap();
    }
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_dropped_keep_nothing() {
    let database = TestDatabase::new().await;
    let (client, other) = (database.client().await, database.client().await);
    let single = semaphore(&other, 5).acquire().await.unwrap();
    for micros in (0..40_000).step_by(1_000) {
        let five = semaphore(&client, 5);
        let waits = five.acquire_many(5);
        let over = Duration::from_micros(micros);
        assert!(tokio::time::timeout(over, waits).await.is_err());
    }
    eventually("the single one is alone", async || {
        taken(&other, 5).await == 1
    })
    .await;
    single.release().await.unwrap();
    let all = semaphore(&client, 5).acquire_many(5).await.unwrap();
    drop(all);
    let all = semaphore(&other, 5).acquire_many(5).await.unwrap();
    all.release().await.unwrap();
    database.remove().await;
}

/// A process that dies while it takes several keeps the others from it for no longer than its permits would.
#[tokio::test(flavor = "multi_thread")]
async fn who_dies_while_it_takes_several_is_in_the_way_for_a_ttl() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    // Both of them: the holder's own row may not be free yet when it is looked at.
    let short = |client: &LockClient| client.semaphore("cores", 3).ttl(Duration::from_secs(2));
    let all = short(&one).acquire_many(3).await.unwrap();
    let takes = tokio::spawn({
        let semaphore = short(&other);
        async move { semaphore.acquire_many(2).await }
    });
    let mut connection = database.connection().await;
    let lease = "SELECT CAST(MAX(TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),deadline)) AS SIGNED) FROM t_tag_lock \
                 WHERE description='takes several permits' AND status=1 AND deadline>UTC_TIMESTAMP(6)";
    let begun = Instant::now();
    let lasts = loop {
        let lasts: Option<i64> = sqlx::query_scalar(lease)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        match lasts {
            Some(lasts) => break lasts,
            None => assert!(begun.elapsed() < Duration::from_secs(120), "never taken"),
        }
    };
    assert!(lasts <= 2_000_000, "{lasts} us");
    all.release().await.unwrap();
    takes.await.unwrap().unwrap().release().await.unwrap();
    database.remove().await;
}
