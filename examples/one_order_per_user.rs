//! One order per user: `scripts/with-mysql cargo run --example one_order_per_user`
//!
//! Pattern: a lock that belongs to the transaction. A user clicks five times, and five servers look whether there
//! is an order and write one if there is none. `lock_in` makes look and write one step for this user, and nobody
//! else: it ends with the transaction, so that nothing has to be released or to expire.

use std::error::Error;

use sqlx::mysql::MySqlPoolOptions;
use tag_lock::LockClient;
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let pool = MySqlPoolOptions::new().connect(&url).await?;
    LockClient::connect(&url).await?.migrate().await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS example_user_order (id BIGINT AUTO_INCREMENT PRIMARY KEY, user_id BIGINT)")
        .execute(&pool)
        .await?;
    sqlx::query("DELETE FROM example_user_order")
        .execute(&pool)
        .await?;

    let mut clicks = JoinSet::new();
    for click in 1..=5 {
        // A client each, as on five servers.
        let locks = LockClient::connect(&url).await?;
        let pool = pool.clone();
        clicks.spawn(async move {
            let ordered = order(&locks, &pool, 42).await;
            println!("click {click}: {ordered:?}");
        });
    }
    clicks.join_all().await;
    let orders: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM example_user_order WHERE user_id = 42")
            .fetch_one(&pool)
            .await?;
    println!("orders: {orders}");
    assert_eq!(orders, 1);
    Ok(())
}

/// Whether an order was placed: not if there was one.
async fn order(
    locks: &LockClient,
    pool: &sqlx::MySqlPool,
    user: i64,
) -> Result<bool, Box<dyn Error + Send + Sync>> {
    let mut tx = pool.begin().await?;
    // First in the transaction: what is read afterwards is what the holder before has committed.
    locks.lock_in(&mut tx, &format!("order:{user}")).await?;
    let orders: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM example_user_order WHERE user_id = ?")
            .bind(user)
            .fetch_one(&mut *tx)
            .await?;
    if orders == 0 {
        sqlx::query("INSERT INTO example_user_order (user_id) VALUES (?)")
            .bind(user)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(orders == 0)
}
