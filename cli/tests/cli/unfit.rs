//! A server with many things wrong. The settings are the whole server's: a test that makes it so runs alone.

use crate::globals::{Globals, assignment};
use crate::server::Alone;
use crate::support::{is_mariadb, number, run, server_url};

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

/// What was made wrong. Dropped, it makes all as it was.
pub(crate) struct Unfit {
    /// What `doctor` is to find: checks, and the level of each.
    pub(crate) expected: Vec<(&'static str, &'static str)>,
    _globals: Globals,
}

impl Unfit {
    /// Makes all wrong that this server has.
    pub(crate) async fn make(_alone: &Alone) -> Self {
        let mut globals = Globals::at(&server_url()).await;
        let mut expected = Vec::new();
        let mut plugins = Vec::new();
        let here: &[Wrong] = if is_mariadb() {
            &WRONG_ON_MARIADB
        } else {
            for (plugin, library) in PLUGINS {
                let there = format!(
                    "SELECT COUNT(*) FROM information_schema.PLUGINS WHERE PLUGIN_NAME='{plugin}'"
                );
                if number(globals.connection(), &there).await == 0 {
                    let sql = format!("INSTALL PLUGIN {plugin} SONAME '{library}'");
                    let undo = format!("UNINSTALL PLUGIN {plugin}");
                    globals.change(&sql, &undo).await;
                    plugins.push(plugin);
                }
            }
            &WRONG_ON_MYSQL
        };
        for (name, wrong, check, level) in WRONG.iter().chain(here).chain([&READ_ONLY]) {
            // What a plugin brought goes with it.
            let is_known = if plugins.iter().any(|plugin| name.starts_with(plugin)) {
                run(globals.connection(), &assignment(name, wrong)).await;
                true
            } else {
                // MySQL has lost some, and MariaDB has some of its own.
                globals.set(name, wrong).await
            };
            if is_known && !check.is_empty() {
                expected.push((*check, *level));
            }
        }
        // Semi-synchronous replication without a replica is active until a commit has waited for one.
        let commit = "DROP DATABASE IF EXISTS nobody_has_this";
        run(globals.connection(), commit).await;
        Self {
            expected,
            _globals: globals,
        }
    }
}
