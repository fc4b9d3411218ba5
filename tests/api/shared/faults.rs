//! What ends without a release, and what is told late.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use rustix::process::Signal;
use tokio::task::JoinSet;

use super::{HOUR, shared};
use crate::support::proxy::{Command, Fault, Proxy, Upstream, once};
use crate::support::{
    TestDatabase, connected, eventually, is_batch, number, patient, run, signal, spawn_worker,
};

const TTL: Duration = Duration::from_secs(4);

/// A process that is killed while it reads keeps writers out until its lease ends, and no longer.
#[tokio::test(flavor = "multi_thread")]
async fn the_hold_of_a_dead_process_ends_with_its_lease() {
    let database = TestDatabase::new().await;
    let mut worker = spawn_worker("worker", &[("SHARED_URL", database.url.clone())]);
    let output = worker.stdout.take().unwrap();
    let mut lines = BufReader::new(output).lines();
    let ready =
        tokio::task::spawn_blocking(move || lines.any(|line| line.unwrap().contains("reads")));
    assert!(ready.await.unwrap(), "the worker reads");
    let client = database.client().await;
    signal(&worker, Signal::KILL);
    worker.wait().unwrap();
    assert!(client.lock("l").try_acquire().await.unwrap().is_none());
    // The hour passes.
    let mut connection = database.connection().await;
    let ends = "UPDATE t_tag_lock SET deadline=UTC_TIMESTAMP(6) WHERE lock_name='l' AND kind=6";
    run(&mut connection, ends).await;
    let writer = client.lock("l").acquire().await.unwrap();
    writer.release().await.unwrap();
    database.remove().await;
}

#[tokio::test]
#[ignore = "a worker process of another test"]
async fn worker() {
    let url = std::env::var("SHARED_URL").unwrap();
    let client = connected(patient(&url)).await;
    let _guard = shared(&client, "l").acquire().await.unwrap();
    println!("reads");
    std::future::pending::<()>().await;
}

/// Whether a command is a packet that shuts a door.
fn shuts(command: &Command) -> bool {
    let sql = command.sql().unwrap_or_default();
    is_batch(command) && sql.windows(14).any(|part| part == b"@tag_lock_shut")
}

/// Each way to lose the reply to the packets that begin a shared hold, make an exclusive one shared, and shut the door.
#[tokio::test(flavor = "multi_thread")]
async fn lost_replies_are_settled() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let client = connected(patient(&proxy.url(&database.url))).await;
    let other = database.client().await;
    // So that all rows are there.
    let reader = shared(&client, "l").acquire().await.unwrap();
    reader.release().await.unwrap();
    for fault in [
        Fault::CutAfter(Upstream::Forwarded),
        Fault::CutAfter(Upstream::FirstByte),
        Fault::CutAfter(Upstream::Replied),
        Fault::TruncateReply,
        Fault::CutBefore,
    ] {
        let faults = proxy.counters().all_faults();
        proxy.on_command(once(is_batch, fault.clone()));
        let reader = shared(&client, "l").acquire().await.unwrap();
        assert_eq!(proxy.counters().all_faults(), faults + 1, "{fault:?}");
        assert!(other.lock("l").try_acquire().await.unwrap().is_none());
        reader.release().await.unwrap();

        proxy.on_command(once(shuts, fault.clone()));
        let writer = client.lock("l").ttl(HOUR).acquire().await.unwrap();
        assert_eq!(proxy.counters().all_faults(), faults + 2, "{fault:?}");
        assert!(shared(&other, "l").try_acquire().await.unwrap().is_none());

        proxy.on_command(once(is_batch, fault.clone()));
        let reader = writer.downgrade().await.unwrap();
        assert_eq!(proxy.counters().all_faults(), faults + 3, "{fault:?}");
        assert!(other.lock("l").try_acquire().await.unwrap().is_none());
        let second = shared(&other, "l").acquire().await.unwrap();
        second.release().await.unwrap();
        reader.release().await.unwrap();
        proxy.pass_all();
    }
    let writer = other.lock("l").try_acquire().await.unwrap();
    writer.expect("nobody reads").release().await.unwrap();
    database.remove().await;
}

/// Connections that are killed while somebody holds: the leases are renewed over others.
#[tokio::test(flavor = "multi_thread")]
async fn killed_connections_end_no_hold() {
    let database = TestDatabase::new().await;
    let (reads, writes) = (database.client().await, database.client().await);
    let request = reads.lock("l").ttl(Duration::from_secs(30));
    let reader = request.shared().acquire().await.unwrap();
    let mut connection = database.connection().await;
    for _ in 0..2 {
        let list = format!(
            "SELECT COALESCE(GROUP_CONCAT(ID),'') FROM information_schema.PROCESSLIST \
             WHERE DB='{}' AND ID<>CONNECTION_ID()",
            database.name
        );
        let row = sqlx::query_scalar::<_, String>(sqlx::AssertSqlSafe(list));
        let ids: String = row.fetch_one(&mut connection).await.unwrap();
        for id in ids.split(',').filter(|id| !id.is_empty()) {
            // It may have ended by itself.
            let kill = sqlx::AssertSqlSafe(format!("KILL {id}"));
            drop(sqlx::raw_sql(kill).execute(&mut connection).await);
        }
        assert!(writes.lock("l").try_acquire().await.unwrap().is_none());
        let mut left = reader.remaining();
        while reader.remaining() <= left {
            left = reader.remaining();
            assert!(!left.is_zero(), "lost");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(reader.is_held());
    reader.release().await.unwrap();
    let writer = writes.lock("l").try_acquire().await.unwrap();
    writer.expect("nobody reads").release().await.unwrap();
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_dropped_keep_nothing() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let other = database.client().await;
    let mut tasks = JoinSet::new();
    for number in 0..60_u64 {
        let client = client.clone();
        tasks.spawn(async move {
            let wait = Duration::from_micros(number * 300);
            let acquire = shared(&client, "l").apart().acquire();
            let _ = tokio::time::timeout(wait, acquire).await;
            let writer = client.lock("l").ttl(HOUR).acquire();
            if let Ok(Ok(writer)) = tokio::time::timeout(wait, writer).await {
                let _ = tokio::time::timeout(wait, writer.downgrade()).await;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let writer = other.lock("l").ttl(HOUR).acquire().await.unwrap();
    writer.release().await.unwrap();
    let mut connection = database.connection().await;
    let held = "SELECT COUNT(*) FROM t_tag_lock WHERE kind=6 AND status=1";
    assert_eq!(number(&mut connection, held).await, 0);
    database.remove().await;
}

/// A renewal that has its row locked is passed over by the writer, which counts it all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_is_under_way_keeps_a_writer_out() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let request = one.lock("l").ttl(TTL).auto_renew(false);
    let reader = request.shared().acquire().await.unwrap();
    let mut connection = database.connection().await;
    // As the server has it that carries out a renewal: a lease that runs on, in a transaction that is not committed.
    run(&mut connection, "START TRANSACTION").await;
    let renew = "UPDATE t_tag_lock SET deadline=UTC_TIMESTAMP(6) + INTERVAL 1 HOUR WHERE lock_name='l' AND kind=6";
    run(&mut connection, renew).await;
    reader.lost().await;
    tokio::time::sleep(TTL / 2).await;
    let mut plain = database.connection().await;
    let running = "SELECT COUNT(*) FROM t_tag_lock WHERE kind=6 AND deadline>UTC_TIMESTAMP(6)";
    assert_eq!(
        number(&mut plain, running).await,
        0,
        "it has ended, by what is committed"
    );
    assert!(
        other.lock("l").try_acquire().await.unwrap().is_none(),
        "a writer beside a renewal that is under way"
    );
    run(&mut connection, "COMMIT").await;
    assert!(other.lock("l").try_acquire().await.unwrap().is_none());
    drop(reader);
    eventually("the hold that was lost is given back", async || match other
        .lock("l")
        .try_acquire()
        .await
        .unwrap()
    {
        Some(writer) => writer.release().await.is_ok(),
        None => false,
    })
    .await;
    database.remove().await;
}
