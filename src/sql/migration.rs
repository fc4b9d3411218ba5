//! The table that notes which migrations ran. It is as sqlx's migrator keeps it, so that either can read what the
//! other wrote.

use std::fmt::Write;
use std::time::Duration;

use super::literal;

/// The table's name.
pub(crate) const TABLE: &str = "t_tag_lock_migrations";

/// Makes the table.
pub(crate) const CREATE_NOTES: &str = "CREATE TABLE IF NOT EXISTS t_tag_lock_migrations (\
     version BIGINT PRIMARY KEY,\
     description TEXT NOT NULL,\
     installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,\
     success BOOLEAN NOT NULL,\
     checksum BLOB NOT NULL,\
     execution_time BIGINT NOT NULL\
     ) ENGINE=InnoDB";

/// Reads it: version, whether it was run to its end, checksum.
pub(crate) const NOTES: &str =
    "SELECT version,success,checksum FROM t_tag_lock_migrations ORDER BY version";

/// Takes the server's lock for this database, or waits for at most `patience`: 1 when it is taken.
///
/// MariaDB refuses the time of -1 with which sqlx's migrator waits.
pub(crate) fn lock(patience: Duration) -> String {
    let seconds = patience.as_secs();
    format!("SELECT GET_LOCK(CONCAT('tag_lock:',CRC32(COALESCE(DATABASE(),''))),{seconds})")
}

/// Notes that a migration begins. A note that is there stays.
pub(crate) fn begun(version: i64, description: &str, checksum: &[u8]) -> String {
    let mut sql = note(version, description, checksum, None);
    sql.push_str("version=version");
    sql
}

/// Notes that a migration was run to its end, after `took`.
pub(crate) fn done(version: i64, description: &str, checksum: &[u8], took: Duration) -> String {
    let mut sql = note(version, description, checksum, Some(took));
    sql.push_str(
        "description=VALUES(description),success=VALUES(success),checksum=VALUES(checksum),\
         execution_time=VALUES(execution_time)",
    );
    sql
}

/// The note, up to what becomes of one that is there. No `UPDATE` is believed: MariaDB may undo one and report it done.
fn note(version: i64, description: &str, checksum: &[u8], took: Option<Duration>) -> String {
    let mut sql = String::from(
        "INSERT INTO t_tag_lock_migrations \
         (version,description,success,checksum,execution_time) VALUES (",
    );
    literal::number(&mut sql, version);
    sql.push(',');
    literal::text(&mut sql, description);
    // Writing to a String cannot fail.
    let _ = write!(sql, ",{},", u8::from(took.is_some()));
    literal::bytes(&mut sql, checksum);
    let nanoseconds = took.map_or(-1, |took| {
        i64::try_from(took.as_nanos()).unwrap_or(i64::MAX)
    });
    let _ = write!(sql, ",{nanoseconds}) ON DUPLICATE KEY UPDATE ");
    sql
}
