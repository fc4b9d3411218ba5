//! The calls inside a transaction, over a connection of another database: each is refused, and has changed nothing in either.

use crate::support::account::Account;
use crate::support::calls::{CALLS, Call, Stage};
use crate::support::{TestDatabase, number, run};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{ConnectOptions, Connection};
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

/// A row there that somebody has locked is not the client's either.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_of_another_database_is_not_waited_for_in_earnest() {
    let (stage, other) = (Stage::new().await, Stage::new().await);
    call_all(&stage).await;
    call_all(&other).await;
    let mut holder = other.database.connection().await;
    run(&mut holder, "START TRANSACTION").await;
    run(&mut holder, "SELECT lock_name FROM t_tag_lock FOR UPDATE").await;
    let mut connection = other.database.connection().await;
    run(&mut connection, "SET innodb_lock_wait_timeout=1").await;
    for call in CALLS {
        is_refused(&stage, &mut connection, call, "locked rows").await;
    }
    run(&mut holder, "ROLLBACK").await;
    for connection in [holder, connection] {
        connection.close().await.unwrap();
    }
    for stage in [stage, other] {
        stage.database.remove().await;
    }
}

/// Where the server tells names of databases by their case, two that differ in it alone are two. Elsewhere they are one.
#[tokio::test(flavor = "multi_thread")]
async fn case_tells_databases_apart_where_the_server_tells_them_by_it() {
    let stage = Stage::new().await;
    let (server, database) = stage.database.url.rsplit_once('/').unwrap();
    let mut connection = stage.database.connection().await;
    let folded = number(
        &mut connection,
        "SELECT CAST(@@lower_case_table_names AS SIGNED)",
    )
    .await;
    // As on Windows, on macOS, and on many a managed server.
    let hostile = std::env::var("TAG_LOCK_SERVER_DEFAULTS").is_ok_and(|it| it == "hostile");
    assert_eq!(folded, i64::from(hostile));
    let upper = database.to_uppercase();
    assert_ne!(upper, database);
    if hostile {
        is_here_whatever_the_case(&stage, &format!("{server}/{upper}")).await;
        connection.close().await.unwrap();
        stage.database.remove().await;
        return;
    }
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

/// The name written in capitals is the same database, for a client and for a connection, and another one is another one.
async fn is_here_whatever_the_case(stage: &Stage, upper: &str) {
    let (other, client) = (TestDatabase::new().await, LockClient::connect(upper).await);
    let guard = client.unwrap().lock("job").acquire().await.unwrap();
    let mut connection = other.connection().await;
    for (current, is_here) in [
        (&stage.database.name, true),
        (&stage.database.name.to_uppercase(), true),
        (&other.name, false),
        (&other.name.to_uppercase(), false),
    ] {
        run(&mut connection, &format!("USE {current}")).await;
        run(&mut connection, "START TRANSACTION").await;
        for call in CALLS {
            match stage.call(call, &mut connection).await {
                Ok(_) => assert!(is_here, "{current}: {call:?}"),
                Err(Error::OtherDatabase { .. }) => assert!(!is_here, "{current}: {call:?}"),
                Err(error) => panic!("{current}: {call:?}: {error}"),
            }
        }
        let verified = guard.verify_in(&mut connection).await;
        assert_eq!(verified.is_ok(), is_here, "{current}: {verified:?}");
        run(&mut connection, "ROLLBACK").await;
    }
    connection.close().await.unwrap();
    other.remove().await;
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
