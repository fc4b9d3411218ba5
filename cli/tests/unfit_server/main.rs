//! `doctor` before a server with many things wrong. The settings are the whole server's: nothing else runs beside this test.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "../command/report.rs"]
mod report;
#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "../command/rig.rs"]
mod rig;
#[path = "../../../tests/support/mod.rs"]
mod support;

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};

use crate::report::{finding, level, problems};
use crate::rig::run;
use crate::support::{TestDatabase, connect, is_mariadb, server_url};

/// A variable's value; none if the server does not know it.
async fn value(connection: &mut MySqlConnection, name: &str) -> Option<String> {
    let sql = format!("SHOW GLOBAL VARIABLES LIKE '{name}'");
    let row = sqlx::raw_sql(AssertSqlSafe(sql))
        .fetch_optional(connection)
        .await
        .unwrap()?;
    Some(row.try_get_unchecked(1).unwrap())
}

async fn set(connection: &mut MySqlConnection, name: &str, value: &str) {
    let number = value.parse::<i64>().is_ok();
    let value = if number {
        value.to_owned()
    } else {
        format!("'{value}'")
    };
    support::run(connection, &format!("SET GLOBAL {name}={value}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_told_and_what_to_do() {
    let database = TestDatabase::new().await;
    let mut connection = connect(&server_url()).await;
    let mut wrong = vec![
        ("innodb_flush_log_at_trx_commit", "2", "redo_log", "problem"),
        ("sync_binlog", "100", "binary_log", "problem"),
        ("max_allowed_packet", "65536", "packets", "note"),
        ("binlog_format", "STATEMENT", "binlog_format", "problem"),
        ("innodb_snapshot_isolation", "ON", "snapshots", "note"),
    ];
    if is_mariadb() {
        // Without a replica it is not active, or falls back after this time.
        wrong.push(("rpl_semi_sync_master_timeout", "1", "", ""));
        wrong.push(("rpl_semi_sync_master_enabled", "ON", "semi_sync", "problem"));
    }
    wrong.push(("read_only", "ON", "writable", "problem"));
    let mut before = Vec::new();
    let mut expected = Vec::new();
    for (name, wrong, check, level) in wrong {
        // MySQL has lost some, and MariaDB has some of its own.
        if let Some(value) = value(&mut connection, name).await {
            before.push((name, value));
            set(&mut connection, name, wrong).await;
            if !check.is_empty() {
                expected.push((check, level));
            }
        }
    }
    let for_programs = run(&database, &["doctor", "--json"]);
    let for_people = run(&database, &["doctor"]);
    for (name, value) in before.iter().rev() {
        set(&mut connection, name, value).await;
    }
    let report = for_programs.json();
    assert_eq!((for_programs.code, &report["fit"]), (1, &false.into()));
    for (check, expected) in &expected {
        assert_eq!(
            level(&report, check),
            Some(*expected),
            "{check}: {report:#}"
        );
        let finding = finding(&report, check).unwrap();
        for field in ["what", "why", "do"] {
            assert!(!finding[field].as_str().unwrap().is_empty(), "{finding:#}");
        }
    }
    let count = expected
        .iter()
        .filter(|(_, level)| *level == "problem")
        .count();
    assert_eq!(problems(&report).len(), count, "{report:#}");
    assert!(count >= 3, "{report:#}");
    assert_eq!(for_people.code, 1);
    assert!(
        for_people.out.contains("PROBLEM  redo_log"),
        "{for_people:?}"
    );
    let last = format!("the server is not fit: {count} problems\n");
    assert!(for_people.out.ends_with(&last), "{for_people:?}");
    println!("{}", for_people.out);
    // All is well again.
    let after = run(&database, &["doctor", "--json"]);
    assert_eq!(
        (after.code, problems(&after.json())),
        (0, Vec::new()),
        "{after:?}"
    );
    database.remove().await;
}
