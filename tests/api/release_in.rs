//! `LockGuard::release_in`: released exactly when the caller's transaction commits.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{TestDatabase, eventually, number, run};
use futures_util::FutureExt;
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;
use tag_lock::{Error, LockClient, LockState};
use tokio::time::timeout;

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

async fn begin(connection: &mut MySqlConnection, level: &str) {
    let sql = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}; START TRANSACTION");
    run(connection, &sql).await;
}

async fn is_free(client: &LockClient, name: &str) -> bool {
    let attempt = client.lock(name).try_acquire().await.expect("an answer");
    match attempt {
        Some(guard) => {
            guard.release().await.expect("releases");
            true
        }
        None => false,
    }
}

#[tokio::test]
async fn the_commit_releases() {
    let database = TestDatabase::new().await;
    let (holder, other) = (database.client().await, database.client().await);
    let mut connection = database.connection().await;
    for level in LEVELS {
        let guard = holder.lock("a").acquire().await.expect("acquires");
        begin(&mut connection, level).await;
        guard.release_in(&mut connection).await.expect("ours");
        assert!(!is_free(&other, "a").await, "{level}: before the commit");
        run(&mut connection, "COMMIT").await;
        let next = other.lock("a").try_acquire().await.expect("an answer");
        let next = next.expect("free as soon as it is committed");
        assert!(next.fencing_token() > guard.fencing_token());
        // The old guard does not disturb the new holder.
        drop(guard);
        holder
            .counter("a lane's round trip")
            .add(1)
            .await
            .expect("adds");
        assert!(next.is_held());
        next.release().await.expect("still its own");
    }
}

#[tokio::test]
async fn a_rollback_leaves_the_guard_usable() {
    let database = TestDatabase::new().await;
    let (holder, other) = (database.client().await, database.client().await);
    let mut connection = database.connection().await;
    let deadline = async |name: &str| {
        let info = other.inspect(name).await.expect("inspects");
        info.expect("a row").deadline
    };
    for level in LEVELS {
        // Renewed after two seconds: a machine may stand still for three.
        let ttl = Duration::from_secs(6);
        let guard = holder
            .lock(level)
            .ttl(ttl)
            .acquire()
            .await
            .expect("acquires");
        begin(&mut connection, level).await;
        guard.release_in(&mut connection).await.expect("ours");
        run(&mut connection, "ROLLBACK").await;
        let before = deadline(level).await;
        eventually("it is renewed on", async || deadline(level).await > before).await;
        eventually("that is known", async || guard.is_held()).await;
        assert!(!is_free(&other, level).await);
        begin(&mut connection, level).await;
        guard.verify_in(&mut connection).await.expect("still ours");
        run(&mut connection, "COMMIT").await;
        guard.release().await.expect("still ours");
        assert!(is_free(&other, level).await);
    }
}

/// A release before one's own commit would wait for it: it says so at once, and is carried out when the transaction ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_before_the_commit_fails_at_once() {
    // A fraction of the request's time limit, and of the lease.
    const AT_ONCE: Duration = Duration::from_secs(60);
    let database = TestDatabase::new().await;
    let (holder, other) = (database.client().await, database.client().await);
    let mut connection = database.connection().await;
    for level in LEVELS {
        for (end, dropped) in [("COMMIT", false), ("ROLLBACK", false), ("COMMIT", true)] {
            let request = holder.lock("a").ttl(Duration::from_secs(3_600));
            let guard = request.acquire().await.expect("acquires");
            begin(&mut connection, level).await;
            guard.verify_in(&mut connection).await.expect("ours");
            if dropped {
                drop(guard);
            } else {
                let released = timeout(AT_ONCE, guard.release()).await.expect("an answer");
                assert!(
                    matches!(released, Err(Error::Busy { .. })),
                    "{level}: {released:?}"
                );
            }
            // Nor do others of the process wait who do not want to.
            for client in [&holder, &other] {
                let free = timeout(AT_ONCE, is_free(client, "a")).await;
                assert!(!free.expect("an answer"), "{level}: before the {end}");
            }
            run(&mut connection, end).await;
            eventually("it is released", async || is_free(&other, "a").await).await;
            assert!(is_free(&holder, "a").await);
        }
    }
}

/// The guard's release after the commit confirms it, as long as nobody has acquired the lock since.
#[tokio::test]
async fn a_release_after_the_commit_confirms() {
    let database = TestDatabase::new().await;
    let (holder, other) = (database.client().await, database.client().await);
    let mut connection = database.connection().await;
    let guard = holder.lock("a").acquire().await.expect("acquires");
    run(&mut connection, "START TRANSACTION").await;
    guard.release_in(&mut connection).await.expect("ours");
    run(&mut connection, "COMMIT").await;
    guard.release().await.expect("it was released");
    assert!(is_free(&other, "a").await);
}

/// Others in the same process wait for the guard, not for the table: they get the lock although the
/// guard lives on.
#[tokio::test]
async fn the_commit_lets_the_next_task_in() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    // The next renewal, in two seconds, finds the release.
    let ttl = Duration::from_secs(6);
    let guard = client.lock("a").ttl(ttl).acquire().await.expect("acquires");
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move { client.lock("a").acquire().await })
    };
    run(&mut connection, "START TRANSACTION").await;
    guard.release_in(&mut connection).await.expect("ours");
    run(&mut connection, "COMMIT").await;
    let next = waiting.await.expect("a task").expect("acquires");
    assert!(next.fencing_token() > guard.fencing_token());
    assert!(
        guard.lost().now_or_never().is_none(),
        "a release is no loss"
    );
    let refused = guard.verify_in(&mut connection).await;
    assert!(
        matches!(refused, Err(Error::LockLost { .. })),
        "{refused:?}"
    );
    next.release().await.expect("its own");
}

#[tokio::test]
async fn the_minimum_hold_stays() {
    let database = TestDatabase::new().await;
    let (holder, other) = (database.client().await, database.client().await);
    let mut connection = database.connection().await;
    let hold = Duration::from_secs(600);
    let guard = holder
        .lock("a")
        .hold_at_least(hold)
        .acquire()
        .await
        .expect("acquires");
    run(&mut connection, "START TRANSACTION").await;
    guard.release_in(&mut connection).await.expect("ours");
    run(&mut connection, "COMMIT").await;
    drop(guard);
    let info = other.inspect("a").await.expect("inspects").expect("a row");
    assert_eq!(info.state, LockState::Kept);
    assert!(!is_free(&other, "a").await);
}

/// Levels of one owner look alike in the row: whatever `release_in` does about them, nobody else gets in
/// while one is held.
#[tokio::test]
async fn an_owners_other_level_stays_held() {
    let database = TestDatabase::new().await;
    let (holder, other) = (database.client().await, database.client().await);
    let mut connection = database.connection().await;
    let outer = holder
        .lock("a")
        .owner("o")
        .acquire()
        .await
        .expect("acquires");
    let inner = holder
        .lock("a")
        .owner("o")
        .acquire()
        .await
        .expect("enters again");
    run(&mut connection, "START TRANSACTION").await;
    // Refusing is an answer, too.
    let released = inner.release_in(&mut connection).await;
    run(&mut connection, "COMMIT").await;
    drop(inner);
    holder
        .lock("b")
        .acquire()
        .await
        .expect("acquires")
        .release()
        .await
        .expect("releases");
    for _ in 0..20 {
        assert!(!is_free(&other, "a").await, "{released:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    outer.release().await.expect("still held");
    eventually("free", async || is_free(&other, "a").await).await;
}

/// Where a guard, its connection, or a future is dropped, the lock is free long before its ttl.
#[tokio::test(flavor = "multi_thread")]
async fn a_drop_at_any_point_leaves_nothing_active() {
    let database = Arc::new(TestDatabase::new().await);
    let holder = database.client().await;
    let ttl = Duration::from_secs(3_600);
    for point in 0..12 {
        let level = LEVELS[point % LEVELS.len()];
        let mut connection = database.connection().await;
        let name = format!("point {point}");
        let guard = holder
            .lock(&name)
            .ttl(ttl)
            .acquire()
            .await
            .expect("acquires");
        begin(&mut connection, level).await;
        match point {
            0 => drop(guard),
            1 => {
                guard.verify_in(&mut connection).await.expect("ours");
                drop(guard);
                run(&mut connection, "COMMIT").await;
            }
            2 => {
                guard.verify_in(&mut connection).await.expect("ours");
                drop(guard);
                run(&mut connection, "ROLLBACK").await;
            }
            3 => {
                guard.verify_in(&mut connection).await.expect("ours");
                drop(guard);
                // The transaction ends with its connection.
                drop(connection);
                continue;
            }
            4 => {
                guard.release_in(&mut connection).await.expect("ours");
                drop(guard);
                run(&mut connection, "COMMIT").await;
            }
            5 => {
                guard.release_in(&mut connection).await.expect("ours");
                drop(guard);
                run(&mut connection, "ROLLBACK").await;
            }
            6 => {
                guard.release_in(&mut connection).await.expect("ours");
                run(&mut connection, "ROLLBACK").await;
                drop(guard);
            }
            7 => {
                guard.release_in(&mut connection).await.expect("ours");
                run(&mut connection, "COMMIT").await;
                drop(guard);
            }
            8 | 9 => {
                // A future that has sent its statement, and is dropped before the answer; unless the server
                // was quicker than one poll, after which the connection is dropped all the same.
                let answered = if point == 8 {
                    guard.verify_in(&mut connection).now_or_never()
                } else {
                    guard.release_in(&mut connection).now_or_never()
                };
                assert!(answered.is_none_or(|answer| answer.is_ok()));
                drop(connection);
                drop(guard);
                continue;
            }
            10 => {
                guard.verify_in(&mut connection).await.expect("ours");
                guard.release_in(&mut connection).await.expect("ours");
                drop(connection);
                drop(guard);
                continue;
            }
            _ => {
                // Released, and dropped in mid-air.
                guard.verify_in(&mut connection).await.expect("ours");
                assert!(guard.release().now_or_never().is_none());
                run(&mut connection, "COMMIT").await;
            }
        }
        connection.close().await.expect("closes");
    }
    let active = "SELECT COUNT(*) FROM t_tag_lock WHERE kind=1 AND status<>0";
    eventually("no lock is active", async || {
        number(&mut database.connection().await, active).await == 0
    })
    .await;
    let other = database.client().await;
    for point in 0..12 {
        assert!(is_free(&other, &format!("point {point}")).await);
    }
}
