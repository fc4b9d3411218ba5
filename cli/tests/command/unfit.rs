//! A server with many things wrong. The settings are the whole server's: nothing else runs beside a test that makes it so.

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};

use crate::support::{connect, is_mariadb, run, server_url};

/// A variable of the server, its wrong value, and the check of `doctor` that finds it, with the level of what it finds.
type Wrong = (&'static str, &'static str, &'static str, &'static str);

const WRONG: [Wrong; 5] = [
    ("innodb_flush_log_at_trx_commit", "2", "redo_log", "problem"),
    ("sync_binlog", "100", "binary_log", "problem"),
    ("max_allowed_packet", "65536", "packets", "note"),
    ("binlog_format", "STATEMENT", "binlog_format", "problem"),
    ("innodb_snapshot_isolation", "ON", "snapshots", "note"),
];
/// Without a replica it is not active, or falls back after this time.
const WRONG_ON_MARIADB: [Wrong; 2] = [
    ("rpl_semi_sync_master_timeout", "1", "", ""),
    ("rpl_semi_sync_master_enabled", "ON", "semi_sync", "problem"),
];
/// Comes last: what follows could not be written.
const READ_ONLY: Wrong = ("read_only", "ON", "writable", "problem");

/// What was made wrong.
pub(crate) struct Unfit {
    connection: MySqlConnection,
    before: Vec<(&'static str, String)>,
    /// What `doctor` is to find: checks, and the level of each.
    pub(crate) expected: Vec<(&'static str, &'static str)>,
}

impl Unfit {
    /// Makes all wrong that this server has.
    pub(crate) async fn make() -> Self {
        let mut unfit = Self {
            connection: connect(&server_url()).await,
            before: Vec::new(),
            expected: Vec::new(),
        };
        let here: &[Wrong] = if is_mariadb() { &WRONG_ON_MARIADB } else { &[] };
        for (name, wrong, check, level) in WRONG.iter().chain(here).chain([&READ_ONLY]) {
            // MySQL has lost some, and MariaDB has some of its own.
            if let Some(value) = value(&mut unfit.connection, name).await {
                unfit.before.push((name, value));
                set(&mut unfit.connection, name, wrong).await;
                if !check.is_empty() {
                    unfit.expected.push((check, level));
                }
            }
        }
        // Semi-synchronous replication without a replica is active until a commit has waited for one.
        let commit = "DROP DATABASE IF EXISTS nobody_has_this";
        run(&mut unfit.connection, commit).await;
        unfit
    }

    /// Makes all as it was.
    pub(crate) async fn mend(mut self) {
        for (name, value) in self.before.iter().rev() {
            set(&mut self.connection, name, value).await;
        }
    }
}

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
    run(connection, &format!("SET GLOBAL {name}={value}")).await;
}
