//! Fencing tokens: they rise with every hold of a name, whoever holds it and whatever happened between.

use std::time::Duration;

use crate::support;
use crate::support::{TestDatabase, number, run, spawn_worker};
use sqlx::{AssertSqlSafe, Connection, Row};
use tag_lock::{AtClose, LockClient};

const HOUR: Duration = Duration::from_secs(3_600);
const DATABASE: &str = "TAG_LOCK_TEST_DATABASE";
/// The stripe of the name `job`, pinned by the tests of the stripe's formula.
const STRIPE_OF_JOB: &str = "center_lock_84";

/// Takes and gives back `job`; its token.
async fn hold(client: &LockClient) -> u64 {
    let guard = client.lock("job").acquire().await.unwrap();
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    token
}

#[track_caller]
fn assert_rises(tokens: &[u64]) {
    for pair in tokens.windows(2) {
        assert!(pair[0] < pair[1], "{} was followed by {}", pair[0], pair[1]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rise_from_hold_to_hold() {
    let database = TestDatabase::new().await;
    let (a, b) = (database.client().await, database.client().await);
    let mut tokens = Vec::new();
    for client in [&a, &b, &a, &a, &b] {
        tokens.push(hold(client).await);
        // Each reserves a block of its own size.
        let request = client.lock("job").auto_renew(false);
        let guard = request.acquire().await.unwrap();
        tokens.push(guard.fencing_token());
        guard.release().await.unwrap();
        let request = client.lock("job").owner("me");
        let guard = request.acquire().await.unwrap();
        tokens.push(guard.fencing_token());
        guard.release().await.unwrap();
        drop(client.lock("job").acquire().await.unwrap());
    }
    a.close(AtClose::Release).await;
    tokens.push(hold(&database.client().await).await);
    assert_rises(&tokens);
    database.remove().await;
}

/// A block's unused tokens are given back or skipped; what was used never comes again, also when the
/// lease ended in another way than by a release.
#[tokio::test(flavor = "multi_thread")]
async fn rise_across_leases_that_were_not_released() {
    let database = TestDatabase::new().await;
    let (a, b) = (database.client().await, database.client().await);
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let request = a.lock("job").ttl(Duration::from_millis(300));
        let lapsed = request.auto_renew(false).acquire().await.unwrap();
        tokens.push(lapsed.fencing_token());
        let forced = b.lock("job").acquire().await.unwrap();
        tokens.push(forced.fencing_token());
        assert!(a.force_release("job").await.unwrap());
        tokens.push(hold(&a).await);
    }
    let closed = database.client().await;
    let kept = closed.lock("job").ttl(HOUR).acquire().await.unwrap();
    tokens.push(kept.fencing_token());
    closed.close(AtClose::Keep).await;
    assert!(a.force_release("job").await.unwrap());
    tokens.push(hold(&a).await);
    assert_rises(&tokens);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rise_although_the_servers_clock_is_behind() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let first = hold(&client).await;
    // As after a time in which the clock was ahead by a thousand years.
    let ahead = first + 31_557_600_000_000_000;
    let mut connection = database.connection().await;
    run(
        &mut connection,
        &format!("UPDATE t_tag_lock SET fence={ahead} WHERE lock_name='job' AND kind=1"),
    )
    .await;
    let second = hold(&client).await;
    let third = hold(&client).await;
    assert_rises(&[first, ahead, second, third]);

    // A purge: the row goes, and its fence stays behind in the stripe's row.
    let purge = format!(
        "START TRANSACTION;
         SELECT count FROM t_tag_lock WHERE lock_name='{STRIPE_OF_JOB}' AND kind=0 FOR UPDATE;
         UPDATE t_tag_lock SET count=GREATEST(count,{third})
         WHERE lock_name='{STRIPE_OF_JOB}' AND kind=0;
         DELETE FROM t_tag_lock WHERE lock_name='job' AND kind=1;
         COMMIT"
    );
    run(&mut connection, &purge).await;
    assert_eq!(client.inspect("job").await.unwrap(), None);
    let fourth = hold(&client).await;
    run(
        &mut connection,
        &purge.replace(&third.to_string(), &fourth.to_string()),
    )
    .await;
    let fifth = hold(&database.client().await).await;
    assert_rises(&[third, fourth, fifth]);
    database.remove().await;
}

/// Each holder notes its token under the lock, so that the notes are in the order of the holds.
#[tokio::test(flavor = "multi_thread")]
async fn rise_across_processes() {
    const PROCESSES: usize = 4;
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    run(
        &mut connection,
        "CREATE TABLE note (id BIGINT AUTO_INCREMENT PRIMARY KEY, pid BIGINT, token BIGINT UNSIGNED)",
    )
    .await;
    let mut workers: Vec<_> = (0..PROCESSES)
        .map(|_| {
            spawn_worker(
                "worker_that_notes_tokens",
                &[(DATABASE, database.url.clone())],
            )
        })
        .collect();
    for worker in &mut workers {
        assert!(worker.wait().unwrap().success());
    }
    let rows = sqlx::raw_sql("SELECT token FROM note ORDER BY id")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    let tokens: Vec<u64> = rows.iter().map(|row| row.get_unchecked(0)).collect();
    assert_eq!(tokens.len(), PROCESSES * TASKS * HOLDS);
    assert_rises(&tokens);
    let pids = number(&mut connection, "SELECT COUNT(DISTINCT pid) FROM note").await;
    assert_eq!(usize::try_from(pids).unwrap(), PROCESSES);
    database.remove().await;
}

const TASKS: usize = 4;
const HOLDS: usize = 12;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a worker of rise_across_processes"]
async fn worker_that_notes_tokens() {
    let Ok(url) = std::env::var(DATABASE) else {
        return;
    };
    let client = support::connected(support::patient(&url)).await;
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let (client, url) = (client.clone(), url.clone());
        tasks.push(tokio::spawn(async move {
            let mut connection = support::connect(&url).await;
            for _ in 0..HOLDS {
                let guard = client.lock("job").acquire().await.unwrap();
                let (pid, token) = (std::process::id(), guard.fencing_token());
                let note = format!("INSERT INTO note (pid, token) VALUES ({pid}, {token})");
                sqlx::raw_sql(AssertSqlSafe(note))
                    .execute(&mut connection)
                    .await
                    .unwrap();
                guard.release().await.unwrap();
            }
            connection.close().await.unwrap();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    client.close(AtClose::Release).await;
}
