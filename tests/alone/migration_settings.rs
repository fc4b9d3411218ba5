//! `migrate()` on servers whose settings are for somebody else: each is the whole server's.

use crate::support::alone::Global;
use crate::support::{TestDatabase, alone, connect, is_mariadb, number, run};
use sqlx::mysql::MySqlConnection;
use tag_lock::{Error, LockClient};

/// The lock that migrations of a database take.
const LOCK: &str = "CONCAT('tag_lock:',CRC32(DATABASE()))";

/// A variable of the server, and the value under which it is migrated.
fn settings() -> Vec<(&'static str, &'static str)> {
    let mut settings = vec![
        (
            "sql_mode",
            "'ANSI_QUOTES,PIPES_AS_CONCAT,IGNORE_SPACE,NO_BACKSLASH_ESCAPES'",
        ),
        ("autocommit", "0"),
        ("max_prepared_stmt_count", "0"),
        ("sql_safe_updates", "1"),
        ("sql_select_limit", "1"),
        ("completion_type", "1"),
    ];
    if is_mariadb() {
        settings.push(("sql_mode", "'ORACLE'"));
        settings.push(("max_statement_time", "0.001"));
        settings.push(("tx_isolation", "'SERIALIZABLE'"));
    } else {
        settings.push(("max_execution_time", "1"));
        settings.push(("transaction_isolation", "'SERIALIZABLE'"));
        settings.push(("sql_require_primary_key", "1"));
        settings.push(("sql_generate_invisible_primary_key", "1"));
    }
    settings
}

#[tokio::test(flavor = "multi_thread")]
async fn it_brings_settings_of_its_own() {
    let _alone = alone().await;
    let database = TestDatabase::empty().await;
    let mut connection = database.connection().await;
    let mut failures = Vec::new();
    for (variable, value) in settings() {
        let tables = "DROP TABLE IF EXISTS t_tag_lock,t_tag_lock_lane,t_tag_lock_migrations";
        run(&mut connection, tables).await;
        let setting = Global::set(variable, value).await;
        let migrated = migrate_twice(&database.url).await;
        drop(setting);
        let outcome = match migrated {
            Ok(()) => format!("{:?}", count(&mut connection).await),
            Err(error) => error.to_string(),
        };
        if outcome != "[1, 100, 0]" {
            failures.push(format!("{variable}={value}: {outcome}"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    database.remove().await;
}

/// The first time it waits for another migration to end; the second time there is nothing to do.
async fn migrate_twice(url: &str) -> Result<(), Error> {
    let client = LockClient::connect(url).await?;
    let mut another = connect(url).await;
    // What the server says of the test's own statements is of no account.
    let unlimited = if is_mariadb() {
        "max_statement_time"
    } else {
        "max_execution_time"
    };
    run(&mut another, &format!("SET {unlimited}=0")).await;
    number(&mut another, &format!("SELECT GET_LOCK({LOCK},0)")).await;
    let migrating = tokio::spawn({
        let client = client.clone();
        async move { client.migrate().await }
    });
    loop {
        let waiting = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE='User lock'";
        if migrating.is_finished() || number(&mut another, waiting).await > 0 {
            break;
        }
    }
    // Longer than a statement may take on such a server.
    number(&mut another, "SELECT SLEEP(0.1)").await;
    number(&mut another, &format!("SELECT RELEASE_LOCK({LOCK})")).await;
    migrating.await.unwrap()?;
    client.migrate().await
}

/// What stands in the tables: migrations, stripes, lanes.
async fn count(connection: &mut MySqlConnection) -> Vec<i64> {
    let mut counts = Vec::new();
    for rows in [
        "t_tag_lock_migrations WHERE success",
        "t_tag_lock WHERE kind=0 AND slot=0 AND status=1",
        "t_tag_lock_lane",
    ] {
        counts.push(number(connection, &format!("SELECT COUNT(*) FROM {rows}")).await);
    }
    counts
}
