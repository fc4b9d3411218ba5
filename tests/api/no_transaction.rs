//! The calls inside a transaction, where there is none: each is refused, and has changed nothing.

use crate::support::calls::{CALLS, Call, Stage};
use crate::support::proxy::Proxy;
use crate::support::{connect, makes_deadlocks, number, run};
use sqlx::mysql::{MySqlConnection, MySqlPool};
use sqlx::{Connection, MySql, Transaction};
use tag_lock::Error;

/// All that the rows say, as one number. A row that a call creates before it says nothing yet.
async fn rows(connection: &mut MySqlConnection) -> i64 {
    let sql = "SELECT CAST(COALESCE(SUM(CRC32(CONCAT_WS('|',lock_name,kind,count,previous,deadline,status,HEX(holder),fence))),0) AS SIGNED) \
               FROM t_tag_lock WHERE kind<>0";
    number(connection, sql).await
}

async fn is_refused(stage: &Stage, connection: &mut MySqlConnection, call: Call, why: &str) {
    let mut observer = stage.database.connection().await;
    let before = rows(&mut observer).await;
    let answer = stage.call(call, connection).await;
    assert!(
        matches!(answer, Err(Error::NoTransaction { .. })),
        "{why}: {call:?}: {answer:?}"
    );
    assert_eq!(rows(&mut observer).await, before, "{why}: {call:?}");
    observer.close().await.expect("closes");
}

/// With all rows there: the first call of each kind makes its row.
async fn stage() -> Stage {
    let stage = Stage::new().await;
    let mut connection = stage.database.connection().await;
    run(&mut connection, "START TRANSACTION").await;
    for call in CALLS {
        if call != Call::Release {
            stage.call(call, &mut connection).await.expect("granted");
        }
    }
    run(&mut connection, "ROLLBACK").await;
    stage
}

#[tokio::test]
async fn a_statement_of_its_own_is_refused() {
    let stage = stage().await;
    let mut connection = stage.database.connection().await;
    for call in CALLS {
        is_refused(&stage, &mut connection, call, "autocommit").await;
        run(&mut connection, "START TRANSACTION; COMMIT").await;
        is_refused(&stage, &mut connection, call, "after a commit").await;
        // It is over behind the caller's back.
        let sql = "START TRANSACTION; CREATE TABLE IF NOT EXISTS other (id INT)";
        run(&mut connection, sql).await;
        is_refused(&stage, &mut connection, call, "after DDL").await;
        // The connection can be used on.
        run(&mut connection, "START TRANSACTION").await;
        let answer = stage.call(call, &mut connection).await;
        answer.unwrap_or_else(|error| panic!("{call:?}: {error}"));
        run(&mut connection, "ROLLBACK").await;
    }
    stage.database.remove().await;
}

/// A victim of a deadlock that goes on as if nothing had happened.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_the_server_has_rolled_back_is_none() {
    let _makes_some = makes_deadlocks().await;
    let stage = stage().await;
    let mut first = stage.database.connection().await;
    let table = "CREATE TABLE two (id INT PRIMARY KEY, n INT); INSERT INTO two VALUES (1,0),(2,0)";
    run(&mut first, table).await;
    for call in CALLS {
        let mut second = stage.database.connection().await;
        let change = |id: u8| format!("UPDATE two SET n=n+1 WHERE id={id}");
        run(&mut first, "START TRANSACTION").await;
        run(&mut second, "START TRANSACTION").await;
        // The one that has changed more survives.
        run(&mut first, "INSERT INTO two VALUES (3,0),(4,0),(5,0)").await;
        run(&mut first, &change(1)).await;
        run(&mut second, &change(2)).await;
        let waits = async {
            run(&mut first, &change(2)).await;
        };
        let deadlock = async {
            loop {
                let undone = sqlx::query("UPDATE two SET n=n+1 WHERE id=1").execute(&mut second);
                if let Err(error) = undone.await {
                    assert!(error.to_string().contains("Deadlock"), "{error}");
                    break;
                }
            }
        };
        tokio::join!(waits, deadlock);
        is_refused(&stage, &mut second, call, "after a deadlock").await;
        run(&mut first, "ROLLBACK").await;
        second.close().await.expect("closes");
    }
    stage.database.remove().await;
}

/// With `autocommit=0` a connection is always in a transaction.
#[tokio::test]
async fn without_autocommit_there_is_always_one() {
    let stage = stage().await;
    let mut connection = stage.database.connection().await;
    let mut observer = stage.database.connection().await;
    run(&mut connection, "SET autocommit=0").await;
    let before = rows(&mut observer).await;
    for call in CALLS {
        let answer = stage.call(call, &mut connection).await;
        answer.unwrap_or_else(|error| panic!("{call:?}: {error}"));
        assert_eq!(rows(&mut observer).await, before, "{call:?}: open");
        run(&mut connection, "ROLLBACK").await;
        assert_eq!(rows(&mut observer).await, before, "{call:?}: rolled back");
    }
    let value = stage.client.counter("c").get().await.expect("reads");
    stage
        .call(Call::Add, &mut connection)
        .await
        .expect("counts");
    run(&mut connection, "COMMIT").await;
    let counted = stage.client.counter("c").get().await.expect("reads");
    assert_eq!(counted, value + 1);
    stage.database.remove().await;
}

/// Savepoints that the caller set before and after a call are there, and undo what they stand before.
#[tokio::test]
async fn the_callers_savepoints_stay() {
    let stage = stage().await;
    let mut connection = stage.database.connection().await;
    run(&mut connection, "CREATE TABLE own (id INT PRIMARY KEY)").await;
    for call in CALLS {
        let inside = rows(&mut connection).await;
        run(
            &mut connection,
            "START TRANSACTION; INSERT INTO own VALUES (1); SAVEPOINT a; INSERT INTO own VALUES (2)",
        )
        .await;
        stage
            .call(call, &mut connection)
            .await
            .unwrap_or_else(|error| panic!("{call:?}: {error}"));
        run(
            &mut connection,
            "SAVEPOINT b; INSERT INTO own VALUES (3); ROLLBACK TO SAVEPOINT b",
        )
        .await;
        let own = "SELECT COUNT(*) FROM own";
        assert_eq!(number(&mut connection, own).await, 2, "{call:?}");
        run(&mut connection, "ROLLBACK TO SAVEPOINT a").await;
        assert_eq!(number(&mut connection, own).await, 1, "{call:?}");
        assert_eq!(rows(&mut connection).await, inside, "{call:?}: undone");
        run(&mut connection, "RELEASE SAVEPOINT a; ROLLBACK").await;
    }
    stage.database.remove().await;
}

/// To see that costs no round trip.
#[tokio::test]
async fn a_call_is_one_round_trip() {
    let stage = stage().await;
    let proxy = Proxy::before(&stage.database.url).await.expect("a proxy");
    let mut connection = connect(&proxy.url(&stage.database.url)).await;
    run(&mut connection, "START TRANSACTION").await;
    for call in CALLS {
        let before = proxy.round_trips();
        stage.call(call, &mut connection).await.expect("granted");
        assert_eq!(proxy.round_trips() - before, 1, "{call:?}");
    }
    run(&mut connection, "ROLLBACK").await;
    stage.database.remove().await;
}

/// What sqlx has for transactions is taken as it is.
#[tokio::test]
async fn transactions_and_connections_are_taken_alike() {
    async fn helper(stage: &Stage, tx: &mut Transaction<'_, MySql>) -> Result<(), Error> {
        stage.lease.verify_in(tx).await?;
        stage.client.counter("c").add_in(tx, 1).await?;
        stage.client.lock_in(tx, "free").await?;
        stage.lease.release_in(tx).await
    }
    let stage = stage().await;
    let pool = MySqlPool::connect(&stage.database.url)
        .await
        .expect("a pool");
    let mut tx = pool.begin().await.expect("begins");
    stage.lease.verify_in(&mut tx).await.expect("ours");
    helper(&stage, &mut tx).await.expect("granted");
    tx.rollback().await.expect("rolls back");
    let mut pooled = pool.acquire().await.expect("a connection");
    let refused = stage.lease.verify_in(&mut pooled).await;
    assert!(
        matches!(refused, Err(Error::NoTransaction { .. })),
        "{refused:?}"
    );
    let mut nested = pooled.begin().await.expect("begins");
    let mut inner = nested.begin().await.expect("a savepoint");
    stage.lease.verify_in(&mut inner).await.expect("ours");
    inner.commit().await.expect("releases its savepoint");
    nested.commit().await.expect("commits");
    let mut plain = stage.database.connection().await;
    let mut tx = plain.begin().await.expect("begins");
    helper(&stage, &mut tx).await.expect("granted");
    tx.rollback().await.expect("rolls back");
    drop(pooled);
    pool.close().await;
    stage.database.remove().await;
}
