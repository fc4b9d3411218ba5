//! A database of the benchmark's own.

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions};
use tag_lock::LockClient;

use crate::Result;

/// An empty database with the library's tables, and one row of business data.
pub struct Database {
    name: String,
    base: String,
    /// Its URL.
    pub url: String,
}

impl Database {
    /// Creates it on the server of `DATABASE_URL`.
    pub async fn create() -> Result<Self> {
        let base = std::env::var("DATABASE_URL").map_err(
            |_| "DATABASE_URL is not set: run scripts/with-mysql cargo bench --bench transactions",
        )?;
        let name = format!("bench{:016x}", rand::random::<u64>());
        run(
            &mut connect(&base).await?,
            &format!("CREATE DATABASE {name} CHARACTER SET utf8mb4"),
        )
        .await?;
        let (head, _) = base.rsplit_once('/').ok_or("the URL names no database")?;
        let url = format!("{head}/{name}");
        LockClient::connect(&url).await?.migrate().await?;
        let table = "CREATE TABLE account (id INT PRIMARY KEY, n BIGINT); INSERT INTO account VALUES (1, 0)";
        run(&mut connect(&url).await?, table).await?;
        Ok(Self { name, base, url })
    }

    /// Drops it.
    pub async fn remove(self) -> Result<()> {
        run(
            &mut connect(&self.base).await?,
            &format!("DROP DATABASE {}", self.name),
        )
        .await
    }
}

/// A plain connection.
pub async fn connect(url: &str) -> Result<MySqlConnection> {
    let options: MySqlConnectOptions = url.parse()?;
    Ok(options.disable_statement_logging().connect().await?)
}

/// Runs statements as one packet.
pub async fn run(connection: &mut MySqlConnection, sql: &str) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(connection)
        .await?;
    Ok(())
}
