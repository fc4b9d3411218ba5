//! The future of a `…_in` call is dropped in the middle, and its `Transaction` with it: nothing of that transaction stays, and the pool
//! goes on.

use std::time::Duration;

use crate::support::calls::{CALLS, Stage};
use crate::support::dropping::polled;
use crate::support::{TestDatabase, eventually, number, run};
use sqlx::mysql::{MySqlConnection, MySqlPoolOptions};
use sqlx::{Executor, MySqlPool, Row};
use tag_lock::JobLease;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// The URL of a relay before the server of `url`: it hands on what the server says one packet after the other, so that whoever
/// reads is polled between any two; or each packet `is_cut` in two behind its header. Without TLS, whose records are none.
async fn packet_by_packet(url: &str, is_cut: bool) -> String {
    let (head, database) = url.rsplit_once('/').expect("the URL names a database");
    let (account, server) = head.rsplit_once('@').expect("the URL names an account");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("an address");
    let server = server.to_owned();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.expect("connects");
            client.set_nodelay(true).expect("a socket");
            server.set_nodelay(true).expect("a socket");
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::spawn(packets(from_server, to_client, is_cut));
            tokio::spawn(bytes(from_client, to_server));
        }
    });
    format!("{account}@{address}/{database}?ssl-mode=DISABLED")
}

async fn packets(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, is_cut: bool) {
    let mut packet = vec![0; 4];
    while from.read_exact(&mut packet[..4]).await.is_ok() {
        let length = u32::from_le_bytes([packet[0], packet[1], packet[2], 0]);
        packet.resize(4 + usize::try_from(length).expect("small"), 0);
        let is_over = from.read_exact(&mut packet[4..]).await.is_err();
        let (head, rest) = packet.split_at(if is_cut { 4 } else { 0 });
        for part in [head, rest] {
            if is_over || to.write_all(part).await.is_err() {
                return;
            }
            if !part.is_empty() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }
}

async fn bytes(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    drop(tokio::io::copy(&mut from, &mut to).await);
}

/// An application's pool of one connection, and its table.
async fn pool(url: &str) -> MySqlPool {
    let pool = MySqlPoolOptions::new()
        .max_connections(1)
        .after_connect(|connection, _| {
            Box::pin(async move {
                if std::env::var_os("TAG_LOCK_SERVER_DEFAULTS").is_some() {
                    // sqlx begins transactions with a word that ORACLE does not know.
                    let usual = "SET autocommit=1,sql_mode=REPLACE(@@sql_mode,'ORACLE,','')";
                    connection.execute(sqlx::raw_sql(usual)).await?;
                }
                Ok(())
            })
        });
    let pool = pool.connect(url).await.expect("connects");
    let table = "CREATE TABLE IF NOT EXISTS written (n INT NOT NULL) ENGINE=InnoDB";
    pool.execute(table).await.expect("a table");
    pool
}

/// What stands in the rows of locks, counters and slots, but for when they were used last.
async fn rows(connection: &mut MySqlConnection) -> Vec<String> {
    let sql = "SELECT CONCAT_WS(' ',lock_name,kind,slot,status,fence,count,previous,HEX(holder),deadline) \
               FROM t_tag_lock ORDER BY lock_name,kind,slot";
    let rows = connection.fetch_all(sql).await.expect("rows");
    let text = |row: &sqlx::mysql::MySqlRow| row.try_get_unchecked(0).expect("a text");
    rows.iter().map(text).collect()
}

/// The pool works, and nothing was written. Then its connection has read that the transaction is rolled back.
async fn nothing_stayed(pool: &MySqlPool) {
    let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM written")
        .fetch_one(pool)
        .await
        .expect("the pool goes on");
    assert_eq!(count, 0);
    assert_eq!(pool.size(), 1);
}

const WRITE: &str = "INSERT INTO written VALUES (1)";

/// Drops each call at each of its awaits; the last round is the one that was not dropped.
async fn drop_everywhere(stage: &Stage, pool: &MySqlPool) -> u32 {
    let mut observer = stage.database.connection().await;
    // The rows are there, and young: what the first call changes outside of the transaction is not looked at.
    for call in CALLS {
        let mut tx = pool.begin().await.expect("begins");
        stage.call(call, &mut tx).await.expect("an answer");
        tx.rollback().await.expect("rolls back");
    }
    let mut drops = 0;
    for call in CALLS {
        let before = rows(&mut observer).await;
        for polls in 0.. {
            let mut tx = pool.begin().await.expect("begins");
            tx.execute(WRITE).await.expect("writes");
            let answer = polled(polls, stage.call(call, &mut tx)).await;
            drop(tx);
            nothing_stayed(pool).await;
            let after = rows(&mut observer).await;
            assert_eq!(after, before, "{call:?}, dropped after {polls} polls");
            match answer {
                Some(answer) => {
                    answer.unwrap_or_else(|error| panic!("{call:?}: {error}"));
                    break;
                }
                None => drops += 1,
            }
        }
    }
    drops
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_dropped_call_stays() {
    let stage = Stage::new().await;
    let direct = pool(&stage.database.url).await;
    let drops = drop_everywhere(&stage, &direct).await;
    direct.close().await;
    let relayed = pool(&packet_by_packet(&stage.database.url, false).await).await;
    let relayed_drops = drop_everywhere(&stage, &relayed).await;
    relayed.close().await;
    println!("dropped {drops} times, and packet by packet {relayed_drops} times");
    assert!(drops >= 7 && relayed_drops >= 14);
    // The lease was not touched.
    stage.lease.release().await.expect("still held");
    stage.database.remove().await;
}

/// One attempt at a slot, whose `finish_in` is dropped after so many polls; whether it was.
async fn finish(pool: &MySqlPool, lease: &JobLease, polls: u32) -> bool {
    let mut tx = pool.begin().await.expect("begins");
    tx.execute(WRITE).await.expect("writes");
    let answer = polled(polls, lease.finish_in(&mut tx)).await;
    drop(tx);
    nothing_stayed(pool).await;
    if let Some(answer) = &answer {
        answer.as_ref().expect("the slot is ours");
    }
    answer.is_none()
}

/// The slot is not done, and the attempt can finish it in another transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_finish_in_finishes_nothing() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let pool = pool(&packet_by_packet(&database.url, false).await).await;
    let mut observer = database.connection().await;
    let slot = client.job("job").slot("1").ttl(Duration::from_secs(3_600));
    let again = slot.clone();
    let ran = slot.run_once(async |lease| {
        let before = rows(&mut observer).await;
        let mut polls = 0;
        while finish(&pool, &lease, polls).await {
            assert_eq!(rows(&mut observer).await, before, "after {polls} polls");
            polls += 1;
        }
        assert_eq!(rows(&mut observer).await, before, "rolled back");
        assert!(!again.is_done().await?);
        assert!(polls > 1, "dropped at {polls} points");
        let mut tx = pool.begin().await.expect("begins");
        lease.finish_in(&mut tx).await?;
        tx.commit().await.expect("commits");
        Ok::<_, tag_lock::Error>(())
    });
    let _ = ran.await.expect("done");
    assert!(again.is_done().await.expect("an answer"));
    pool.close().await;
    database.remove().await;
}

/// Dropped while the server still waits for the row: it is rolled back as soon as the server has read that.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_dropped_while_it_waits_goes_away_with_the_wait() {
    let stage = Stage::new().await;
    let (client, database) = (&stage.client, &stage.database);
    let pool = pool(&database.url).await;
    let mut other = database.connection().await;
    for name in ["a", "b"] {
        run(&mut other, "START TRANSACTION").await;
        client.lock_in(&mut other, name).await.expect("locks");
        client
            .counter(name)
            .add_in(&mut other, 1)
            .await
            .expect("adds");
        let mut tx = pool.begin().await.expect("begins");
        tx.execute(WRITE).await.expect("writes");
        let wait = Duration::from_millis(200);
        if name == "a" {
            let waits = tokio::time::timeout(wait, client.lock_in(&mut tx, name)).await;
            waits.expect_err("the lock is taken");
        } else {
            let counter = client.counter(name);
            let waits = tokio::time::timeout(wait, counter.add_in(&mut tx, 1)).await;
            waits.expect_err("the counter is taken");
        }
        drop(tx);
        run(&mut other, "COMMIT").await;
        nothing_stayed(&pool).await;
        assert_eq!(client.counter(name).get().await.expect("a value"), 1);
        eventually("it is free", async || {
            let guard = client.lock(name).try_acquire().await.expect("an answer");
            guard.is_some()
        })
        .await;
    }
    let open = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id IN \
                (SELECT id FROM information_schema.PROCESSLIST WHERE db=DATABASE() AND id<>CONNECTION_ID())";
    eventually("no transaction is open", async || {
        number(&mut database.connection().await, open).await == 0
    })
    .await;
    pool.close().await;
    stage.database.remove().await;
}

/// The network cuts an answer just where it was dropped, so that sqlx loses its place. That may cost the pool the connection; nothing is
/// committed all the same, and no row stays locked.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_stays_where_the_answer_was_cut() {
    let stage = Stage::new().await;
    let url = packet_by_packet(&stage.database.url, true).await;
    let mut observer = stage.database.connection().await;
    drop(pool(&stage.database.url).await);
    for call in CALLS {
        run(&mut observer, "START TRANSACTION").await;
        stage.call(call, &mut observer).await.expect("an answer");
        run(&mut observer, "ROLLBACK").await;
    }
    let before = rows(&mut observer).await;
    let mut drops = 0;
    for call in CALLS {
        for polls in 0.. {
            let pool = pool(&url).await;
            let mut tx = pool.begin().await.expect("begins");
            tx.execute(WRITE).await.expect("writes");
            let answer = polled(polls, stage.call(call, &mut tx)).await;
            drop(tx);
            // Waits until the rows are not locked any more.
            let written = "SELECT n FROM written FOR UPDATE";
            let written = observer.fetch_all(written).await.expect("not locked");
            assert!(written.is_empty(), "{call:?}, {polls}");
            let after = rows(&mut observer).await;
            assert_eq!(after, before, "{call:?}, dropped after {polls} polls");
            if answer.is_some() {
                break;
            }
            drops += 1;
        }
    }
    println!("dropped {drops} times");
    assert!(drops >= 14);
    stage.lease.release().await.expect("still held");
}

/// The statement of a dropped call fails behind its back, on a connection that its owner keeps: the next call puts right what the first
/// had set for the session.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_as_before_behind_a_dropped_call_that_failed() {
    let stage = Stage::new().await;
    let counter = stage.client.counter("c");
    counter.add(1).await.expect("adds");
    let mut holder = stage.database.connection().await;
    run(&mut holder, "START TRANSACTION").await;
    counter.get_in(&mut holder).await.expect("locks");
    let mut connection = stage.database.connection().await;
    run(
        &mut connection,
        "SET innodb_lock_wait_timeout=1,wait_timeout=12345",
    )
    .await;
    run(&mut connection, "START TRANSACTION").await;
    let call = counter.add_in(&mut connection, 1);
    let dropped = tokio::time::timeout(Duration::from_millis(300), call).await;
    assert!(dropped.is_err(), "{dropped:?}");
    // It is told to whoever asks next.
    while connection.execute("ROLLBACK").await.is_err() {}
    run(&mut holder, "ROLLBACK").await;
    run(&mut connection, "START TRANSACTION").await;
    assert_eq!(counter.add_in(&mut connection, 1).await.expect("adds"), 2);
    let left = number(&mut connection, "SELECT CAST(@@wait_timeout AS SIGNED)").await;
    assert_eq!(left, 12_345);
    run(&mut connection, "ROLLBACK").await;
    assert_eq!(counter.get().await.expect("reads"), 1);
    stage.database.remove().await;
}
