//! Beside the application's own pool and migrator: `scripts/with-mysql cargo run --example own_migrator`
//!
//! An application that provisions its database itself takes tag-lock's migrations into its own migrator, and never calls
//! `LockClient::migrate`. The lock client then needs no right to create tables.

use std::error::Error;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use tag_lock::{LockClient, MIGRATIONS};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options: MySqlConnectOptions = std::env::var("DATABASE_URL")?.parse()?;
    let pool = MySqlPoolOptions::new()
        .max_connections(1)
        .connect_with(options.clone())
        .await?;

    // The application's own migrations; it would write `sqlx::migrate!()`.
    let own = Migrator::with_migrations(vec![Migration::new(
        20_200_101_000_000,
        "parcels".into(),
        MigrationType::Simple,
        "CREATE TABLE IF NOT EXISTS parcels (id BIGINT PRIMARY KEY)".into_sql_str(),
        false,
    )]);
    let all = own.iter().chain(MIGRATIONS.iter()).cloned().collect();
    Migrator::with_migrations(all).run(&pool).await?;
    let (applied,): (i64,) = sqlx::query_as("SELECT COUNT(*) FROM _sqlx_migrations")
        .fetch_one(&pool)
        .await?;
    println!("the application's migrator has applied {applied} migration(s)");

    // The client takes the same options, and opens connections of its own: even now that the application uses up its
    // whole pool, locks are acquired and renewed.
    let locks = LockClient::builder(options).lanes(1).connect().await?;
    let transaction = pool.begin().await?;
    let guard = locks.lock("own_migrator").acquire().await?;
    println!(
        "acquired {} while the pool has no connection left",
        guard.name()
    );
    guard.release().await?;
    transaction.rollback().await?;
    Ok(())
}
