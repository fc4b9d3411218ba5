//! The server's error numbers, and what each means for a packet.
//!
//! MySQL: <https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html>; MariaDB:
//! <https://mariadb.com/kb/en/mariadb-error-code-reference/>.

use sqlx::mysql::MySqlDatabaseError;

/// The number of an error that the server reported.
pub(crate) fn code_of(error: &sqlx::Error) -> Option<u16> {
    error
        .as_database_error()
        .and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>())
        .map(MySqlDatabaseError::number)
}

/// A lock wait timed out; the transaction is still open.
pub(crate) const LOCK_WAIT_TIMEOUT: u16 = 1205;
/// MySQL: `NOWAIT` met a row that is locked; MariaDB says [`LOCK_WAIT_TIMEOUT`].
pub(crate) const LOCK_NOWAIT: u16 = 3572;
/// A deadlock, or a conflict that Galera found: the transaction was rolled back.
pub(crate) const DEADLOCK: u16 = 1213;
/// Group Replication found a conflict: the transaction was rolled back.
pub(crate) const TRANSACTION_ROLLBACK_DURING_COMMIT: u16 = 3101;
/// Group Replication, at the end of a statement: a change from another member came first, and the transaction
/// was rolled back. From `COMMIT` itself it may be anything.
pub(crate) const ERROR_DURING_COMMIT: u16 = 1180;
/// MariaDB: the row changed after the transaction's snapshot.
pub(crate) const CHECKREAD: u16 = 1020;
/// `KILL QUERY`.
pub(crate) const QUERY_INTERRUPTED: u16 = 1317;
/// MySQL: what else a joined `UPDATE` says that `KILL QUERY` hits. Its name is "unknown error".
pub(crate) const UNKNOWN_ERROR: u16 = 1105;
/// There is no such savepoint: the session is in no transaction.
pub(crate) const NO_SUCH_SAVEPOINT: u16 = 1305;
/// The table was altered between two statements.
pub(crate) const TABLE_DEF_CHANGED: u16 = 1412;
/// The lock table is full.
pub(crate) const LOCK_TABLE_FULL: u16 = 1206;
/// MariaDB's `max_statement_time`, MySQL's `max_execution_time`.
pub(crate) const STATEMENT_TIMEOUT: [u16; 2] = [1969, 3024];
/// The server has as many prepared statements as it takes: `max_prepared_stmt_count`.
pub(crate) const TOO_MANY_PREPARED: u16 = 1461;
/// A NULL for a column that takes none: the batch's number was used already.
pub(crate) const BAD_NULL: u16 = 1048;
/// A variable cannot have that value: on MySQL a packet ends so that is not as it counts on.
pub(crate) const WRONG_VALUE_FOR_VARIABLE: u16 = 1231;
/// A statement was to be executed that the session has not prepared.
pub(crate) const UNKNOWN_STATEMENT: u16 = 1243;
/// The session has no current database.
pub(crate) const NO_DATABASE: u16 = 1046;
/// The table does not exist.
pub(crate) const NO_SUCH_TABLE: u16 = 1146;
/// A column does not exist: the table is of another version.
pub(crate) const BAD_FIELD: u16 = 1054;
/// `--read-only`, `--super-read-only`.
pub(crate) const OPTION_PREVENTS_STATEMENT: u16 = 1290;
/// The transaction is read-only.
pub(crate) const TRANSACTION_READ_ONLY: u16 = 1792;
/// The server's data are read-only.
pub(crate) const READ_ONLY_MODE: u16 = 1836;
/// Group Replication: the plugin is stopping, or the member left the group. From `COMMIT` it says nothing
/// about the transaction, which the others may have committed.
pub(crate) const BEFORE_COMMIT_HOOK: u16 = 3100;
/// Group Replication holds statements back: a new primary applies what the old one has committed, or the
/// session waits for what the others have (`group_replication_consistency`). It does so for at most
/// `wait_timeout`, which is a second inside a packet; or the member is not fit for it.
pub(crate) const GROUP_HOLD: [u16; 7] = [3781, 3782, 3783, 3796, 3797, 3798, 3799];
/// Galera: the node is not part of the primary component.
pub(crate) const UNKNOWN_COMMAND: u16 = 1047;
/// Access to the database, to the account, to the table, to a column, for lack of a privilege; from
/// this host; the account is locked, or its password has expired.
pub(crate) const DENIED: [u16; 11] = [
    1044, 1045, 1130, 1142, 1143, 1227, 1698, 1820, 1862, 3118, 4151,
];
/// The database does not exist.
pub(crate) const BAD_DATABASE: u16 = 1049;
/// No more connections: of the server, of the user.
pub(crate) const TOO_MANY_CONNECTIONS: [u16; 3] = [1040, 1203, 1226];
/// READ COMMITTED with `binlog_format=STATEMENT`.
pub(crate) const BINLOG_STMT: u16 = 1665;
/// The server is going down.
pub(crate) const SHUTDOWN: u16 = 1053;
/// MySQL: the server takes no ordinary accounts for now; the session was killed.
pub(crate) const OFFLINE_MODE: u16 = 3032;
pub(crate) const SESSION_KILLED: u16 = 3169;
/// MySQL says this before it closes a connection (`wait_timeout`, `KILL`).
pub(crate) const CLIENT_INTERACTION_TIMEOUT: u16 = 4031;
/// MariaDB's word for a connection that was killed.
pub(crate) const CONNECTION_KILLED: u16 = 1927;

/// What an error of the server means for the packet that met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Somebody else was faster: the same packet may run again.
    Conflict,
    /// The batch's number is used up: the lane takes a new identity.
    NumberUsed,
    /// The server takes no writes for now.
    ReadOnly,
    /// The connection is of no more use.
    Gone,
    /// No packet of this account in this database would do better.
    Hopeless,
    /// Something in the packet displeased the server.
    Refused,
}

impl Meaning {
    pub(crate) fn of(code: u16) -> Self {
        match code {
            LOCK_WAIT_TIMEOUT
            | DEADLOCK
            | TRANSACTION_ROLLBACK_DURING_COMMIT
            | ERROR_DURING_COMMIT
            | CHECKREAD
            | QUERY_INTERRUPTED
            | TABLE_DEF_CHANGED
            | TOO_MANY_PREPARED
            | WRONG_VALUE_FOR_VARIABLE
            | UNKNOWN_STATEMENT
            | UNKNOWN_ERROR
            | LOCK_TABLE_FULL => Self::Conflict,
            code if STATEMENT_TIMEOUT.contains(&code) => Self::Conflict,
            BAD_NULL => Self::NumberUsed,
            OPTION_PREVENTS_STATEMENT
            | TRANSACTION_READ_ONLY
            | READ_ONLY_MODE
            | BEFORE_COMMIT_HOOK
            | UNKNOWN_COMMAND => Self::ReadOnly,
            code if GROUP_HOLD.contains(&code) => Self::ReadOnly,
            SHUTDOWN
            | OFFLINE_MODE
            | SESSION_KILLED
            | CLIENT_INTERACTION_TIMEOUT
            | CONNECTION_KILLED => Self::Gone,
            NO_SUCH_TABLE | BAD_FIELD | BAD_DATABASE | BINLOG_STMT => Self::Hopeless,
            code if DENIED.contains(&code) => Self::Hopeless,
            code if TOO_MANY_CONNECTIONS.contains(&code) => Self::Gone,
            _ => Self::Refused,
        }
    }

    /// Whether a `COMMIT` that met it has certainly not happened.
    pub(crate) fn undoes_commit(code: u16) -> bool {
        matches!(code, DEADLOCK | TRANSACTION_ROLLBACK_DURING_COMMIT)
    }
}
