//! A lock, or a counter, for each order: names that nobody has used before.

use crate::support;
use crate::support::TestDatabase;
use tag_lock::LockClient;

const NAMES: i64 = 64;

/// How many batches the clients have sent.
async fn batches(database: &TestDatabase) -> i64 {
    const SENT: &str = "SELECT CAST(COALESCE(SUM(seq),0) AS SIGNED) FROM t_tag_lock_lane";
    support::number(&mut database.connection().await, SENT).await
}

/// Takes a lock for each order, one after the other, and keeps them; how many batches that costs.
async fn take(database: &TestDatabase, client: &LockClient, word: &str) -> i64 {
    let before = batches(database).await;
    let mut guards = Vec::new();
    for number in 0..NAMES {
        let lock = client.lock(&format!("{word}:{number}")).auto_renew(false);
        guards.push(lock.acquire().await.unwrap());
    }
    let sent = batches(database).await - before;
    for guard in guards {
        guard.release().await.unwrap();
    }
    sent
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_keeps_meeting_new_names_creates_them_at_once() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let first = take(&database, &client, "order").await;
    assert_eq!(
        first, NAMES,
        "the first names of a client are taken for new"
    );
    let new = take(&database, &client, "invoice").await;
    assert_eq!(new, NAMES, "one packet each");
    // Names that are there, its own or another client's, cost no more.
    assert_eq!(take(&database, &client, "order").await, NAMES);
    let other = database.client().await;
    take(&database, &other, "customer").await;
    assert_eq!(take(&database, &client, "customer").await, NAMES);
    database.remove().await;
}

/// The same of counters, however they begin.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_keeps_beginning_counters_creates_them_at_once() {
    let database = TestDatabase::new().await;
    for first in ["init", "set"] {
        let client = database.client().await;
        for round in 0..2 {
            let before = batches(&database).await;
            for number in 0..NAMES {
                let counter = client.counter(&format!("{first}:{round}:{number}"));
                if first == "init" {
                    assert!(counter.init(number).await.unwrap());
                } else {
                    assert_eq!(counter.set(number).await.unwrap(), 0);
                }
            }
            let sent = batches(&database).await - before;
            assert_eq!(sent, NAMES, "{first}: one packet each");
        }
    }
    database.remove().await;
}
