//! An outbox: `scripts/with-mysql cargo run --example outbox`
//!
//! Pattern: what is to be told to others is written with the data, numbered by a counter in the same transaction, and
//! sent by one relay at a time, in the order of the numbers. `add_in` gives numbers without holes (a rollback takes
//! its number back), and in the order of the commits. The relay marks lines as sent under `verify_in`, so that a
//! relay which was overtaken marks nothing. A line may be sent twice (its number tells), never lost, never out of order.

use std::error::Error;

use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use tag_lock::LockClient;
use tokio::task::JoinSet;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("DATABASE_URL")?;
    let pool = MySqlPoolOptions::new().connect(&url).await?;
    let locks = LockClient::connect(&url).await?;
    locks.migrate().await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS example_outbox (number BIGINT PRIMARY KEY, text VARCHAR(100), sent BOOL)")
        .execute(&pool)
        .await?;
    sqlx::query("DELETE FROM example_outbox")
        .execute(&pool)
        .await?;
    locks.counter("outbox").set(0).await?;

    let mut tasks = JoinSet::new();
    for user in 1..=6 {
        tasks.spawn(sign_up(locks.clone(), pool.clone(), user));
    }
    while let Some(signed_up) = tasks.join_next().await {
        signed_up??;
    }
    // Were there several relays, one would work at a time.
    let sent = relay(&locks, &pool).await?;
    println!("sent: {sent:?}");
    assert_eq!(sent, [1, 2, 3, 4]);
    Ok(())
}

async fn sign_up(locks: LockClient, pool: MySqlPool, user: i64) -> Result<()> {
    let mut tx = pool.begin().await?;
    // The business data come first; the number last, since it is held until the commit.
    let number = locks.counter("outbox").add_in(&mut tx, 1).await?;
    let line = sqlx::query("INSERT INTO example_outbox VALUES (?, ?, FALSE)").bind(number);
    line.bind(format!("user {user} signed up"))
        .execute(&mut *tx)
        .await?;
    // Every third one changes their mind, and leaves no hole.
    if user % 3 == 0 {
        return Ok(tx.rollback().await?);
    }
    Ok(tx.commit().await?)
}

async fn relay(locks: &LockClient, pool: &MySqlPool) -> Result<Vec<i64>> {
    let guard = locks.lock("outbox relay").acquire().await?;
    let lines: Vec<(i64, String)> =
        sqlx::query_as("SELECT number, text FROM example_outbox WHERE NOT sent ORDER BY number")
            .fetch_all(pool)
            .await?;
    for (number, text) in &lines {
        println!("sending {number}: {text}");
        let mut tx = pool.begin().await?;
        guard.verify_in(&mut tx).await?;
        let mark =
            sqlx::query("UPDATE example_outbox SET sent = TRUE WHERE number = ?").bind(number);
        mark.execute(&mut *tx).await?;
        tx.commit().await?;
    }
    guard.release().await?;
    Ok(lines.into_iter().map(|(number, _)| number).collect())
}
