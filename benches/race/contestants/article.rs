//! The article's three versions: a lock or counter is a row, changed in a transaction of one statement a round trip.
//!
//! - First: `SELECT … FOR UPDATE` on the target, then `INSERT` or `UPDATE`, under the server's default isolation,
//!   REPEATABLE READ. The select locks the *gap* where a missing name would stand; two tasks that insert
//!   neighbouring names for the first time lock the same gap and then each other: a deadlock (error 1213).
//! - Second: the same behind one central row, so that only one transaction runs at a time.
//! - Third: the same behind one of 100 stripe rows, `crc32(name) % 100`.
//!
//! The second and third run under READ COMMITTED, with prepared statements kept, on connections that are never
//! pinged: the settings that serve them best. This file and `connections.rs` beside it stand alone, so that tests can
//! include them with `#[path]`.

#![allow(
    dead_code,
    reason = "the bench and the tests that include this file use different parts of it"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::Connection;
use sqlx::mysql::{MySqlConnection, MySqlDatabaseError};

#[path = "connections.rs"]
pub mod connections;

use connections::Connections;

/// `ER_LOCK_DEADLOCK`: the server ended this transaction to break a cycle.
/// <https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html#error_er_lock_deadlock>
const ER_LOCK_DEADLOCK: u16 = 1213;

/// How often a transaction that deadlocked is run again before its error is the caller's.
const ATTEMPTS: u32 = 100;

/// Rows that order the inserts of the third version.
const STRIPES: u32 = 100;

/// Which of the article's versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Only the target row.
    First,
    /// One central row, then the target.
    Second,
    /// One of 100 stripe rows, then the target.
    Third,
}

/// Locks and counters as the article builds them.
pub struct Article {
    version: Version,
    connections: Arc<Connections>,
    deadlocks: AtomicU64,
}

/// What one transaction does to its target row.
#[derive(Clone, Copy)]
enum Change {
    Lock { ttl_us: i64 },
    Unlock,
    Add { delta: i64 },
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Refused,
    Done,
    Value(i64),
}

impl Article {
    /// Opens version `version` on the database at `url` with at most `connections` connections (64 is a good number).
    pub fn new(version: Version, url: &str, connections: usize) -> sqlx::Result<Self> {
        let session = match version {
            // The server's default is the point of the first version; say it, in case it was changed.
            Version::First => "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            Version::Second | Version::Third => {
                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
            }
        };
        Ok(Self {
            version,
            connections: Connections::new(url, connections, session)?,
            deadlocks: AtomicU64::new(0),
        })
    }

    /// Creates the table with its central and stripe rows, where they are missing.
    pub async fn create_tables(url: &str) -> sqlx::Result<()> {
        let mut connection = MySqlConnection::connect(url).await?;
        sqlx::raw_sql(
            "CREATE TABLE IF NOT EXISTS article_lock (
                 lock_name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
                 status TINYINT NOT NULL DEFAULT 0,
                 count BIGINT NOT NULL DEFAULT 0,
                 deadline DATETIME(6) NULL,
                 PRIMARY KEY (lock_name)
             ) ENGINE = InnoDB",
        )
        .execute(&mut connection)
        .await?;
        sqlx::query("INSERT IGNORE INTO article_lock (lock_name) VALUES ('center_lock')")
            .execute(&mut connection)
            .await?;
        for stripe in 0..STRIPES {
            sqlx::query("INSERT IGNORE INTO article_lock (lock_name) VALUES (?)")
                .bind(format!("center_lock_{stripe:02}"))
                .execute(&mut connection)
                .await?;
        }
        connection.close().await
    }

    /// Drops the table.
    pub async fn drop_tables(url: &str) -> sqlx::Result<()> {
        let mut connection = MySqlConnection::connect(url).await?;
        sqlx::raw_sql("DROP TABLE IF EXISTS article_lock")
            .execute(&mut connection)
            .await?;
        connection.close().await
    }

    /// Takes the lock `name` for `ttl`; `false` when it is held.
    pub async fn lock(&self, name: &str, ttl: Duration) -> sqlx::Result<bool> {
        let ttl_us = i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX);
        Ok(self.run(name, Change::Lock { ttl_us }).await? == Outcome::Done)
    }

    /// Frees the lock `name`.
    pub async fn unlock(&self, name: &str) -> sqlx::Result<()> {
        self.run(name, Change::Unlock).await.map(drop)
    }

    /// Adds `delta` to the counter `name`, which starts at 0; the new value.
    pub async fn incr(&self, name: &str, delta: i64) -> sqlx::Result<i64> {
        match self.run(name, Change::Add { delta }).await? {
            Outcome::Value(value) => Ok(value),
            Outcome::Refused | Outcome::Done => Err(sqlx::Error::RowNotFound),
        }
    }

    /// How many deadlock errors (1213) this client has seen, those that a second attempt cured included.
    pub fn deadlocks(&self) -> u64 {
        self.deadlocks.load(Ordering::Relaxed)
    }

    /// Its connections.
    pub fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }

    /// Closes the idle connections.
    pub async fn close(&self) {
        self.connections.close().await;
    }

    /// Runs one transaction, again after a deadlock and a pause.
    async fn run(&self, name: &str, change: Change) -> sqlx::Result<Outcome> {
        for attempt in 1.. {
            let mut checkout = self.connections.checkout().await?;
            match self.transaction(checkout.connection(), name, change).await {
                Ok(outcome) => {
                    checkout.done();
                    return Ok(outcome);
                }
                Err(error) => {
                    // A statement's error leaves the transaction open, and a deadlock closes it; either way this
                    // ends it. Where even that fails, the connection is closed by the drop of `checkout`.
                    if sqlx::raw_sql("ROLLBACK")
                        .execute(checkout.connection())
                        .await
                        .is_ok()
                    {
                        checkout.done();
                    }
                    if !is_deadlock(&error) {
                        return Err(error);
                    }
                    self.deadlocks.fetch_add(1, Ordering::Relaxed);
                    if attempt == ATTEMPTS {
                        return Err(error);
                    }
                }
            }
            tokio::time::sleep(pause(name, attempt)).await;
        }
        unreachable!("the last attempt returns")
    }

    async fn transaction(
        &self,
        connection: &mut MySqlConnection,
        name: &str,
        change: Change,
    ) -> sqlx::Result<Outcome> {
        sqlx::raw_sql("BEGIN").execute(&mut *connection).await?;
        if let Some(center) = self.center(name) {
            sqlx::query("SELECT lock_name FROM article_lock WHERE lock_name = ? FOR UPDATE")
                .bind(center)
                .execute(&mut *connection)
                .await?;
        }
        let outcome = apply(connection, name, change).await?;
        sqlx::raw_sql("COMMIT").execute(connection).await?;
        Ok(outcome)
    }

    /// The row that orders this name's transaction after others.
    fn center(&self, name: &str) -> Option<String> {
        match self.version {
            Version::First => None,
            Version::Second => Some("center_lock".to_owned()),
            Version::Third => Some(format!(
                "center_lock_{:02}",
                crc32fast::hash(name.as_bytes()) % STRIPES
            )),
        }
    }
}

/// Locks the target row, decides, and changes it.
async fn apply(
    connection: &mut MySqlConnection,
    name: &str,
    change: Change,
) -> sqlx::Result<Outcome> {
    if let Change::Unlock = change {
        sqlx::query("UPDATE article_lock SET status = 0, deadline = NULL WHERE lock_name = ?")
            .bind(name)
            .execute(connection)
            .await?;
        return Ok(Outcome::Done);
    }
    let row: Option<(bool, i64)> = sqlx::query_as(
        "SELECT status = 1 AND deadline > UTC_TIMESTAMP(6), count FROM article_lock WHERE lock_name = ? FOR UPDATE",
    )
    .bind(name)
    .fetch_optional(&mut *connection)
    .await?;
    match (change, row) {
        (Change::Lock { .. }, Some((true, _))) => return Ok(Outcome::Refused),
        (Change::Lock { ttl_us }, Some(_)) => {
            sqlx::query(
                "UPDATE article_lock SET status = 1, deadline = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
                 WHERE lock_name = ?",
            )
            .bind(ttl_us)
            .bind(name)
        }
        (Change::Lock { ttl_us }, None) => sqlx::query(
            "INSERT INTO article_lock (lock_name, status, deadline)
             VALUES (?, 1, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)",
        )
        .bind(name)
        .bind(ttl_us),
        (Change::Add { delta }, Some((_, count))) => {
            let value = count + delta;
            sqlx::query("UPDATE article_lock SET count = ? WHERE lock_name = ?")
                .bind(value)
                .bind(name)
                .execute(connection)
                .await?;
            return Ok(Outcome::Value(value));
        }
        (Change::Add { delta }, None) => {
            sqlx::query("INSERT INTO article_lock (lock_name, count) VALUES (?, ?)")
                .bind(name)
                .bind(delta)
                .execute(connection)
                .await?;
            return Ok(Outcome::Value(delta));
        }
        (Change::Unlock, _) => return Ok(Outcome::Done),
    }
    .execute(connection)
    .await?;
    Ok(Outcome::Done)
}

/// How long to wait before another attempt: different for each name, longer with each attempt, at most 64 ms.
fn pause(name: &str, attempt: u32) -> Duration {
    let jitter = crc32fast::hash(name.as_bytes()).rotate_left(attempt * 5);
    Duration::from_micros(u64::from(jitter % (1000 << attempt.min(6))))
}

fn is_deadlock(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>())
        .is_some_and(|error| error.number() == ER_LOCK_DEADLOCK)
}
