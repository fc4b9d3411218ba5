//! Faults that were found once, each with the test that shows it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod support;

use std::time::Duration;

use sqlx::Connection;
use support::{TestDatabase, run};
use tag_lock::{AtClose, Error};

/// Far longer than anything here takes, far shorter than for ever.
const HANG: Duration = Duration::from_secs(60);

/// A lane whose row is gone must not run a batch without a number, and then again.
#[tokio::test]
async fn a_lane_without_its_row_doubles_nothing() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let counter = client.counter("a");
    let mut connection = database.connection().await;
    for value in 1..=5 {
        assert_eq!(counter.add(1).await.unwrap(), value);
        run(&mut connection, "DELETE FROM t_tag_lock_lane").await;
        client
            .lock("a")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        run(&mut connection, "DELETE FROM t_tag_lock_lane").await;
    }
    assert_eq!(counter.get().await.unwrap(), 5);
    database.remove().await;
}

/// An id that is forgotten at once would be run again and again.
#[tokio::test]
async fn a_retention_that_is_too_short_is_refused() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let counter = client.counter("a").retention(Duration::from_micros(1));
    let result = counter.add_once("id", 1).await;
    assert!(
        matches!(result, Err(Error::InvalidOption { .. })),
        "{result:?}"
    );
    assert_eq!(counter.get().await.unwrap(), 0);
    database.remove().await;
}

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
    tokio::time::sleep(Duration::from_millis(300)).await;
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

/// The arithmetic of merged bounded additions must not leave its type.
#[tokio::test]
async fn giant_bounded_steps_merge() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    client.counter("a").set(i64::MIN).await.unwrap();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.counter("a").add_within(1 << 62, ..).await })
        })
        .collect();
    let mut values = Vec::new();
    for task in tasks {
        values.push(task.await.unwrap().unwrap());
    }
    values.sort_unstable();
    assert_eq!(values, [None, Some(-(1 << 62)), Some(0), Some(1 << 62)],);
    database.remove().await;
}

/// A client whose runtime has ended answers, instead of letting its callers wait for ever.
#[test]
fn a_client_that_outlives_its_runtime_is_closed() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(async {
        let database = TestDatabase::new().await;
        database.client().await
    });
    drop(runtime);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let counter = client.counter("a");
        let added = tokio::time::timeout(HANG, counter.add(1)).await;
        assert!(matches!(added, Ok(Err(Error::Closed))), "{added:?}");
        let read = tokio::time::timeout(HANG, counter.get()).await;
        assert!(matches!(read, Ok(Err(Error::Closed))), "{read:?}");
        let lock = tokio::time::timeout(HANG, client.lock("a").acquire()).await;
        assert!(matches!(lock, Ok(Err(Error::Closed))), "{lock:?}");
    });
}

/// A grant that is on its way when the client is closed is released, not left to its ttl.
#[tokio::test]
async fn close_releases_what_is_on_its_way() {
    let database = TestDatabase::new().await;
    let other = database.client().await;
    for round in 0..20 {
        let client = database.client().await;
        let name = format!("c{round}");
        let acquiring = tokio::spawn({
            let (client, name) = (client.clone(), name.clone());
            async move { client.lock(&name).acquire().await.map(drop) }
        });
        tokio::time::sleep(Duration::from_micros(500 + 300 * round)).await;
        client.close(AtClose::Release).await;
        let _ = acquiring.await.unwrap();
        assert!(
            other.lock(&name).try_acquire().await.unwrap().is_some(),
            "round {round}: still taken"
        );
    }
    database.remove().await;
}

/// Names that begin with a control character are listed too.
#[tokio::test]
async fn every_name_is_listed() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut guards = Vec::new();
    for name in ["\0", "\0a", "\t", "\n", "a", "é", "🎁"] {
        guards.push(client.lock(name).acquire().await.unwrap());
    }
    let mut names = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = client.list(after.as_deref(), 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.name.clone());
        names.extend(page.into_iter().map(|info| info.name));
    }
    names.sort_unstable();
    assert_eq!(names, ["\0", "\0a", "\t", "\n", "a", "é", "🎁"]);
    database.remove().await;
}
