//! Leases, and who has the next one.

use std::time::{Duration, Instant};

use sqlx::Connection;
use tag_lock::{AtClose, Error};
use tokio::task::JoinSet;

use super::HANG;
use crate::support::proxy::Proxy;
use crate::support::{TestDatabase, connected, patient, run};

/// One level of an owner's must not take off another one.
#[tokio::test]
async fn an_owner_cannot_release_two_levels_at_once() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let outer = client.lock("l").owner("o").acquire().await.unwrap();
    let inner = client.lock("l").owner("o").acquire().await.unwrap();
    let mut connection = database.connection().await;
    let mut transaction = connection.begin().await.unwrap();
    let refused = inner.release_in(&mut transaction).await;
    assert!(
        matches!(refused, Err(Error::InvalidOption { .. })),
        "{refused:?}"
    );
    transaction.commit().await.unwrap();
    inner.release().await.unwrap();
    assert!(outer.is_held());
    assert!(client.lock("l").try_acquire().await.unwrap().is_none());
    outer.release().await.unwrap();
    assert!(client.lock("l").try_acquire().await.unwrap().is_some());
    database.remove().await;
}

/// A row that is locked for a moment must not hide from an owner that it may enter.
#[tokio::test]
async fn an_owner_enters_after_its_row_was_locked() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let _outer = client.lock("l").owner("o").acquire().await.unwrap();
    let mut connection = database.connection().await;
    run(
        &mut connection,
        "BEGIN; SELECT * FROM t_tag_lock WHERE lock_name='l' AND kind=1 AND slot=0 FOR UPDATE",
    )
    .await;
    let entering = tokio::spawn({
        let client = client.clone();
        async move { client.lock("l").owner("o").acquire().await }
    });
    // Longer than its first packet tries.
    tokio::time::sleep(Duration::from_secs(3)).await;
    run(&mut connection, "COMMIT").await;
    let inner = tokio::time::timeout(HANG, entering).await.expect("enters");
    inner.unwrap().unwrap().release().await.unwrap();
    database.remove().await;
}

/// Who does not want to wait gets an answer also while this process gives way to another one.
#[tokio::test]
async fn try_acquire_answers_while_another_process_goes_first() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.client().await, database.client().await);
    for round in 0..10 {
        let name = format!("l{round}");
        let guard = here.lock(&name).acquire().await.unwrap();
        let waiting = tokio::spawn({
            let (there, name) = (there.clone(), name.clone());
            async move { there.lock(&name).acquire().await.unwrap() }
        });
        tokio::time::sleep(Duration::from_millis(60)).await;
        drop(guard);
        let lock = here.lock(&name);
        let answer = tokio::time::timeout(HANG, lock.try_acquire()).await;
        drop(answer.expect("an answer").unwrap());
        drop(
            tokio::time::timeout(HANG, waiting)
                .await
                .expect("its turn")
                .unwrap(),
        );
    }
    database.remove().await;
}

/// A client that held the lock once while others waited looks no more at its row than is needed.
#[tokio::test]
async fn a_holder_does_not_look_at_its_own_row() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let here = connected(patient(&proxy.url(&database.url))).await;
    let there = database.client().await;
    let first = here.lock("l").acquire().await.unwrap();
    let waiting = there.lock("l").wait(Duration::from_millis(300)).acquire();
    waiting.await.unwrap_err();
    // This process gives way now, to one that does not come.
    first.release().await.unwrap();
    let held = loop {
        if let Some(guard) = here.lock("l").try_acquire().await.unwrap() {
            break guard;
        }
    };
    let before = proxy.counters().commands;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let commands = proxy.counters().commands - before;
    assert!(
        commands < 50,
        "{commands} commands of a client that does nothing"
    );
    held.release().await.unwrap();
    database.remove().await;
}

/// A wish that was met, or that nobody has any more, is not given way to for ever.
#[tokio::test]
async fn a_wish_that_nobody_has_costs_little() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.client().await, database.client().await);
    let first = there.lock("l").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let here = here.clone();
        async move { here.lock("l").acquire().await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    first.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    let mut pauses = 0;
    for _ in 0..30 {
        let mut took = [Duration::ZERO; 2];
        // Nobody has ever waited for the other one.
        for (name, took) in ["l", "other"].into_iter().zip(&mut took) {
            let start = Instant::now();
            let guard = here.lock(name).acquire().await.unwrap();
            *took = start.elapsed();
            guard.release().await.unwrap();
        }
        // It gave way for 150 ms.
        pauses += u32::from(took[0] > took[1] + Duration::from_millis(120));
    }
    assert!(pauses <= 12, "gave way {pauses} times of 30");
    database.remove().await;
}

/// A closed client that left its leases still tells those who work under one that it has ended.
#[tokio::test]
async fn a_lease_that_was_kept_at_close_ends_with_a_signal() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let guard = client.lock("l").ttl(Duration::from_secs(3));
    let guard = guard.acquire().await.unwrap();
    let signal = guard.cancellation_token();
    client.close(AtClose::Keep).await;
    let told = tokio::time::timeout(HANG, signal.cancelled()).await;
    told.expect("it tells");
    assert!(!guard.is_held());
    let next = database.client().await;
    drop(next.lock("l").acquire().await.unwrap());
    database.remove().await;
}

/// A lease that could not be extended, because a transaction holds its row, is not said to be.
#[tokio::test]
async fn an_extension_that_was_skipped_is_an_error() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let guard = client.lock("l").ttl(HANG).auto_renew(false);
    let guard = guard.acquire().await.unwrap();
    let mut connection = database.connection().await;
    let mut transaction = connection.begin().await.unwrap();
    guard.verify_in(&mut transaction).await.unwrap();
    let extended = guard.extend(HANG * 10).await;
    assert!(matches!(extended, Err(Error::Busy { .. })), "{extended:?}");
    assert!(guard.is_held());
    transaction.rollback().await.unwrap();
    guard.extend(HANG * 10).await.unwrap();
    assert!(guard.remaining() > HANG * 9);
    database.remove().await;
}

/// After a release by force no task of the old holder's process is given the lock for long.
#[tokio::test(flavor = "multi_thread")]
async fn turns_in_memory_end_after_a_release_by_force() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.client().await, database.client().await);
    // Its renewals come once a minute.
    let ttl = Duration::from_secs(180);
    let mut tasks = JoinSet::new();
    let (sender, mut turns) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..8 {
        let here = here.clone();
        let sender = sender.clone();
        tasks.spawn(async move {
            loop {
                let guard = here.lock("l").ttl(ttl).acquire().await.unwrap();
                let _ = sender.send(());
                tokio::time::sleep(Duration::from_millis(1)).await;
                drop(guard);
            }
        });
    }
    turns.recv().await.unwrap();
    assert!(there.force_release("l").await.unwrap());
    let taken = there.lock("l").ttl(ttl).acquire();
    let guard = tokio::time::timeout(HANG, taken).await.expect("its turn");
    let guard = guard.unwrap();
    // Once it looks at the row, it knows.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let turn = here.lock("l").ttl(ttl).wait(Duration::from_secs(2));
    let turn = turn.acquire().await;
    assert!(matches!(turn, Err(Error::Timeout { .. })), "{turn:?}");
    assert!(guard.is_held());
    tasks.shutdown().await;
    guard.release().await.unwrap();
    database.remove().await;
}
