//! What the MySQL server counts, read before and after.

use std::collections::HashMap;

use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{Connection, Row};

use crate::contestants::Result;

/// An observer's connection to the server.
pub struct Observer {
    connection: MySqlConnection,
    maria: bool,
    /// Name and version, as the JSON has them.
    pub server: String,
    /// How many connections the server allows.
    pub max_connections: usize,
}

/// The server's counters at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    /// Statements that clients sent.
    pub questions: u64,
    /// Transactions that changed something, where the server tells (binary log on).
    pub commits: Option<u64>,
    /// Deadlocks found, where the server tells.
    pub deadlocks: Option<u64>,
    /// Connections open now.
    pub connections: u64,
}

/// Statements of one reading, which are the observer's own.
const OWN_QUESTIONS: u64 = 3;

impl Observer {
    /// Connects.
    pub async fn connect(url: &str) -> Result<Self> {
        let mut connection = MySqlConnection::connect(url).await?;
        let (version, max_connections): (String, i64) =
            sqlx::query_as("SELECT VERSION(), CAST(@@max_connections AS SIGNED)")
                .fetch_one(&mut connection)
                .await?;
        let maria = version.contains("MariaDB");
        let number = version.split('-').next().unwrap_or_default();
        Ok(Self {
            connection,
            maria,
            server: format!("{} {number}", if maria { "MariaDB" } else { "MySQL" }),
            max_connections: usize::try_from(max_connections)?,
        })
    }

    /// How many transactions left behind what the server has yet to purge, where it tells.
    pub async fn unpurged(&mut self) -> Option<u64> {
        if self.maria {
            let row = sqlx::raw_sql("SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'")
                .fetch_optional(&mut self.connection)
                .await
                .ok()??;
            return Some(name_and_number(&row)?.1);
        }
        // The account may not be allowed to read it.
        sqlx::query_scalar(
            "SELECT CAST(COUNT AS UNSIGNED) FROM information_schema.INNODB_METRICS
             WHERE NAME = 'trx_rseg_history_len'",
        )
        .fetch_optional(&mut self.connection)
        .await
        .ok()?
    }

    /// Reads the counters, in three statements.
    pub async fn read(&mut self) -> Result<Status> {
        let rows = sqlx::raw_sql(
            "SHOW GLOBAL STATUS WHERE Variable_name IN
             ('Questions', 'Threads_connected', 'Binlog_commits', 'Innodb_deadlocks')",
        )
        .fetch_all(&mut self.connection)
        .await?;
        let values: HashMap<String, u64> = rows.iter().filter_map(name_and_number).collect();
        let (commits, deadlocks) = if self.maria {
            sqlx::raw_sql("DO 0; DO 0")
                .execute(&mut self.connection)
                .await?;
            (
                values.get("Binlog_commits").copied(),
                values.get("Innodb_deadlocks").copied(),
            )
        } else {
            // With `gtid_mode = ON`, the default since 9.7, each transaction that wrote adds one to this set.
            let executed: String = sqlx::query_scalar("SELECT @@global.gtid_executed")
                .fetch_one(&mut self.connection)
                .await?;
            // The account may not be allowed to read it.
            let deadlocks: Option<u64> = sqlx::query_scalar(
                "SELECT SUM_ERROR_RAISED FROM performance_schema.events_errors_summary_global_by_error
                 WHERE ERROR_NUMBER = 1213",
            )
            .fetch_optional(&mut self.connection)
            .await
            .unwrap_or_default();
            (transactions(&executed), deadlocks)
        };
        Ok(Status {
            questions: values.get("Questions").copied().unwrap_or_default(),
            commits,
            deadlocks,
            connections: values.get("Threads_connected").copied().unwrap_or_default(),
        })
    }
}

impl Status {
    /// What was counted since `earlier`; the connections are those open now.
    pub fn since(self, earlier: Self) -> Self {
        let difference = |now: Option<u64>, then: Option<u64>| {
            now.zip(then).map(|(now, then)| now.saturating_sub(then))
        };
        Self {
            questions: self
                .questions
                .saturating_sub(earlier.questions + OWN_QUESTIONS),
            commits: difference(self.commits, earlier.commits),
            deadlocks: difference(self.deadlocks, earlier.deadlocks),
            connections: self.connections,
        }
    }
}

fn name_and_number(row: &MySqlRow) -> Option<(String, u64)> {
    let name = row.try_get(0).ok()?;
    let value: String = row.try_get(1).ok()?;
    Some((name, value.parse().ok()?))
}

/// How many transactions a set such as `uuid:1-20:25, uuid:tag:1-3` names.
fn transactions(set: &str) -> Option<u64> {
    let intervals = set
        .split([',', ':'])
        .map(str::trim)
        .filter(|part| part.starts_with(|c: char| c.is_ascii_digit()));
    let mut count = 0;
    for interval in intervals {
        let (first, last) = interval.split_once('-').unwrap_or((interval, interval));
        // A UUID that begins with a digit is no interval.
        if let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) {
            count += last - first + 1;
        }
    }
    (count > 0).then_some(count)
}
