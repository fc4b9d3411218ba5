//! What every session says once, right after it connected.

use super::dialect::Dialect;
use super::packed::FIND_SEQUENCE;
use crate::timing::{SERVER_IDLE, SERVER_LOCK_WAIT};

/// How a session ends its transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commit {
    /// `autocommit=0`: packets end in `COMMIT`. (For a read alone it is switched on, by each packet off again.)
    Explicit,
    /// `autocommit=1`: each query is its own transaction.
    Automatic,
}

/// Asks who is there; the first query of every session.
pub(crate) const WHO: &str = "SELECT VERSION(),CONNECTION_ID(),@@max_allowed_packet,@@max_user_connections,@@max_prepared_stmt_count";

/// Asks under which address the server sees this session. The server goes through all its sessions for that.
pub(crate) const OWN_ADDRESS: &str =
    "SELECT host AS address FROM information_schema.processlist WHERE id=CONNECTION_ID()";

/// The same of a MySQL that has an index for it, where nobody has switched it off: without a row or with an error otherwise.
/// <https://dev.mysql.com/doc/refman/8.4/en/performance-schema-processlist-table.html>
const OWN_ADDRESS_BY_INDEX: &str =
    "SELECT host AS address FROM performance_schema.processlist WHERE id=CONNECTION_ID()";

/// The columns of the answers to [`settings`]: the settings are made; the cipher; the address; the last of the server's numbers.
pub(crate) const MADE: &str = "made";
pub(crate) const CIPHER: &str = "Value";
pub(crate) const ADDRESS: &str = "address";
pub(crate) const LAST: &str = "last";

/// Asks under which address the server sees a session, if it has that.
pub(crate) fn address_of(number: u64) -> String {
    format!("SELECT host FROM information_schema.processlist WHERE id={number}")
}

/// Ends a session. An account may end its own.
pub(crate) fn kill(number: u64) -> String {
    format!("KILL CONNECTION {number}")
}

/// The settings of a session.
///
/// - the character set, which names and descriptions come back in.
/// - READ COMMITTED: no gap locks, and each statement sees what is committed when it starts.
/// - strict mode: a value that does not fit is an error, as is the NULL that stops a batch that ran before.
/// - short lock waits: a stripe is held for one packet, so that a long wait means that somebody hangs.
/// - `lock_wait_timeout`: the server ends a wait for a table (`LOCK TABLES`, `ALTER TABLE`) before the client gives the packet
///   up, so that its outcome is known and its connection can be used on.
/// - what a server may have set for people at a prompt (`sql_safe_updates`, `sql_select_limit`,
///   `completion_type`, `max_statement_time`, `max_execution_time`) is taken back.
/// - MySQL's hypergraph optimizer, where somebody has switched it on: it may scan a table in place of looking up each row,
///   and so lock rows that nobody named.
/// - `net_write_timeout`: a client that does not read holds nothing for long.
///
/// Behind them stands an answer that says that they are made. Then it is asked what may fail: which cipher the session has (none without
/// TLS), under which address the server sees it, and whether the server lends its numbers.
pub(crate) fn settings(dialect: Dialect, commit: Commit) -> String {
    let autocommit = match commit {
        Commit::Explicit => 0,
        Commit::Automatic => 1,
    };
    let (lock_wait, idle) = (SERVER_LOCK_WAIT.as_secs(), SERVER_IDLE.as_secs());
    let mut sql = format!(
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;\
         SET NAMES utf8mb4;\
         SET SESSION sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',time_zone='+00:00',\
         innodb_lock_wait_timeout={lock_wait},lock_wait_timeout={lock_wait},net_write_timeout=5,\
         wait_timeout={idle},group_concat_max_len=4194304,sql_safe_updates=0,\
         sql_select_limit=18446744073709551615,completion_type=0,autocommit={autocommit}"
    );
    if dialect.bounds_idle_transactions() {
        sql.push_str(",idle_transaction_timeout=1,max_statement_time=0");
    } else {
        // Not every version knows the word.
        sql.push_str(
            ",max_execution_time=0,optimizer_switch=IF(LOCATE('hypergraph_optimizer=on',@@optimizer_switch),\
             'hypergraph_optimizer=off',@@optimizer_switch)",
        );
    }
    sql.push_str(";SELECT 1 AS made;SHOW SESSION STATUS LIKE 'Ssl_cipher'");
    let questions = match dialect {
        Dialect::MySql => [OWN_ADDRESS_BY_INDEX].as_slice(),
        Dialect::MariaDb { .. } => &[OWN_ADDRESS, FIND_SEQUENCE],
    };
    for question in questions {
        sql.push(';');
        sql.push_str(question);
    }
    sql
}

/// Undoes what a packet left open, and takes back that it bounded the time for it.
pub(crate) fn rollback(dialect: Dialect) -> &'static str {
    if dialect.bounds_idle_transactions() {
        "ROLLBACK"
    } else {
        "ROLLBACK;SET wait_timeout=28800"
    }
}
