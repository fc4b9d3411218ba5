//! Accounts that may have fewer connections than a client would open: one is enough for every kind of call.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support;
use crate::support::account::Account;
use crate::support::{TestDatabase, connected, number, run};
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};
use tag_lock::{AtClose, LockClient, LockState};

const TASKS: usize = 8;

/// A client of an account, with which a slow machine is no reason for an error.
async fn client(account: &Account, database: &TestDatabase) -> LockClient {
    let builder = account
        .builder(database)
        .packet_timeout(Duration::from_secs(30))
        .request_timeout(Duration::from_secs(120));
    connected(builder).await
}

/// Each kind of call, on names of both lanes.
async fn every_call(client: &LockClient, others: &LockClient, task: usize) {
    let name = format!("job {task}");
    let n = client.counter(&name);
    assert_eq!(n.add(5).await.unwrap(), 5);
    assert_eq!(n.add_within(1, ..=5).await.unwrap(), None);
    assert_eq!(n.set(7).await.unwrap(), 5);
    assert_eq!(n.add_once(&name, 1).await.unwrap(), 8);
    assert_eq!(n.add_once(&name, 1).await.unwrap(), 8);
    assert_eq!(n.get().await.unwrap(), 8);

    let both = [format!("{name} a"), format!("{name} b")];
    let guard = client.lock_all(&both).acquire().await.unwrap();
    let others_too = others.lock_all(&both).try_acquire().await.unwrap();
    assert!(others_too.is_none());
    guard.release().await.unwrap();

    let guard = client.lock(&name).acquire().await.unwrap();
    guard.extend(Duration::from_secs(60)).await.unwrap();
    let info = client.inspect(&name).await.unwrap().unwrap();
    assert_ne!(info.state, LockState::Free);
    let listed = client.list("", None, 100).await.unwrap();
    assert!(listed.iter().any(|lock| lock.name == name), "{listed:?}");
    assert!(others.lock(&name).try_acquire().await.unwrap().is_none());
    // One of them waits for the other.
    let ((), next) = tokio::join!(async { guard.release().await.unwrap() }, async {
        others.lock(&name).acquire().await.unwrap()
    });
    let (waiter, ()) = tokio::join!(
        async { client.lock(&name).acquire().await.unwrap() },
        async { next.release().await.unwrap() }
    );
    assert!(client.force_release(&name).await.unwrap());
    assert!(waiter.release().await.is_err(), "it was released by force");
    // For a moment it may be promised to who waited last: a wish may be slower than the grant.
    support::eventually("it is free", async || {
        match client.lock(&name).try_acquire().await.unwrap() {
            Some(guard) => guard.release().await.is_ok(),
            None => false,
        }
    })
    .await;
}

/// Ends the sessions of an account; how many there were.
async fn kill_sessions(connection: &mut MySqlConnection, user: &str) -> usize {
    let sql = format!("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{user}'");
    let rows = sqlx::raw_sql(AssertSqlSafe(sql))
        .fetch_all(&mut *connection)
        .await
        .expect("a list");
    for row in &rows {
        let id: u64 = row.try_get_unchecked(0).expect("an id");
        // It may have gone by itself.
        let kill = sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}")));
        drop(kill.execute(&mut *connection).await);
    }
    rows.len()
}

async fn account(limit: u32, database: &TestDatabase) -> Account {
    let account = Account::limited(limit).await;
    account
        .grant("SELECT, INSERT, UPDATE, DELETE", database)
        .await;
    account
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_works_with_one_to_three_connections() {
    for limit in 1..=3 {
        let database = TestDatabase::new().await;
        let account = account(limit, &database).await;
        let (client, others) = (client(&account, &database).await, database.client().await);
        let tasks = (0..TASKS).map(|task| every_call(&client, &others, task));
        futures_util::future::join_all(tasks).await;
        client.close(AtClose::Release).await;
        account.remove().await;
        database.remove().await;
    }
}

/// Whoever waits for a row that a transaction holds has a connection for at most a moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_a_transaction_holds_does_not_keep_the_only_connection() {
    let database = TestDatabase::new().await;
    let account = account(1, &database).await;
    let client = client(&account, &database).await;
    let (held, free) = (client.counter("held"), client.counter("free"));
    held.add(1).await.unwrap();
    let mut application = database.connection().await;
    let lock = "BEGIN; SELECT * FROM t_tag_lock \
                WHERE lock_name = 'held' AND kind = 2 AND slot = 0 FOR UPDATE";
    run(&mut application, lock).await;
    let (added, ()) = tokio::join!(held.add(1), async {
        for value in 1..=20 {
            assert_eq!(free.add(1).await.unwrap(), value);
            assert_eq!(held.get().await.unwrap(), 1);
        }
        run(&mut application, "COMMIT").await;
    });
    assert_eq!(added.unwrap(), 2);
    account.remove().await;
    database.remove().await;
}

/// Two clients are two processes to the server.
#[tokio::test(flavor = "multi_thread")]
async fn two_clients_find_a_connection_each_among_three() {
    let database = TestDatabase::new().await;
    let account = account(3, &database).await;
    let a = client(&account, &database).await;
    // It has had all its lanes and its reader at work.
    for name in 0..20 {
        let n = a.counter(&name.to_string());
        tokio::try_join!(n.add(1), n.get()).unwrap();
    }
    let b = client(&account, &database).await;
    let work = async |client: &LockClient, other: &LockClient, first: usize| {
        let tasks = (first..first + TASKS).map(|task| every_call(client, other, task));
        futures_util::future::join_all(tasks).await;
    };
    tokio::join!(work(&a, &b, 0), work(&b, &a, 100));
    account.remove().await;
    database.remove().await;
}

/// Each break leaves a batch to settle, and the connections that are left are shared with the settlements.
#[tokio::test(flavor = "multi_thread")]
async fn no_increment_is_lost_or_doubled_when_the_only_connection_is_killed() {
    let database = TestDatabase::new().await;
    let account = account(1, &database).await;
    let client = client(&account, &database).await;
    let mut connection = database.connection().await;
    let (over, added) = (AtomicBool::new(false), AtomicU64::new(0));
    let tasks = futures_util::future::join_all((0..TASKS).map(async |task| {
        while !over.load(Ordering::Relaxed) {
            client.counter(&format!("n {task}")).add(1).await.unwrap();
            added.fetch_add(1, Ordering::Relaxed);
        }
    }));
    tokio::join!(tasks, async {
        let mut killed = 0;
        while killed < 30 {
            // Some are added between two kills.
            let goal = added.load(Ordering::Relaxed) + 5;
            support::eventually("an add", async || added.load(Ordering::Relaxed) >= goal).await;
            killed += kill_sessions(&mut connection, &account.name).await;
        }
        over.store(true, Ordering::Relaxed);
    });
    let sum = "SELECT CAST(SUM(count) AS SIGNED) FROM t_tag_lock WHERE kind = 2";
    let sum = number(&mut connection, sum).await;
    assert_eq!(u64::try_from(sum).unwrap(), added.into_inner());
    account.remove().await;
    database.remove().await;
}
