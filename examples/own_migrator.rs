//! Beside the application's own pool and migrator: `scripts/with-mysql cargo run --example own_migrator`
//!
//! An application that provisions its database itself copies tag-lock's migrations into its own directory, and never
//! calls `LockClient::migrate`. The lock client then needs no right to create tables.

use std::error::Error;
use std::path::Path;

use sqlx::migrate::Migrator;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use tag_lock::LockClient;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options: MySqlConnectOptions = std::env::var("DATABASE_URL")?.parse()?;
    let pool = MySqlPoolOptions::new()
        .max_connections(1)
        .connect_with(options.clone())
        .await?;

    // The application's directory of migrations; an application would write `sqlx::migrate!()`.
    let migrations = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    Migrator::new(migrations).await?.run(&pool).await?;
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
