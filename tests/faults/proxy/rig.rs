//! A proxy before a real server, and a table with one number.

use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection, Error, raw_sql};
use tokio::time::{sleep, timeout};

use crate::support::proxy::Proxy;

/// Long enough for any reply on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Rig {
    pub(crate) proxy: Proxy,
    pub(crate) table: String,
    database_url: String,
    /// Past the proxy.
    direct: MySqlConnection,
}

impl Rig {
    /// `name` keeps tests that run at the same time apart.
    pub(crate) async fn start(name: &str) -> Self {
        let database_url = std::env::var("DATABASE_URL")
            .expect("DATABASE_URL names no server: run scripts/with-mysql cargo test");
        let proxy = Proxy::before(&database_url).await.expect("a proxy");
        let mut direct = MySqlConnection::connect(&database_url)
            .await
            .expect("a server");
        let table = format!("proxy_test_{name}_{}", std::process::id());
        let create = format!(
            "DROP TABLE IF EXISTS {table};
             CREATE TABLE {table} (id INT PRIMARY KEY, n BIGINT NOT NULL) ENGINE = InnoDB;
             INSERT INTO {table} VALUES (1, 0)"
        );
        raw_sql(AssertSqlSafe(create))
            .execute(&mut direct)
            .await
            .expect("a table");
        Self {
            proxy,
            table,
            database_url,
            direct,
        }
    }

    /// A new connection through the proxy.
    pub(crate) async fn connect(&self) -> MySqlConnection {
        self.try_connect()
            .await
            .expect("a connection through the proxy")
    }

    pub(crate) async fn try_connect(&self) -> Result<MySqlConnection, Error> {
        patiently(MySqlConnection::connect(
            &self.proxy.url(&self.database_url),
        ))
        .await
    }

    /// One packet that adds 1, `COMMIT` included.
    pub(crate) fn add_one(&self) -> String {
        format!(
            "START TRANSACTION; UPDATE {} SET n = n + 1 WHERE id = 1; SELECT n FROM {} WHERE id = 1; COMMIT",
            self.table, self.table
        )
    }

    /// The number, as others see it now.
    pub(crate) async fn number(&mut self) -> i64 {
        let select = format!("SELECT n FROM {} WHERE id = 1", self.table);
        sqlx::query_scalar(AssertSqlSafe(select))
            .fetch_one(&mut self.direct)
            .await
            .expect("the number")
    }

    /// Waits until the number is `expected`: the server may still be at work on what it has received.
    pub(crate) async fn settles_at(&mut self, expected: i64) {
        patiently(async {
            while self.number().await != expected {
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// The number once no connection through the proxy is left, and the server has ended the transactions of all.
    pub(crate) async fn number_at_rest(&mut self) -> i64 {
        patiently(self.proxy.all_closed()).await;
        // An update waits for what others hold on the row, so nothing is pending after it.
        let touch = format!("UPDATE {} SET n = n WHERE id = 1", self.table);
        raw_sql(AssertSqlSafe(touch))
            .execute(&mut self.direct)
            .await
            .expect("the row");
        self.number().await
    }

    pub(crate) async fn finish(mut self) {
        let counters = self.proxy.counters();
        assert_eq!(
            counters.unreadable, 0,
            "the proxy understood every connection"
        );
        assert_eq!(
            counters.unasked, 0,
            "no reply went on behind the end that was found"
        );
        drop(self.proxy);
        let drop_table = format!("DROP TABLE {}", self.table);
        raw_sql(AssertSqlSafe(drop_table))
            .execute(&mut self.direct)
            .await
            .expect("a table");
    }
}

/// Runs text as one packet.
pub(crate) async fn run(connection: &mut MySqlConnection, sql: String) -> Result<(), Error> {
    patiently(raw_sql(AssertSqlSafe(sql)).execute(connection))
        .await
        .map(drop)
}

/// Fails the test instead of hanging it.
pub(crate) async fn patiently<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("an answer in time")
}
