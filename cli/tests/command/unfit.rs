//! A server with many things wrong. The settings are the whole server's: nothing else runs beside a test that makes it so.

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};

use crate::support::{connect, is_mariadb, number, run, server_url};

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
/// The same of MySQL, which has it in plugins.
const WRONG_ON_MYSQL: [Wrong; 3] = [
    ("rpl_semi_sync_source_timeout", "1", "", ""),
    ("rpl_semi_sync_source_enabled", "ON", "semi_sync", "problem"),
    // Of a group, and not in it: its plugin was not started.
    (
        "group_replication_group_name",
        "a7e3b1c2-0000-4000-8000-000000000001",
        "group_member",
        "problem",
    ),
];
/// Plugins, and their libraries.
const PLUGINS: [(&str, &str); 2] = [
    ("rpl_semi_sync_source", "semisync_source.so"),
    ("group_replication", "group_replication.so"),
];
/// Comes last: what follows could not be written.
const READ_ONLY: Wrong = ("read_only", "ON", "writable", "problem");

/// What was made wrong.
pub(crate) struct Unfit {
    connection: MySqlConnection,
    before: Vec<(&'static str, String)>,
    /// Plugins that were not there.
    plugins: Vec<&'static str>,
    /// What `doctor` is to find: checks, and the level of each.
    pub(crate) expected: Vec<(&'static str, &'static str)>,
}

impl Unfit {
    /// Makes all wrong that this server has.
    pub(crate) async fn make() -> Self {
        let mut unfit = Self {
            connection: connect(&server_url()).await,
            before: Vec::new(),
            plugins: Vec::new(),
            expected: Vec::new(),
        };
        let here: &[Wrong] = if is_mariadb() {
            &WRONG_ON_MARIADB
        } else {
            for (plugin, library) in PLUGINS {
                let there = format!(
                    "SELECT COUNT(*) FROM information_schema.PLUGINS WHERE PLUGIN_NAME='{plugin}'"
                );
                if number(&mut unfit.connection, &there).await == 0 {
                    let sql = format!("INSTALL PLUGIN {plugin} SONAME '{library}'");
                    run(&mut unfit.connection, &sql).await;
                    unfit.plugins.push(plugin);
                }
            }
            &WRONG_ON_MYSQL
        };
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
            // What a plugin brought goes with it.
            if !self.plugins.iter().any(|plugin| name.starts_with(plugin)) {
                set(&mut self.connection, name, value).await;
            }
        }
        for plugin in self.plugins {
            run(&mut self.connection, &format!("UNINSTALL PLUGIN {plugin}")).await;
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
