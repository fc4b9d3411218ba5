//! `verify_in` and `release_in` of several locks in the caller's transaction.

use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use tag_lock::Error;

use super::{TTL, held};
use crate::support::proxy::Proxy;
use crate::support::{TestDatabase, connect, eventually, number, run};

const NAMES: [&str; 3] = ["a", "b", "c"];
const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

async fn begin(connection: &mut MySqlConnection, level: &str) {
    let sql = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}; START TRANSACTION");
    run(connection, &sql).await;
}

#[tokio::test]
async fn the_commit_releases_all() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let mut connection = database.connection().await;
    for level in LEVELS {
        let guard = one
            .lock_all(NAMES)
            .ttl(TTL)
            .acquire()
            .await
            .expect("acquires");
        begin(&mut connection, level).await;
        guard.verify_in(&mut connection).await.expect("ours");
        guard.release_in(&mut connection).await.expect("ours");
        assert!(!guard.is_held());
        assert_eq!(
            held(&other, &NAMES).await,
            NAMES,
            "{level}: before the commit"
        );
        run(&mut connection, "COMMIT").await;
        assert!(held(&other, &NAMES).await.is_empty(), "{level}");
        let next = other
            .lock_all(NAMES)
            .try_acquire()
            .await
            .expect("an answer");
        let next = next.expect("free as soon as it is committed");
        drop(guard);
        one.counter("a lane's round trip")
            .add(1)
            .await
            .expect("adds");
        assert!(next.is_held());
        next.release().await.expect("still its own");
    }
    database.remove().await;
}

#[tokio::test]
async fn a_rollback_leaves_the_guard_usable() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let mut connection = database.connection().await;
    for level in LEVELS {
        // Renewed after two seconds: a machine may stand still for three.
        let ttl = Duration::from_secs(6);
        let guard = one
            .lock_all(NAMES)
            .ttl(ttl)
            .acquire()
            .await
            .expect("acquires");
        begin(&mut connection, level).await;
        guard.verify_in(&mut connection).await.expect("ours");
        guard.release_in(&mut connection).await.expect("ours");
        run(&mut connection, "ROLLBACK").await;
        assert_eq!(held(&other, &NAMES).await, NAMES);
        eventually("that is known", async || guard.is_held()).await;
        begin(&mut connection, level).await;
        guard.verify_in(&mut connection).await.expect("still ours");
        run(&mut connection, "COMMIT").await;
        guard.release().await.expect("still ours");
        assert!(held(&other, &NAMES).await.is_empty(), "{level}");
    }
    database.remove().await;
}

/// Nobody else can be granted them before the transaction ends, whatever the deadlines say.
#[tokio::test]
async fn a_verified_group_is_fenced() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let (mut connection, mut another) = (database.connection().await, database.connection().await);
    let guard = one
        .lock_all(NAMES)
        .ttl(TTL)
        .acquire()
        .await
        .expect("acquires");
    begin(&mut connection, "READ COMMITTED").await;
    guard.verify_in(&mut connection).await.expect("ours");
    for name in NAMES {
        let free = other.lock_all([name, "d"]).try_acquire().await;
        assert!(free.expect("an answer").is_none(), "{name}");
    }
    run(&mut connection, "COMMIT").await;
    // One lease taken away: nothing of the transaction may count.
    let end = "UPDATE t_tag_lock SET status=0, holder='' WHERE lock_name='b' AND kind=1";
    run(&mut another, end).await;
    for releases in [false, true] {
        begin(&mut connection, "READ COMMITTED").await;
        let result = if releases {
            guard.release_in(&mut connection).await
        } else {
            guard.verify_in(&mut connection).await
        };
        match result {
            Err(Error::LockLost { name }) => assert_eq!(name, "b"),
            result => panic!("{result:?}"),
        }
        run(&mut connection, "ROLLBACK").await;
    }
    assert_eq!(held(&other, &NAMES).await, ["a", "c"]);
    drop(guard);
    eventually("the rest is released", async || {
        held(&other, &NAMES).await.is_empty()
    })
    .await;
    database.remove().await;
}

/// A transaction of an application that has one of the rows: it is passed over, and nothing is taken.
#[tokio::test]
async fn a_row_that_a_transaction_holds_is_in_the_way() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let mut connection = database.connection().await;
    for _ in 0..2 {
        begin(&mut connection, "READ COMMITTED").await;
        other.lock_in(&mut connection, "b").await.expect("free");
        let guard = one.lock_all(NAMES).try_acquire().await;
        assert!(guard.expect("an answer").is_none());
        assert!(held(&other, &NAMES).await.is_empty());
        let waiter = tokio::spawn(one.lock_all(NAMES).ttl(TTL).acquire());
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert!(!waiter.is_finished());
        run(&mut connection, "COMMIT").await;
        let guard = tokio::time::timeout(Duration::from_secs(60), waiter).await;
        let guard = guard
            .expect("its turn")
            .expect("no panic")
            .expect("acquires");
        guard.release().await.expect("ours");
    }
    database.remove().await;
}

/// One packet for all, and for many long names a few.
#[tokio::test]
async fn a_group_costs_a_round_trip() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let mut connection = connect(&proxy.url(&database.url)).await;
    // A server that takes 64 KB at a time has no room for so many long names in the packet that acquires them.
    let is_hostile = std::env::var_os("TAG_LOCK_SERVER_DEFAULTS").is_some();
    let (count, length) = if is_hostile { (100, 1) } else { (256, 252) };
    let long = |number: usize| format!("{number:03}{}", "é".repeat(length));
    let many: Vec<String> = (0..count).map(long).collect();
    let few: Vec<String> = NAMES.map(str::to_owned).into();
    for (names, most) in [(few, 1), (many, 30)] {
        let guard = client.lock_all(&names).ttl(TTL).acquire().await;
        let guard = guard.expect("acquires");
        begin(&mut connection, "READ COMMITTED").await;
        let before = proxy.counters();
        guard.verify_in(&mut connection).await.expect("ours");
        let verified = proxy.counters();
        guard.release_in(&mut connection).await.expect("ours");
        let released = proxy.counters();
        for trips in [verified.since(&before), released.since(&verified)] {
            assert!((1..=most).contains(&trips.round_trips), "{trips:?}");
        }
        // How long the session may be idle is as before.
        let idle = "SELECT @@wait_timeout > 2";
        assert_eq!(number(&mut connection, idle).await, 1);
        run(&mut connection, "COMMIT").await;
        let free = client.lock_all(&names).try_acquire().await;
        free.expect("an answer")
            .expect("free")
            .release()
            .await
            .expect("ours");
        drop(guard);
    }
    database.remove().await;
}

#[tokio::test]
async fn what_is_in_the_way_of_a_group_is_named() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let (mut connection, mut another) = (database.connection().await, database.connection().await);
    let guard = client.lock_all(NAMES).ttl(TTL).acquire().await;
    let guard = guard.expect("acquires");
    let outside = guard.verify_in(&mut connection).await;
    assert!(
        matches!(outside, Err(Error::NoTransaction { .. })),
        "{outside:?}"
    );
    run(&mut another, "START TRANSACTION").await;
    let row = "SELECT fence FROM t_tag_lock WHERE lock_name='b' AND kind=1 AND slot=0 FOR UPDATE";
    run(&mut another, row).await;
    run(&mut connection, "SET SESSION innodb_lock_wait_timeout=1").await;
    for _ in 0..2 {
        begin(&mut connection, "READ COMMITTED").await;
        match guard.verify_in(&mut connection).await {
            Err(Error::Busy { name }) => assert_eq!(name, "b"),
            result => panic!("{result:?}"),
        }
        run(&mut connection, "ROLLBACK").await;
        let idle = "SELECT @@wait_timeout > 2";
        assert_eq!(number(&mut connection, idle).await, 1);
    }
    run(&mut another, "ROLLBACK").await;
    begin(&mut connection, "READ COMMITTED").await;
    guard.verify_in(&mut connection).await.expect("ours");
    run(&mut connection, "COMMIT").await;
    guard.release().await.expect("ours");
    database.remove().await;
}
