//! Stock and order in one transaction: `scripts/with-mysql cargo run --example stock_and_order`
//!
//! Pattern: a counter that changes with the caller's data. Ten buyers want one of three pieces. The stock goes down
//! exactly if the order is written: `add_within_in` refuses what would leave less than nothing, and a rollback (here
//! a card that is declined) gives the piece back.

use std::error::Error;

use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use tag_lock::LockClient;
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let pool = MySqlPoolOptions::new().connect(&url).await?;
    let locks = LockClient::connect(&url).await?;
    locks.migrate().await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS example_piece_order (buyer BIGINT PRIMARY KEY)")
        .execute(&pool)
        .await?;
    sqlx::query("DELETE FROM example_piece_order")
        .execute(&pool)
        .await?;
    locks.counter("stock:piece").set(3).await?;

    let mut buyers = JoinSet::new();
    for buyer in 1..=10 {
        let (locks, pool) = (locks.clone(), pool.clone());
        buyers.spawn(async move {
            match buy(&locks, &pool, buyer).await {
                Ok(Some(left)) => println!("buyer {buyer}: has one, {left} left"),
                Ok(None) => println!("buyer {buyer}: sold out, or the card was declined"),
                Err(error) => println!("buyer {buyer}: {error}"),
            }
        });
    }
    buyers.join_all().await;
    let left = locks.counter("stock:piece").get().await?;
    let orders: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM example_piece_order")
        .fetch_one(&pool)
        .await?;
    println!("orders: {orders}, left: {left}");
    assert_eq!(orders + left, 3);
    Ok(())
}

async fn buy(
    locks: &LockClient,
    pool: &MySqlPool,
    buyer: i64,
) -> Result<Option<i64>, Box<dyn Error + Send + Sync>> {
    let mut tx = pool.begin().await?;
    sqlx::query("INSERT INTO example_piece_order (buyer) VALUES (?)")
        .bind(buyer)
        .execute(&mut *tx)
        .await?;
    // Last in the transaction: the counter is held until the commit, and all buyers want it.
    let stock = locks.counter("stock:piece");
    let left = stock.add_within_in(&mut tx, -1, 0..).await?;
    let declined = buyer % 4 == 0;
    if left.is_none() || declined {
        tx.rollback().await?;
        return Ok(None);
    }
    tx.commit().await?;
    Ok(left)
}
