//! A database of the benchmark's own.

use std::time::{SystemTime, UNIX_EPOCH};

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions};
use tag_lock::LockClient;

use crate::Result;

pub(crate) struct Database {
    name: String,
    server: String,
    pub(crate) url: String,
}

impl Database {
    pub(crate) async fn create() -> Result<Self> {
        let server = std::env::var("DATABASE_URL")
            .map_err(|_| "no server: run scripts/with-mysql cargo bench --bench leases")?;
        let micros = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
        let name = format!("leases_{micros}");
        let (base, _) = server.rsplit_once('/').ok_or("the URL names no database")?;
        let database = Self {
            url: format!("{base}/{name}"),
            name,
            server,
        };
        let mut connection = connect(&database.server).await?;
        execute(
            &mut connection,
            format!("CREATE DATABASE {}", database.name),
        )
        .await?;
        LockClient::connect(&database.url).await?.migrate().await?;
        Ok(database)
    }

    pub(crate) async fn connection(&self) -> Result<MySqlConnection> {
        connect(&self.url).await
    }

    pub(crate) async fn remove(self) -> Result<()> {
        let mut connection = connect(&self.server).await?;
        execute(&mut connection, format!("DROP DATABASE {}", self.name)).await
    }
}

pub(crate) async fn connect(url: &str) -> Result<MySqlConnection> {
    let options: MySqlConnectOptions = url.parse()?;
    Ok(options.disable_statement_logging().connect().await?)
}

pub(crate) async fn execute(connection: &mut MySqlConnection, sql: String) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(connection)
        .await?;
    Ok(())
}

/// A number that one row has, or `None`.
pub(crate) async fn number(connection: &mut MySqlConnection, sql: &str) -> Result<Option<i64>> {
    let sql = AssertSqlSafe(sql.to_owned());
    let value = sqlx::query_scalar(sql).fetch_optional(connection).await?;
    Ok(value)
}
