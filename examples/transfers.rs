//! Transfers between accounts: `scripts/with-mysql cargo run --example transfers`
//!
//! Pattern: several locks at once. Each transfer needs two accounts, in whatever order its caller names them. `lock_all` takes both or
//! none, so that opposite transfers do not wait for each other in a circle; and the transaction counts only if both are still held.

use std::error::Error;

use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use tag_lock::{AtClose, LockClient};
use tokio::task::JoinSet;

const ACCOUNTS: i64 = 4;
const START: i64 = 100;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let pool = MySqlPoolOptions::new().connect(&url).await?;
    let locks = LockClient::connect(&url).await?;
    locks.migrate().await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS example_account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)")
        .execute(&pool)
        .await?;
    sqlx::query("DELETE FROM example_account")
        .execute(&pool)
        .await?;
    for account in 0..ACCOUNTS {
        sqlx::query("INSERT INTO example_account (id, balance) VALUES (?, ?)")
            .bind(account)
            .bind(START)
            .execute(&pool)
            .await?;
    }

    let mut transfers = JoinSet::new();
    for number in 0..20 {
        let (locks, pool) = (locks.clone(), pool.clone());
        // Each pair of neighbours, in both directions.
        let (one, next) = (number % ACCOUNTS, (number + 1) % ACCOUNTS);
        let (from, to) = if number / ACCOUNTS % 2 == 0 {
            (one, next)
        } else {
            (next, one)
        };
        transfers.spawn(async move { transfer(&locks, &pool, from, to, 30).await });
    }
    while let Some(transfer) = transfers.join_next().await {
        match transfer? {
            Ok(true) => println!("done"),
            Ok(false) => println!("refused: there is not enough"),
            Err(error) => println!("failed: {error}"),
        }
    }
    let sum: i64 = sqlx::query_scalar("SELECT CAST(SUM(balance) AS SIGNED) FROM example_account")
        .fetch_one(&pool)
        .await?;
    println!("all accounts together: {sum}");
    assert_eq!(sum, ACCOUNTS * START);
    locks.close(AtClose::Release).await;
    Ok(())
}

/// Moves an amount, if there is enough.
async fn transfer(
    locks: &LockClient,
    pool: &MySqlPool,
    from: i64,
    to: i64,
    amount: i64,
) -> Result<bool, Box<dyn Error + Send + Sync>> {
    let names = [format!("account:{from}"), format!("account:{to}")];
    let both = locks
        .lock_all(names)
        .description("transfer")
        .acquire()
        .await?;

    let balance: i64 = sqlx::query_scalar("SELECT balance FROM example_account WHERE id = ?")
        .bind(from)
        .fetch_one(pool)
        .await?;
    if balance < amount {
        both.release().await?;
        return Ok(false);
    }
    // Here a real one would ask another system, for as long as that takes: no transaction is open.
    let mut tx = pool.begin().await?;
    // The locks are free when the money has moved, and not before.
    both.release_in(&mut tx).await?;
    for (account, change) in [(from, -amount), (to, amount)] {
        sqlx::query("UPDATE example_account SET balance = balance + ? WHERE id = ?")
            .bind(change)
            .bind(account)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(true)
}
