//! The server's error numbers that contestants expect.
//! <https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html>

use sqlx::mysql::MySqlDatabaseError;

/// The unique index has this key already.
pub const ER_DUP_ENTRY: u16 = 1062;
/// A row stayed locked for `innodb_lock_wait_timeout`; on MariaDB also: `NOWAIT` met a locked row.
pub const ER_LOCK_WAIT_TIMEOUT: u16 = 1205;
/// The transaction was ended to break a cycle.
pub const ER_LOCK_DEADLOCK: u16 = 1213;
/// `NOWAIT` met a locked row, on MySQL.
pub const ER_LOCK_NOWAIT: u16 = 3572;

/// The server's number of an error.
pub fn code(error: &sqlx::Error) -> Option<u16> {
    error
        .as_database_error()
        .and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>())
        .map(MySqlDatabaseError::number)
}
