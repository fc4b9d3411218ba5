//! Rows and stripes that others hold for a moment or for long, and rows that somebody has deleted.

use std::time::{Duration, Instant};

use sqlx::Connection;
use tag_lock::{Error, LockClient};
use tokio::task::JoinSet;

use super::HANG;
use crate::support::proxy::Proxy;
use crate::support::{TestDatabase, connected, patient, run};

/// Holds a counter in a transaction of its own.
async fn hold(database: &TestDatabase, name: &str) -> sqlx::MySqlConnection {
    let mut connection = database.connection().await;
    let row = format!("lock_name='{name}' AND kind=2 AND slot=0");
    let sql = format!("BEGIN; SELECT * FROM t_tag_lock WHERE {row} FOR UPDATE");
    run(&mut connection, &sql).await;
    connection
}

/// A row that was held for a moment need not wait for all those that are held for long.
#[tokio::test]
async fn a_row_that_is_free_again_goes_before_those_that_are_held() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut holders = Vec::new();
    let mut stuck = JoinSet::new();
    for number in 0..40 {
        let name = format!("c{number}");
        client.counter(&name).add(1).await.unwrap();
        holders.push(hold(&database, &name).await);
        let client = client.clone();
        stuck.spawn(async move { client.counter(&name).add(1).await.unwrap() });
    }
    // One after the other they would take twenty seconds, at a second each for two connections.
    free_again(&database, &client, "x").await;
    for holder in &mut holders {
        run(holder, "COMMIT").await;
    }
    while let Some(value) = stuck.join_next().await {
        assert_eq!(value.unwrap(), 2);
    }
    database.remove().await;
}

/// Requests for one row that is held take one place among those that wait, however many they are.
#[tokio::test]
async fn one_row_that_is_held_keeps_no_other_waiting() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    client.counter("x").add(1).await.unwrap();
    let mut holder = hold(&database, "x").await;
    let mut stuck = JoinSet::new();
    for _ in 0..60 {
        let client = client.clone();
        stuck.spawn(async move { client.counter("x").add(1).await.unwrap() });
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    free_again(&database, &client, "y").await;
    run(&mut holder, "COMMIT").await;
    let mut values = Vec::new();
    while let Some(value) = stuck.join_next().await {
        values.push(value.unwrap());
    }
    values.sort_unstable();
    assert_eq!(values, (2..=61).collect::<Vec<i64>>());
    database.remove().await;
}

/// Holds a new counter for a moment in which an addition comes, which has to be answered soon after.
async fn free_again(database: &TestDatabase, client: &LockClient, name: &'static str) {
    client.counter(name).add(1).await.unwrap();
    let mut holder = hold(database, name).await;
    let adding = tokio::spawn({
        let client = client.clone();
        async move { client.counter(name).add(1).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    run(&mut holder, "COMMIT").await;
    let start = Instant::now();
    assert_eq!(adding.await.unwrap().unwrap(), 2);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
}

/// An addition with an id waits in the server for a counter that is held, instead of asking over and over.
#[tokio::test]
async fn an_addition_with_an_id_waits_for_its_counter() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let client = connected(patient(&proxy.url(&database.url))).await;
    client.counter("c").add(1).await.unwrap();
    let mut holder = hold(&database, "c").await;
    let adding = tokio::spawn({
        let client = client.clone();
        async move { client.counter("c").add_once("id", 1).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = proxy.counters().commands;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let commands = proxy.counters().commands - before;
    assert!(commands < 50, "{commands} commands");
    run(&mut holder, "COMMIT").await;
    assert_eq!(adding.await.unwrap().unwrap(), 2);
    database.remove().await;
}

/// A new name on a stripe that somebody holds must not stop those who use other names, renewals among them.
#[tokio::test]
async fn a_new_name_on_a_stuck_stripe_stops_nobody_else() {
    let database = TestDatabase::new().await;
    let client = connected(patient(&database.url).lanes(1)).await;
    let stripe = |name: &str| crc32fast::hash(name.as_bytes()) % 100;
    let fresh = "fresh";
    let ttl = Duration::from_secs(15);
    let mut names: Vec<String> = (0..100).map(|number| format!("lock{number}")).collect();
    let mut same = (0..).map(|number| format!("same{number}"));
    names.push(same.find(|name| stripe(name) == stripe(fresh)).unwrap());
    let mut guards = Vec::new();
    for name in &names {
        guards.push(client.lock(name).ttl(ttl).acquire().await.unwrap());
    }
    let mut names = (0..).map(|number| format!("counter{number}"));
    let counter = names.find(|name| stripe(name) != stripe(fresh)).unwrap();
    client.counter(&counter).add(1).await.unwrap();
    let mut holder = database.connection().await;
    let row = format!("lock_name='center_lock_{:02}' AND kind=0", stripe(fresh));
    let sql = format!("BEGIN; SELECT * FROM t_tag_lock WHERE {row} FOR UPDATE");
    run(&mut holder, &sql).await;
    let adding = tokio::spawn({
        let client = client.clone();
        async move { client.counter(fresh).add(1).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Far less than the request timeout of two minutes.
    for value in 2..=4 {
        let added = tokio::time::timeout(HANG / 2, client.counter(&counter).add(1)).await;
        assert_eq!(added.expect("an answer").unwrap(), value);
    }
    tokio::time::sleep(ttl).await;
    for guard in &guards {
        assert!(guard.is_held(), "{} was not renewed", guard.name());
    }
    run(&mut holder, "COMMIT").await;
    assert_eq!(adding.await.unwrap().unwrap(), 1);
    database.remove().await;
}

/// A row that somebody has deleted is not taken for a lock that is held, or for a counter that is exhausted.
#[tokio::test]
async fn a_deleted_row_is_neither_held_nor_exhausted() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    let counter = client.counter("c");
    for round in 1..=2 {
        if round == 2 {
            // It has locked the gap, and cannot go on; the next one can.
            let mut transaction = connection.begin().await.unwrap();
            let value = counter.add_within_in(&mut transaction, 1, ..=1).await;
            assert!(matches!(value, Err(Error::Interrupted { .. })), "{value:?}");
            transaction.rollback().await.unwrap();
        }
        let mut transaction = connection.begin().await.unwrap();
        let locked = client.try_lock_in(&mut transaction, "l").await.unwrap();
        assert!(locked.is_some(), "round {round}");
        let value = counter.add_within_in(&mut transaction, 1, ..=1).await;
        assert_eq!(value.unwrap(), Some(1), "round {round}");
        assert_eq!(counter.get_in(&mut transaction).await.unwrap(), 1);
        let value = counter.add_within_in(&mut transaction, 1, ..=1).await;
        assert_eq!(value.unwrap(), None, "round {round}");
        transaction.commit().await.unwrap();
        let sql = "DELETE FROM t_tag_lock WHERE lock_name IN ('l','c')";
        run(&mut connection, sql).await;
    }
    database.remove().await;
}
