//! A resource that checks fencing tokens, as a store downstream of a lock does.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection, Row};

/// Creates the resource: the highest token that it has seen, and a log of what it accepted.
pub async fn create(connection: &mut MySqlConnection) {
    let sql = "CREATE TABLE resource (id INT PRIMARY KEY, seen BIGINT UNSIGNED NOT NULL);
               CREATE TABLE accepted (position BIGINT AUTO_INCREMENT PRIMARY KEY,
                   token BIGINT UNSIGNED NOT NULL, writer VARCHAR(40) NOT NULL);
               INSERT INTO resource VALUES (1, 0)";
    sqlx::raw_sql(sql)
        .execute(connection)
        .await
        .expect("a resource");
}

/// Writes with a token. Whether the resource accepted it: it refuses one that is lower than the
/// highest it has seen.
pub async fn write(connection: &mut MySqlConnection, token: u64, writer: &str) -> bool {
    let mut transaction = connection.begin().await.expect("a transaction");
    let row = sqlx::query("SELECT seen FROM resource WHERE id = 1 FOR UPDATE")
        .fetch_one(&mut *transaction)
        .await
        .expect("the resource");
    let seen: u64 = row.try_get_unchecked(0).expect("a token");
    if token < seen {
        transaction.rollback().await.expect("rolls back");
        return false;
    }
    for sql in [
        format!("UPDATE resource SET seen = {token} WHERE id = 1"),
        format!("INSERT INTO accepted (token, writer) VALUES ({token}, '{writer}')"),
    ] {
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut *transaction)
            .await
            .expect("writes");
    }
    transaction.commit().await.expect("commits");
    true
}

/// What was accepted, in order: token and writer.
pub async fn log(connection: &mut MySqlConnection) -> Vec<(u64, String)> {
    sqlx::raw_sql("SELECT token, writer FROM accepted ORDER BY position")
        .fetch_all(connection)
        .await
        .expect("the log")
        .iter()
        .map(|row| {
            let token = row.try_get_unchecked(0).expect("a token");
            (token, row.try_get_unchecked(1).expect("a writer"))
        })
        .collect()
}
