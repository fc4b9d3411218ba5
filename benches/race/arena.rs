//! Where the race takes place: the servers, and each contestant's share of the connections.

use std::sync::Arc;

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection};

use crate::contestants::Result;
use crate::contestants::article::connections::Connections;

/// The addresses of the servers; passed on to worker processes.
#[derive(Clone, Debug, Default)]
pub struct Arena {
    /// The MySQL or MariaDB server, or a relay in front of it.
    pub url: String,
    /// How many connections one process may open.
    pub most_connections: usize,
    /// The Redis servers.
    pub redis: RedisAddresses,
}

/// The Redis servers, as far as they run.
#[derive(Clone, Debug, Default)]
pub struct RedisAddresses {
    /// Without persistence.
    pub plain: Option<String>,
    /// With `appendfsync always`.
    pub fsync: Option<String>,
    /// Three for Redlock.
    pub quorum: Vec<String>,
}

impl Arena {
    /// How many connections a contestant gets that wants `wanted`.
    pub fn connections(&self, wanted: usize) -> usize {
        wanted.clamp(1, self.most_connections.max(1))
    }

    /// Opens at most `wanted` connections; each runs `session` first.
    pub async fn connect(&self, wanted: usize, session: &'static str) -> Result<Arc<Connections>> {
        let connections = Connections::new(&self.url, self.connections(wanted), session)?;
        connections.fill().await?;
        Ok(connections)
    }

    /// Makes an empty table.
    pub async fn create(&self, table: &'static str, columns: &'static str) -> Result<()> {
        let mut connection = MySqlConnection::connect(&self.url).await?;
        let sql = format!(
            "DROP TABLE IF EXISTS {table}; CREATE TABLE {table} ({columns}) ENGINE = InnoDB"
        );
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut connection)
            .await?;
        Ok(connection.close().await?)
    }

    /// Whether the database has this table.
    pub async fn exists(&self, table: &'static str) -> Result<bool> {
        let mut connection = MySqlConnection::connect(&self.url).await?;
        let found: Option<i64> = sqlx::query_scalar(
            "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?",
        )
        .bind(table)
        .fetch_optional(&mut connection)
        .await?;
        connection.close().await?;
        Ok(found.is_some())
    }

    /// One line that [`decode`](Self::decode) reads.
    pub fn encode(&self) -> String {
        let or_dash = |address: &Option<String>| address.clone().unwrap_or_else(|| "-".to_owned());
        let mut fields = vec![
            self.url.clone(),
            self.most_connections.to_string(),
            or_dash(&self.redis.plain),
            or_dash(&self.redis.fsync),
        ];
        fields.extend(self.redis.quorum.iter().cloned());
        fields.join("\t")
    }

    /// Reads the line of [`encode`](Self::encode).
    pub fn decode(line: &str) -> Option<Self> {
        let address = |field: &str| (field != "-").then(|| field.to_owned());
        let mut fields = line.trim_end().split('\t');
        Some(Self {
            url: fields.next()?.to_owned(),
            most_connections: fields.next()?.parse().ok()?,
            redis: RedisAddresses {
                plain: address(fields.next()?),
                fsync: address(fields.next()?),
                quorum: fields.map(str::to_owned).collect(),
            },
        })
    }
}
