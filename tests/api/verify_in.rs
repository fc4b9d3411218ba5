//! `LockGuard::verify_in`: a holder whose lease ends inside its transaction commits before the next
//! grant, or not at all.
//!
//! `TAG_LOCK_TEST_ROUNDS` sets how many rounds of random stalls there are, over all isolation levels.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{TestDatabase, is_mariadb, no_deadlocks_since, number, run, server_deadlocks};
use futures_util::FutureExt;
use futures_util::future::join_all;
use rand::RngExt;
use sqlx::mysql::MySqlConnection;
use tag_lock::{Error, LockClient};

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
/// So many rounds run at once.
const WORKERS: usize = 8;

fn rounds() -> usize {
    std::env::var("TAG_LOCK_TEST_ROUNDS").map_or(60, |rounds| rounds.parse().expect("a number"))
}

async fn begin(connection: &mut MySqlConnection, level: &str) {
    let sql = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}; START TRANSACTION");
    run(connection, &sql).await;
}

/// The database, a client that holds, and one that comes next, as two processes would have them.
struct Stage {
    database: TestDatabase,
    holder: LockClient,
    next: LockClient,
}

impl Stage {
    async fn new() -> Arc<Self> {
        let database = TestDatabase::new().await;
        let table = "CREATE TABLE journal (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(99), \
                     fence BIGINT UNSIGNED, KEY (name))";
        run(&mut database.connection().await, table).await;
        Arc::new(Self {
            holder: database.client().await,
            next: database.client().await,
            database,
        })
    }
}

/// What the next holder finds of what the one before wrote, each under the lock `name`.
async fn next_holder(stage: Arc<Stage>, name: String) -> i64 {
    let guard = stage.next.lock(&name).acquire().await.expect("acquires");
    let mut connection = stage.database.connection().await;
    let found = format!("SELECT COUNT(*) FROM journal WHERE name='{name}'");
    let found = number(&mut connection, &found).await;
    guard.release().await.expect("releases");
    found
}

/// One holder that stalls in its transaction, and one that comes next. How many lines the next one
/// found: one, if the holder's commit happened before; `None` if the holder lost the lease before it
/// could verify it.
async fn round(stage: &Arc<Stage>, name: String, level: &str, verify: bool) -> Option<i64> {
    let ttl = Duration::from_millis(rand::rng().random_range(100..300));
    let auto_renew = rand::random();
    let guard = stage
        .holder
        .lock(&name)
        .ttl(ttl)
        .auto_renew(verify && auto_renew)
        .acquire()
        .await
        .expect("acquires");
    let mut connection = stage.database.connection().await;
    let next = tokio::spawn(next_holder(Arc::clone(stage), name.clone()));
    // Some verifications come in the moment in which the lease ends.
    if verify && rand::random() {
        tokio::time::sleep(ttl.mul_f64(rand::rng().random_range(0.0..1.0))).await;
    }
    begin(&mut connection, level).await;
    if verify {
        match guard.verify_in(&mut connection).await {
            Ok(()) => {}
            Err(Error::LockLost { .. }) => {
                run(&mut connection, "ROLLBACK").await;
                drop(guard);
                next.await.expect("the next holder");
                return None;
            }
            Err(error) => panic!("{level}: {error}"),
        }
    }
    let fence = guard.fencing_token();
    let line = format!("INSERT INTO journal (name, fence) VALUES ('{name}', {fence})");
    run(&mut connection, &line).await;
    if !verify {
        let found = next.await.expect("the next holder");
        run(&mut connection, "COMMIT").await;
        return Some(found);
    }
    tokio::time::sleep(ttl.mul_f64(rand::rng().random_range(0.0..2.5))).await;
    run(&mut connection, "COMMIT").await;
    let kept = if auto_renew || rand::random() {
        drop(guard);
        None
    } else {
        // The next one waits for the end of the lease, not for a release.
        Some(guard)
    };
    let found = next.await.expect("the next holder");
    drop(kept);
    Some(found)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commit_happens_before_the_next_grant() {
    let stage = Stage::new().await;
    let deadlocks = server_deadlocks().await;
    let left = AtomicUsize::new(rounds());
    let lost = AtomicUsize::new(0);
    let worker = |number: usize| {
        let (stage, left, lost) = (&stage, &left, &lost);
        async move {
            let mut count = 0;
            while let Ok(round_number) =
                left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                })
            {
                let level = LEVELS[round_number % LEVELS.len()];
                loop {
                    count += 1;
                    let name = format!("{number}-{count}");
                    match round(stage, name, level, true).await {
                        Some(1) => break,
                        Some(found) => panic!("{level}: the next holder found {found} lines"),
                        None => lost.fetch_add(1, Ordering::Relaxed),
                    };
                }
            }
        }
    };
    join_all((0..WORKERS).map(worker)).await;
    println!(
        "{} rounds verified, {} lost before",
        rounds(),
        lost.into_inner()
    );
    no_deadlocks_since(deadlocks).await;
}

/// The test above can see: without the verification, what the holder wrote comes behind the next grant.
#[tokio::test]
async fn without_verification_the_same_shows_the_double_write() {
    let stage = Stage::new().await;
    for level in LEVELS {
        assert_eq!(
            round(&stage, level.to_owned(), level, false).await,
            Some(0),
            "{level}: the next holder could not know of the write"
        );
        let lines = format!("SELECT COUNT(*) FROM journal WHERE name='{level}'");
        let mut connection = stage.database.connection().await;
        assert_eq!(number(&mut connection, &lines).await, 1, "but it came");
    }
}

/// A second task of the same process waits for the lock. Without a transaction, it gets the next turn
/// in memory; a lease that a transaction has used goes through the table, and waits there for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_a_transaction_used_does_not_pass_in_memory() {
    let stage = Stage::new().await;
    for level in [
        "no transaction",
        "READ COMMITTED",
        "REPEATABLE READ",
        "SERIALIZABLE",
    ] {
        let name = format!("memory {level}");
        let first = stage.holder.lock(&name).acquire().await.expect("acquires");
        let token = first.fencing_token();
        let mut waiting = {
            let (stage, name) = (Arc::clone(&stage), name.clone());
            Box::pin(async move {
                let guard = stage.holder.lock(&name).acquire().await.expect("acquires");
                let mut connection = stage.database.connection().await;
                let found = format!("SELECT COUNT(*) FROM journal WHERE name='{name}'");
                (guard, number(&mut connection, &found).await)
            })
        };
        // The place in the queue is taken with the first poll.
        assert!(waiting.as_mut().now_or_never().is_none());
        let waiting = tokio::spawn(waiting);
        if level == "no transaction" {
            drop(first);
            let (second, _) = waiting.await.expect("the waiter");
            assert_eq!(second.fencing_token(), token + 1, "passed in memory");
            continue;
        }
        let mut connection = stage.database.connection().await;
        begin(&mut connection, level).await;
        first.verify_in(&mut connection).await.expect("ours");
        let line = format!("INSERT INTO journal (name, fence) VALUES ('{name}', {token})");
        run(&mut connection, &line).await;
        drop(first);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(
            !waiting.is_finished(),
            "{level}: passed on before the commit"
        );
        run(&mut connection, "COMMIT").await;
        let (second, found) = waiting.await.expect("the waiter");
        assert_eq!(found, 1, "{level}: the commit happened before");
        assert!(
            second.fencing_token() > token + 1,
            "{level}: a grant of its own"
        );
    }
}

/// A guard whose lease was taken over without its process knowing is refused by the row, and under READ
/// COMMITTED the row is not kept from its new holder.
#[tokio::test]
async fn an_outdated_guard_is_refused() {
    let stage = Stage::new().await;
    for level in LEVELS {
        let name = format!("outdated {level}");
        let ask = || stage.holder.lock(&name).auto_renew(false);
        let old = ask().acquire().await.expect("acquires");
        assert!(stage.next.force_release(&name).await.expect("is forced"));
        let mut connection = stage.database.connection().await;
        begin(&mut connection, level).await;
        assert!(old.is_held(), "it cannot know");
        let refused = old.verify_in(&mut connection).await;
        assert!(
            matches!(refused, Err(Error::LockLost { .. })),
            "{refused:?}"
        );
        run(&mut connection, "ROLLBACK").await;

        let new = stage.next.lock(&name).acquire().await.expect("acquires");
        begin(&mut connection, level).await;
        let refused = old.verify_in(&mut connection).await;
        assert!(
            matches!(refused, Err(Error::LockLost { .. })),
            "{refused:?}"
        );
        let refused = old.release_in(&mut connection).await;
        assert!(
            matches!(refused, Err(Error::LockLost { .. })),
            "{refused:?}"
        );
        if level != "READ COMMITTED" {
            run(&mut connection, "ROLLBACK").await;
        }
        let mut other = stage.database.connection().await;
        begin(&mut other, level).await;
        new.verify_in(&mut other).await.expect("the row is free");
        run(&mut other, "COMMIT").await;
        new.release().await.expect("still its own");
        run(&mut connection, "ROLLBACK").await;
        let released = old.release().await;
        assert!(
            matches!(released, Err(Error::LockLost { .. })),
            "{released:?}"
        );
    }
}

/// A guard that knows of its loss is refused without a statement, and so is one whose lease ended while
/// the same process got a new one.
#[tokio::test]
async fn a_guard_that_was_lost_is_refused() {
    let stage = Stage::new().await;
    let ask = || {
        let ttl = Duration::from_millis(100);
        stage.holder.lock("lost").ttl(ttl).auto_renew(false)
    };
    let old = ask().acquire().await.expect("acquires");
    old.lost().await;
    let new = stage.holder.lock("lost").acquire().await.expect("acquires");
    let mut connection = stage.database.connection().await;
    begin(&mut connection, "REPEATABLE READ").await;
    let refused = old.verify_in(&mut connection).await;
    assert!(
        matches!(refused, Err(Error::LockLost { .. })),
        "{refused:?}"
    );
    new.verify_in(&mut connection).await.expect("ours");
    run(&mut connection, "COMMIT").await;
    drop(old);
    new.release().await.expect("releases");
}

/// The lease is as long as if it had been renewed when it was verified; a longer one stays.
#[tokio::test]
async fn it_extends_the_lease() {
    let stage = Stage::new().await;
    let ttl = Duration::from_secs(600);
    let ask = || stage.holder.lock("extends").ttl(ttl);
    let guard = ask().acquire().await.expect("acquires");
    let deadline = async || {
        let info = stage.next.inspect("extends").await.expect("inspects");
        info.expect("a row").deadline
    };
    let mut connection = stage.database.connection().await;
    for commits in [true, false] {
        let before = deadline().await;
        begin(&mut connection, "REPEATABLE READ").await;
        guard.verify_in(&mut connection).await.expect("ours");
        assert_eq!(deadline().await, before, "not before the commit");
        run(&mut connection, if commits { "COMMIT" } else { "ROLLBACK" }).await;
        assert_eq!(deadline().await > before, commits);
    }
    guard.extend(ttl * 2).await.expect("extends");
    let before = deadline().await;
    begin(&mut connection, "REPEATABLE READ").await;
    guard.verify_in(&mut connection).await.expect("ours");
    run(&mut connection, "COMMIT").await;
    assert_eq!(deadline().await, before, "never shortened");
}

/// Somebody else's transaction holds the row: the caller's own limit for lock waits applies.
#[tokio::test]
async fn a_row_that_another_transaction_holds_is_busy() {
    let stage = Stage::new().await;
    let guard = stage.holder.lock("busy").acquire().await.expect("acquires");
    let mut stranger = stage.database.connection().await;
    begin(&mut stranger, "READ COMMITTED").await;
    guard.verify_in(&mut stranger).await.expect("ours");
    let mut connection = stage.database.connection().await;
    run(&mut connection, "SET innodb_lock_wait_timeout=1").await;
    begin(&mut connection, "READ COMMITTED").await;
    let busy = guard.verify_in(&mut connection).await;
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    run(&mut stranger, "COMMIT").await;
    guard.verify_in(&mut connection).await.expect("free again");
    run(&mut connection, "COMMIT").await;
}

/// MariaDB, from 11.6.2 by default: a row that changed after the snapshot is an error that says so.
#[tokio::test]
async fn a_stale_snapshot_is_named() {
    if !is_mariadb() {
        return;
    }
    let stage = Stage::new().await;
    let guard = stage
        .holder
        .lock("stale")
        .acquire()
        .await
        .expect("acquires");
    let mut connection = stage.database.connection().await;
    run(&mut connection, "SET innodb_snapshot_isolation=ON").await;
    for level in LEVELS {
        begin(&mut connection, level).await;
        guard
            .verify_in(&mut connection)
            .await
            .expect("called first");
        run(&mut connection, "SELECT COUNT(*) FROM journal; COMMIT").await;
    }
    begin(&mut connection, "REPEATABLE READ").await;
    run(&mut connection, "SELECT COUNT(*) FROM journal").await;
    let ttl = Duration::from_secs(100);
    guard.extend(ttl).await.expect("extends");
    let stale = guard.verify_in(&mut connection).await;
    assert!(
        matches!(stale, Err(Error::StaleSnapshot { .. })),
        "{stale:?}"
    );
    assert!(stale.unwrap_err().to_string().contains("READ COMMITTED"));
    run(&mut connection, "ROLLBACK").await;
    begin(&mut connection, "REPEATABLE READ").await;
    guard.verify_in(&mut connection).await.expect("usable on");
    run(&mut connection, "COMMIT").await;
}
