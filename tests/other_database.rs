//! The calls inside a transaction, over a connection of another database: each is refused, and has changed nothing in either.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "support/account.rs"]
mod account;
#[path = "support/calls.rs"]
mod calls;
mod support;

use account::Account;
use calls::{CALLS, Call, Stage};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{ConnectOptions, Connection};
use support::{TestDatabase, number, run};
use tag_lock::{Error, LockClient};

/// All that the rows of a database say, as one number.
async fn rows(database: &TestDatabase) -> i64 {
    let sql = "SELECT CAST(COALESCE(SUM(CRC32(CONCAT_WS('|',lock_name,kind,count,previous,deadline,status,HEX(holder),fence))),0) AS SIGNED) \
               FROM t_tag_lock WHERE kind IN (1,2)";
    let mut connection = database.connection().await;
    let rows = number(&mut connection, sql).await;
    connection.close().await.unwrap();
    rows
}

/// Makes the rows that the calls are about.
async fn call_all(stage: &Stage) {
    let mut connection = stage.database.connection().await;
    for call in CALLS {
        run(&mut connection, "START TRANSACTION").await;
        stage.call(call, &mut connection).await.expect("granted");
        run(&mut connection, "ROLLBACK").await;
    }
    connection.close().await.unwrap();
}

async fn is_refused(stage: &Stage, connection: &mut MySqlConnection, call: Call, why: &str) {
    run(connection, "START TRANSACTION").await;
    let answer = stage.call(call, connection).await;
    let told = matches!(&answer, Err(Error::OtherDatabase { database, .. }) if stage.database.url.ends_with(database.as_str()));
    assert!(told, "{why}: {call:?}: {answer:?}");
    // The connection can be used on.
    run(connection, "COMMIT").await;
    assert_eq!(number(connection, "SELECT 7").await, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_of_another_database_is_refused() {
    let (stage, other) = (Stage::new().await, Stage::new().await);
    let empty = Stage::new().await;
    call_all(&stage).await;
    call_all(&other).await;
    let without = TestDatabase::new().await;
    let mut connection = without.connection().await;
    run(&mut connection, "DROP TABLE t_tag_lock").await;
    connection.close().await.unwrap();
    for (database, why) in [
        (&other.database, "the same rows"),
        (&empty.database, "no such rows"),
        (&without, "no table"),
    ] {
        let mut connection = database.connection().await;
        for call in CALLS {
            let before = rows(&stage.database).await;
            let there = if why == "no table" {
                0
            } else {
                rows(database).await
            };
            is_refused(&stage, &mut connection, call, why).await;
            assert_eq!(rows(&stage.database).await, before, "{why}: {call:?}");
            if why != "no table" {
                assert_eq!(rows(database).await, there, "{why}: {call:?}");
            }
        }
        connection.close().await.unwrap();
    }
    for database in [stage.database, other.database, empty.database, without] {
        database.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_has_come_to_the_clients_database_is_as_any() {
    let stage = Stage::new().await;
    let (server, database) = stage.database.url.rsplit_once('/').unwrap();
    let options: MySqlConnectOptions = server.parse().unwrap();
    let mut connection = options.connect().await.unwrap();
    for call in CALLS {
        if call != Call::Release {
            is_refused(&stage, &mut connection, call, "no current database").await;
        }
    }
    run(&mut connection, &format!("USE {database}")).await;
    run(&mut connection, "START TRANSACTION").await;
    for call in CALLS {
        let answer = stage.call(call, &mut connection).await;
        answer.unwrap_or_else(|error| panic!("{call:?}: {error}"));
    }
    run(&mut connection, "ROLLBACK").await;
    connection.close().await.unwrap();
    stage.database.remove().await;
}

/// Where the server tells names of databases by their case, two that differ in it alone are two.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_whose_name_differs_in_case_alone_is_another_one() {
    let stage = Stage::new().await;
    let (server, database) = stage.database.url.rsplit_once('/').unwrap();
    let mut connection = stage.database.connection().await;
    let folded = number(
        &mut connection,
        "SELECT CAST(@@lower_case_table_names AS SIGNED)",
    )
    .await;
    assert_eq!(folded, 0, "the servers of these tests run on Linux");
    let upper = database.to_uppercase();
    assert_ne!(upper, database);
    run(&mut connection, &format!("CREATE DATABASE {upper}")).await;
    let there = LockClient::connect(&format!("{server}/{upper}"))
        .await
        .unwrap();
    there.migrate().await.unwrap();
    call_all(&stage).await;
    run(&mut connection, &format!("USE {upper}")).await;
    // The rows of all calls.
    run(
        &mut connection,
        &format!("INSERT IGNORE INTO t_tag_lock SELECT * FROM {database}.t_tag_lock"),
    )
    .await;
    for call in CALLS {
        is_refused(&stage, &mut connection, call, "another case").await;
    }
    run(&mut connection, &format!("DROP DATABASE {upper}")).await;
    connection.close().await.unwrap();
    stage.database.remove().await;
}

/// An account that may use no table there.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_without_privileges_there_is_told_too() {
    let (stage, other) = (Stage::new().await, TestDatabase::new().await);
    call_all(&stage).await;
    let account = Account::new("").await;
    account
        .grant("SELECT,INSERT,UPDATE,DELETE", &stage.database)
        .await;
    account.grant("EXECUTE", &other).await;
    let mut connection = account.options(&other).connect().await.unwrap();
    for call in CALLS {
        is_refused(&stage, &mut connection, call, "no privileges").await;
    }
    connection.close().await.unwrap();
    account.remove().await;
    for database in [stage.database, other] {
        database.remove().await;
    }
}
