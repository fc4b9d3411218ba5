//! The application's own tables: accounts, a row for each transfer that was committed, and one for each slot of a job.

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};

use crate::history::{Booked, Committed};

/// What creates the tables.
pub const TABLES: &str = "
CREATE TABLE account (
    name    VARCHAR(64) NOT NULL PRIMARY KEY,
    first   BIGINT NOT NULL,
    second  BIGINT NOT NULL,
    version BIGINT UNSIGNED NOT NULL COMMENT 'how many transfers were committed'
) ENGINE = InnoDB;
CREATE TABLE transfer (
    name    VARCHAR(64) NOT NULL,
    version BIGINT UNSIGNED NOT NULL COMMENT 'the account''s version before it: the order of commits',
    worker  INT UNSIGNED NOT NULL,
    task    INT UNSIGNED NOT NULL,
    invoked BIGINT UNSIGNED NOT NULL,
    token   BIGINT UNSIGNED NOT NULL,
    amount  BIGINT NOT NULL,
    PRIMARY KEY (name, version)
) ENGINE = InnoDB;
CREATE TABLE booked (
    number  BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name    VARCHAR(64) NOT NULL,
    worker  INT UNSIGNED NOT NULL,
    task    INT UNSIGNED NOT NULL,
    invoked BIGINT UNSIGNED NOT NULL
) ENGINE = InnoDB COMMENT 'slots of jobs, one row for each commit that recorded one as done'";

/// How many transfers one statement reads.
const PAGE: usize = 10_000;

/// A transfer between the two accounts of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// The lock's name.
    pub name: String,
    /// The worker that does it.
    pub worker: u32,
    /// Its task.
    pub task: u32,
    /// When it began.
    pub invoked: u64,
    /// The fencing token.
    pub token: u64,
    /// From the first account to the second.
    pub amount: i64,
}

impl Transfer {
    /// Does it, in the caller's transaction. The account's row stays locked until that ends, so that the versions are
    /// the order of the commits.
    ///
    /// # Errors
    ///
    /// As the server gives cause for; `RowNotFound` if it says that it changed nothing.
    pub async fn write(&self, connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        let Self {
            name,
            worker,
            task,
            invoked,
            token,
            amount,
        } = self;
        let moved = sqlx::query(
            "UPDATE account SET first = first - ?, second = second + ?, \
             version = LAST_INSERT_ID(version) + 1 WHERE name = ?",
        )
        .bind(amount)
        .bind(amount)
        .bind(name)
        .execute(&mut *connection)
        .await?;
        // Some servers undo a statement that is killed, and say that it is done with no row. The rig must not believe them.
        if moved.rows_affected() != 1 {
            return Err(sqlx::Error::RowNotFound);
        }
        let noted = sqlx::query("INSERT INTO transfer VALUES (?, ?, ?, ?, ?, ?, ?)")
            .bind(name)
            .bind(moved.last_insert_id())
            .bind(worker)
            .bind(task)
            .bind(invoked)
            .bind(token)
            .bind(amount)
            .execute(connection)
            .await?;
        if noted.rows_affected() != 1 {
            return Err(sqlx::Error::RowNotFound);
        }
        Ok(())
    }
}

/// What makes a connection's transactions isolated; tasks differ in it.
#[must_use]
pub fn isolation(task: u32) -> &'static str {
    if task.is_multiple_of(2) {
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; SET SESSION innodb_lock_wait_timeout = 5"
    } else {
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET SESSION innodb_lock_wait_timeout = 5"
    }
}

/// The accounts' balances, and the transfers in the order of their commits.
///
/// # Errors
///
/// As the server gives cause for.
pub async fn books(
    connection: &mut MySqlConnection,
) -> Result<(Vec<(String, [i64; 2])>, Vec<Committed>), sqlx::Error> {
    let rows = sqlx::query("SELECT name, first, second FROM account ORDER BY name")
        .fetch_all(&mut *connection)
        .await?;
    let mut accounts = Vec::new();
    let mut transfers = Vec::new();
    for row in rows {
        let name: String = row.try_get(0)?;
        let shared = name.as_str().into();
        accounts.push((name.clone(), [row.try_get(1)?, row.try_get(2)?]));
        let mut next = 0_u64;
        loop {
            let page = sqlx::query(
                "SELECT version, worker, task, invoked, token, amount FROM transfer \
                 WHERE name = ? AND version >= ? ORDER BY version LIMIT 10000",
            )
            .bind(&name)
            .bind(next)
            .fetch_all(&mut *connection)
            .await?;
            for row in &page {
                next = row.try_get::<u64, _>(0)? + 1;
                transfers.push(Committed {
                    name: std::sync::Arc::clone(&shared),
                    worker: row.try_get(1)?,
                    task: row.try_get(2)?,
                    invoked: row.try_get(3)?,
                    token: row.try_get(4)?,
                    amount: row.try_get(5)?,
                });
            }
            if page.len() < PAGE {
                break;
            }
        }
    }
    Ok((accounts, transfers))
}

/// Writes that a slot is done, in the caller's transaction.
///
/// # Errors
///
/// As the server gives cause for; `RowNotFound` if it says that it wrote nothing.
pub async fn book(connection: &mut MySqlConnection, slot: &Booked) -> Result<(), sqlx::Error> {
    let written =
        sqlx::query("INSERT INTO booked (name, worker, task, invoked) VALUES (?, ?, ?, ?)")
            .bind(&*slot.name)
            .bind(slot.worker)
            .bind(slot.task)
            .bind(slot.invoked)
            .execute(connection)
            .await?;
    if written.rows_affected() == 1 {
        Ok(())
    } else {
        Err(sqlx::Error::RowNotFound)
    }
}

/// The slots that were booked.
///
/// # Errors
///
/// As the server gives cause for.
pub async fn booked(connection: &mut MySqlConnection) -> Result<Vec<Booked>, sqlx::Error> {
    let rows = sqlx::query("SELECT name, worker, task, invoked FROM booked ORDER BY number")
        .fetch_all(connection)
        .await?;
    let read = |row: sqlx::mysql::MySqlRow| {
        Ok(Booked {
            name: row.try_get::<String, _>(0)?.into(),
            worker: row.try_get(1)?,
            task: row.try_get(2)?,
            invoked: row.try_get(3)?,
        })
    };
    rows.into_iter().map(read).collect()
}

/// Runs statements that are the rig's own text.
///
/// # Errors
///
/// As the server gives cause for.
pub async fn run(connection: &mut MySqlConnection, sql: &str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(connection)
        .await?;
    Ok(())
}
