//! Results only under the lease: `scripts/with-mysql cargo run --example results_under_lease`
//!
//! Pattern: a long job under a lease, whose results are written only while the lease is held. Two workers want to
//! close the books. The first loses its lease in a way that its own clock cannot tell (an operator frees the lock; a
//! paused virtual machine does not know either), and the second takes over. `verify_in` makes the write of the first
//! fail: no clock can let it through.

use std::error::Error;
use std::time::Duration;

use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use tag_lock::{Error as LockError, LockClient, LockGuard};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let pool = MySqlPoolOptions::new().connect(&url).await?;
    // A client each, as in two processes.
    let (first, second) = (
        LockClient::connect(&url).await?,
        LockClient::connect(&url).await?,
    );
    first.migrate().await?;
    sqlx::query(
        "CREATE TABLE IF NOT EXISTS example_books (id INT PRIMARY KEY, closed_by VARCHAR(20), times INT)",
    )
    .execute(&pool)
    .await?;
    sqlx::query("REPLACE INTO example_books VALUES (1, 'nobody', 0)")
        .execute(&pool)
        .await?;

    // Without a renewal nothing tells it before the hour is over.
    let old = first
        .lock("books")
        .ttl(Duration::from_secs(3_600))
        .auto_renew(false)
        .acquire()
        .await?;
    second.force_release("books").await?;
    let next = second.lock("books").acquire().await?;
    println!("second: {:?}", close_books(&pool, &next, "second").await);
    assert!(old.is_held(), "as far as the first worker knows");
    println!("first:  {:?}", close_books(&pool, &old, "first").await);
    next.release().await?;

    let (by, times): (String, i32) = sqlx::query_as("SELECT closed_by, times FROM example_books")
        .fetch_one(&pool)
        .await?;
    println!("closed by the {by}, {times} time");
    assert_eq!((by.as_str(), times), ("second", 1));
    Ok(())
}

/// The job's last step. Whether its results were written.
async fn close_books(
    pool: &MySqlPool,
    guard: &LockGuard,
    by: &str,
) -> Result<bool, Box<dyn Error>> {
    let mut tx = pool.begin().await?;
    // First in the transaction. From here to the commit nobody else can be granted the lock.
    match guard.verify_in(&mut tx).await {
        Ok(()) => {}
        Err(LockError::LockLost { .. }) => {
            tx.rollback().await?;
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    }
    sqlx::query("UPDATE example_books SET closed_by = ?, times = times + 1 WHERE id = 1")
        .bind(by)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(true)
}
