//! The server's deadlock counter. It counts the deadlocks of all tests on the server: a test that causes deadlocks does not
//! run beside one that reads the counter.

use sqlx::{Connection, Row};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{connect, is_mariadb, number, server_url};

static DEADLOCKS: RwLock<()> = RwLock::const_new(());

/// The server's deadlock counter at one time. While this exists, no other test of this program causes a deadlock.
#[must_use]
pub struct Deadlocks {
    before: i64,
    _no_deadlocks: RwLockReadGuard<'static, ()>,
}

/// The deadlocks that the server has counted since it started.
pub async fn server_deadlocks() -> Deadlocks {
    let guard = DEADLOCKS.read().await;
    Deadlocks {
        before: counted().await,
        _no_deadlocks: guard,
    }
}

/// For a test that causes deadlocks: waits until no other test reads the counter.
pub async fn makes_deadlocks() -> RwLockWriteGuard<'static, ()> {
    DEADLOCKS.write().await
}

/// How many deadlocks the server has counted since it started. Take differences.
pub async fn counted() -> i64 {
    let mut connection = connect(&server_url()).await;
    let sql = if is_mariadb() {
        "SELECT CAST(VARIABLE_VALUE AS SIGNED) FROM information_schema.GLOBAL_STATUS \
         WHERE VARIABLE_NAME = 'Innodb_deadlocks'"
    } else {
        // Deadlocks of rows alone, as MariaDB counts them. Error 1213 is raised for metadata locks, too: by a neighbour's
        // CREATE TRIGGER or DROP DATABASE.
        "SELECT CAST(`COUNT` AS SIGNED) FROM information_schema.INNODB_METRICS \
         WHERE NAME = 'lock_deadlocks' AND STATUS = 'enabled'"
    };
    let count = number(&mut connection, sql).await;
    let _ = connection.close().await;
    count
}

/// Fails if the server has counted deadlocks since then, with what InnoDB says of the last one.
pub async fn no_deadlocks_since(then: Deadlocks) {
    let new = counted().await - then.before;
    if new == 0 {
        return;
    }
    let mut connection = connect(&server_url()).await;
    let status = sqlx::raw_sql("SHOW ENGINE INNODB STATUS");
    let row = status.fetch_one(&mut connection).await;
    let text: Result<String, _> = row.and_then(|row| row.try_get_unchecked("Status"));
    let text = text.unwrap_or_else(|error| error.to_string());
    let last = text.split_once("LATEST DETECTED DEADLOCK");
    let last = last.map_or("InnoDB has detected none", |(_, rest)| {
        rest.split_once("\nTRANSACTIONS\n")
            .map_or(rest, |(last, _)| last)
    });
    panic!("{new} deadlocks; the last one:\n{last}");
}
