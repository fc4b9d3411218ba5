//! `JobLease::finish_in`: what the work writes and the record that its slot is done are one transaction.

use std::time::Duration;

use crate::support::proxy::{Command, Fault, Proxy, RandomFaults, Upstream, once};
use crate::support::{TestDatabase, connect, eventually, number, run};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{AssertSqlSafe, Executor, MySqlPool};
use tag_lock::{Error, JobLease, JobSlot, LockClient, RunOnce};
use tokio::task::JoinSet;

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn slot(client: &LockClient, slot: &str) -> JobSlot {
    let ttl = Duration::from_secs(3_600);
    client.job("job").slot(slot).ttl(ttl)
}

async fn run_now(client: &LockClient, name: &str) -> RunOnce<()> {
    let ran = slot(client, name).run_once(async |_| ()).await;
    ran.expect("an answer")
}

/// Sessions of an application at this isolation level, and its table.
async fn application(url: &str, level: &'static str) -> MySqlPool {
    let pool = MySqlPoolOptions::new().after_connect(move |connection, _| {
        Box::pin(async move {
            let mut level = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
            if std::env::var_os("TAG_LOCK_SERVER_DEFAULTS").is_some() {
                // As the support's own connections: sqlx begins transactions with a word that ORACLE does not know.
                level += "; SET autocommit=1,sql_mode=REPLACE(@@sql_mode,'ORACLE,','')";
            }
            connection
                .execute(sqlx::raw_sql(AssertSqlSafe(level)))
                .await?;
            Ok(())
        })
    });
    let pool = pool.connect(url).await.expect("connects");
    let table =
        "CREATE TABLE IF NOT EXISTS paid (slot VARCHAR(99) NOT NULL, token BIGINT NOT NULL)";
    pool.execute(table).await.expect("a table");
    pool
}

/// One attempt at the work of a slot.
async fn pay(pool: &MySqlPool, lease: &JobLease) -> Result<(), Failure> {
    let mut tx = pool.begin().await?;
    lease.finish_in(&mut tx).await?;
    sqlx::query("INSERT INTO paid VALUES (?, ?)")
        .bind(lease.slot())
        .bind(lease.fencing_token())
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}

async fn paid(pool: &MySqlPool, slot: &str) -> i64 {
    let count = sqlx::query_scalar("SELECT COUNT(*) FROM paid WHERE slot = ?").bind(slot);
    count.fetch_one(pool).await.expect("a number")
}

#[tokio::test]
async fn the_commit_records() {
    let database = TestDatabase::new().await;
    let (client, other) = (database.client().await, database.client().await);
    for level in LEVELS {
        let pool = application(&database.url, level).await;
        let ran = slot(&client, level).run_once(async |lease| {
            lease.verify_in(&mut *pool.begin().await?).await?;
            let mut tx = pool.begin().await?;
            lease.finish_in(&mut tx).await?;
            assert!(!lease.is_held());
            assert_eq!(run_now(&other, level).await, RunOnce::Busy);
            assert!(!slot(&other, level).is_done().await?);
            sqlx::query("INSERT INTO paid VALUES (?, 0)")
                .bind(level)
                .execute(&mut *tx)
                .await?;
            tx.commit().await?;
            // Nobody has to wait for the end of the work.
            assert_eq!(run_now(&other, level).await, RunOnce::AlreadyDone);
            Ok::<_, Failure>(())
        });
        assert_eq!(ran.await.expect("done"), RunOnce::Done(()), "{level}");
        assert_eq!(run_now(&client, level).await, RunOnce::AlreadyDone);
        assert_eq!(paid(&pool, level).await, 1);
        pool.close().await;
    }
    database.remove().await;
}

#[tokio::test]
async fn a_rollback_records_nothing() {
    let database = TestDatabase::new().await;
    let (client, other) = (database.client().await, database.client().await);
    for level in LEVELS {
        let pool = application(&database.url, level).await;
        // The work says that all is well.
        let ran = slot(&client, level).run_once(async |lease| {
            let mut tx = pool.begin().await?;
            lease.finish_in(&mut tx).await?;
            tx.rollback().await?;
            Ok::<_, Failure>(())
        });
        let error = ran.await.expect_err("it is not done");
        let error = error.downcast::<Error>().expect("the library's");
        assert!(matches!(*error, Error::NotFinished { .. }), "{error}");
        // The work fails, with the transaction dropped.
        let ran = slot(&other, level).run_once(async |lease| {
            let mut tx = pool.begin().await?;
            lease.finish_in(&mut tx).await?;
            Err::<(), Failure>("its own".into())
        });
        assert_eq!(ran.await.expect_err("failed").to_string(), "its own");
        // The second transaction of one attempt.
        let mut ran = RunOnce::Busy;
        while ran == RunOnce::Busy {
            ran = slot(&client, level)
                .run_once(async |lease| {
                    let mut tx = pool.begin().await?;
                    lease.finish_in(&mut tx).await?;
                    tx.rollback().await?;
                    pay(&pool, &lease).await
                })
                .await
                .expect("done");
        }
        assert_eq!(ran, RunOnce::Done(()), "{level}");
        assert_eq!(run_now(&other, level).await, RunOnce::AlreadyDone);
        assert_eq!(paid(&pool, level).await, 1);
        pool.close().await;
    }
    database.remove().await;
}

/// The work ends, and its transaction is open: that is told at once, and what becomes of the slot is the transaction's.
#[tokio::test]
async fn a_transaction_that_outlives_the_work_decides() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    for (end, done) in [("COMMIT", true), ("ROLLBACK", false)] {
        let mut connection = database.connection().await;
        run(&mut connection, "START TRANSACTION").await;
        let ran = slot(&client, end).run_once(async |lease| lease.finish_in(&mut connection).await);
        let ran = ran.await;
        assert!(matches!(ran, Err(Error::Busy { .. })), "{end}: {ran:?}");
        run(&mut connection, end).await;
        if !done {
            // Released behind the scenes.
            eventually("it is taken up again", async || {
                run_now(&client, end).await == RunOnce::Done(())
            })
            .await;
        }
        assert_eq!(run_now(&client, end).await, RunOnce::AlreadyDone);
    }
    database.remove().await;
}

#[tokio::test]
async fn who_has_lost_the_slot_records_nothing() {
    let database = TestDatabase::new().await;
    let (client, other) = (database.client().await, database.client().await);
    let pool = application(&database.url, LEVELS[1]).await;
    let ran = slot(&client, "1").run_once(async |lease| {
        assert!(slot(&other, "1").reset().await?);
        let mut tx = pool.begin().await?;
        let finished = lease.finish_in(&mut tx).await;
        assert!(
            matches!(finished, Err(Error::LockLost { .. })),
            "{finished:?}"
        );
        tx.rollback().await?;
        let outside = lease.finish_in(&mut database.connection().await).await;
        assert!(outside.is_err(), "in no transaction");
        Ok::<_, Failure>(())
    });
    assert!(ran.await.is_err());
    let ran = slot(&other, "2").run_once(async |lease| {
        let outside = lease.finish_in(&mut database.connection().await).await;
        assert!(
            matches!(outside, Err(Error::NoTransaction { .. })),
            "{outside:?}"
        );
        Err::<(), Error>(Error::Closed)
    });
    assert!(ran.await.is_err());
    for name in ["1", "2"] {
        assert_eq!(run_now(&other, name).await, RunOnce::Done(()));
    }
    pool.close().await;
    database.remove().await;
}

/// Work whose record was refused has rolled back what it wrote, most likely: it is not done because it ends with a success.
#[tokio::test]
async fn work_whose_record_was_refused_is_not_done() {
    let database = TestDatabase::new().await;
    let elsewhere = TestDatabase::new().await;
    let client = database.client().await;
    let ran = slot(&client, "outside").run_once(async |lease| {
        let refused = lease.finish_in(&mut database.connection().await).await;
        assert!(
            matches!(refused, Err(Error::NoTransaction { .. })),
            "{refused:?}"
        );
        Ok::<_, Error>(())
    });
    let ran = ran.await;
    assert!(matches!(ran, Err(Error::NotFinished { .. })), "{ran:?}");
    let ran = slot(&client, "elsewhere").run_once(async |lease| {
        let mut connection = elsewhere.connection().await;
        run(&mut connection, "START TRANSACTION").await;
        let refused = lease.finish_in(&mut connection).await;
        assert!(
            matches!(refused, Err(Error::OtherDatabase { .. })),
            "{refused:?}"
        );
        run(&mut connection, "ROLLBACK").await;
        Ok::<_, Error>(())
    });
    let ran = ran.await;
    assert!(matches!(ran, Err(Error::NotFinished { .. })), "{ran:?}");
    // One transaction is refused, another one commits.
    let ran = slot(&client, "again").run_once(async |lease| {
        let refused = lease.finish_in(&mut database.connection().await).await;
        assert!(refused.is_err(), "in no transaction");
        let mut connection = database.connection().await;
        run(&mut connection, "START TRANSACTION").await;
        lease.finish_in(&mut connection).await?;
        run(&mut connection, "COMMIT").await;
        Ok::<_, Error>(())
    });
    assert_eq!(ran.await.unwrap(), RunOnce::Done(()));
    for name in ["outside", "elsewhere"] {
        assert_eq!(run_now(&client, name).await, RunOnce::Done(()));
    }
    assert_eq!(run_now(&client, "again").await, RunOnce::AlreadyDone);
    for database in [database, elsewhere] {
        database.remove().await;
    }
}

/// A statement that the server undoes and acknowledges all the same records nothing, and is told so.
#[tokio::test]
async fn an_acknowledgement_that_shows_no_row_is_no_record() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    for level in LEVELS {
        let pool = application(&proxy.url(&database.url), level).await;
        let ran = slot(&client, level).run_once(async |lease| {
            let mut tx = pool.begin().await?;
            let changes = |command: &Command| command.contains_word("UPDATE");
            proxy.on_command(once(changes, Fault::Undone));
            let finished = lease.finish_in(&mut tx).await;
            assert!(
                matches!(finished, Err(Error::Interrupted { .. })),
                "{level}: {finished:?}"
            );
            tx.rollback().await?;
            pay(&pool, &lease).await
        });
        assert_eq!(ran.await.expect("done"), RunOnce::Done(()), "{level}");
        assert_eq!(paid(&pool, level).await, 1);
        pool.close().await;
    }
    database.remove().await;
}

/// The application's commits lose their replies, its connections break: each slot is paid exactly once.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_cut_each_slot_counts_once() {
    const SLOTS: usize = 40;
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let pool = application(&proxy.url(&database.url), LEVELS[1]).await;
    let faults = RandomFaults::new(rand::random())
        .with(0.03, Fault::CutAfter(Upstream::Forwarded))
        .with(0.03, Fault::CutAfter(Upstream::Replied))
        .with(0.03, Fault::CutBefore);
    proxy.on_command(faults.into_hook());
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let (client, pool) = (database.client().await, pool.clone());
        tasks.spawn(async move {
            for number in 0..SLOTS {
                let name = ((number + task * 5) % SLOTS).to_string();
                loop {
                    let work = async |lease: JobLease| pay(&pool, &lease).await;
                    match slot(&client, &name).run_once(work).await {
                        Ok(ran) if ran.is_done() => break,
                        Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                    }
                }
            }
        });
    }
    tasks.join_all().await;
    println!("{:?}", proxy.counters().faults);
    let mut connection = connect(&database.url).await;
    let sql = "SELECT COUNT(*) FROM paid";
    assert_eq!(
        number(&mut connection, sql).await,
        SLOTS.try_into().expect("few")
    );
    let sql = "SELECT COUNT(DISTINCT slot) FROM paid";
    assert_eq!(
        number(&mut connection, sql).await,
        SLOTS.try_into().expect("few")
    );
    database.remove().await;
}
