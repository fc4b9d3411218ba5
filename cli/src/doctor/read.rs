//! Asking a server. What it does not tell is left out; nothing is decided here, and nothing is changed.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row};
use tag_lock::Error;

use super::facts::{Clocks, Facts, Group, TABLES, Tables, Wire};
use crate::args::Common;
use crate::exit::Failure;

/// The global variables that the checks look at.
const VARIABLES: &str = "'innodb_flush_log_at_trx_commit','sync_binlog','log_bin','binlog_format','max_allowed_packet',\
    'innodb_snapshot_isolation','read_only','super_read_only','innodb_read_only','innodb_doublewrite',\
    'rpl_semi_sync_source_enabled','rpl_semi_sync_source_wait_point','rpl_semi_sync_source_timeout',\
    'rpl_semi_sync_master_enabled','rpl_semi_sync_master_wait_point','rpl_semi_sync_master_timeout',\
    'wsrep_on','wsrep_sync_wait','group_replication_group_name','group_replication_single_primary_mode',\
    'group_replication_consistency','group_replication_unreachable_majority_timeout'";
const STATUS: &str = "'Rpl_semi_sync_source_status','Rpl_semi_sync_master_status','wsrep_cluster_status','wsrep_ready',\
    'wsrep_cluster_size'";

/// What answers: a server and its session.
const WHO: &str =
    "SELECT CONCAT(@@hostname,' (server id ',@@server_id,', session ',CONNECTION_ID(),')')";
/// How often that is asked.
const ASKED: usize = 6;
/// The server's clock, in microseconds since 1970.
const CLOCK: &str = "SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))";
/// How often the clock is read: the quickest answer counts.
const CLOCK_READS: usize = 5;
/// How long counting rows may take.
const COUNTING: Duration = Duration::from_secs(10);
/// The server's errors when the account may not do something, to a database, a table, or a column of one.
const DENIED: [u16; 4] = [1044, 1142, 1143, 1227];
/// A lock of this name is looked up, and never taken.
const PROBE: &str = "tag_lock: doctor";

pub(super) async fn read(common: &Common, older_than: Duration) -> Result<Facts, Failure> {
    // The library connects as it always does: what keeps it from that is its to say.
    let client = common.client().await?;
    let tables = match client.inspect(PROBE).await {
        Ok(_) => Tables::Ready,
        Err(Error::NotMigrated { .. }) => Tables::NotMigrated,
        Err(Error::AccessDenied { .. }) => Tables::Hidden,
        Err(error) => return Err(error.into()),
    };
    let options = common.options()?;
    let database = options.get_database().unwrap_or_default().to_owned();
    let connection = options.disable_statement_logging().connect().await;
    let mut server = Server(connection.map_err(|error| told(&error))?);
    let facts = Facts {
        version: server.text("SELECT VERSION()").await.unwrap_or_default(),
        variables: server.pairs(&format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({VARIABLES})")).await,
        status: server.pairs(&format!("SHOW GLOBAL STATUS WHERE Variable_name IN ({STATUS})")).await,
        database,
        tables,
        engines: server.engines().await,
        denied: if tables == Tables::NotMigrated { Vec::new() } else { server.denied().await },
        account_limit: server.number("SELECT @@max_user_connections").await,
        replicas: server
            .number("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'")
            .await,
        wire: server.wire().await,
        clocks: server.clocks().await,
        purgeable: if tables == Tables::Ready { server.purgeable(older_than).await } else { None },
        older_than,
        group: server.group().await,
    };
    let _ = server.0.close().await;
    Ok(facts)
}

fn told(error: &sqlx::Error) -> Failure {
    Failure::Other(format!("the server did not answer: {error}; try again"))
}

/// A connection for questions. Questions without an answer are left out.
struct Server(MySqlConnection);

impl Server {
    async fn rows(&mut self, sql: &str) -> Result<Vec<MySqlRow>, sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
            .fetch_all(&mut self.0)
            .await
    }

    async fn text(&mut self, sql: &str) -> Option<String> {
        self.rows(sql)
            .await
            .ok()?
            .first()?
            .try_get_unchecked(0)
            .ok()
    }

    async fn number(&mut self, sql: &str) -> Option<u64> {
        self.text(&format!("SELECT CAST(({sql}) AS CHAR)"))
            .await?
            .parse()
            .ok()
    }

    /// The first column's texts, and the second one's.
    async fn pairs(&mut self, sql: &str) -> BTreeMap<String, String> {
        let rows = self.rows(sql).await.unwrap_or_default();
        let pair = |row: &MySqlRow| {
            let name: String = row.try_get_unchecked(0).ok()?;
            Some((name.to_lowercase(), row.try_get_unchecked(1).ok()?))
        };
        rows.iter().filter_map(pair).collect()
    }

    async fn engines(&mut self) -> BTreeMap<String, String> {
        let [locks, lanes] = TABLES;
        self.pairs(&format!(
            "SELECT TABLE_NAME,ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() \
             AND TABLE_NAME IN ('{locks}','{lanes}')"
        ))
        .await
    }

    /// What the account may not do to the tables. Each statement changes no row, whatever there is.
    async fn denied(&mut self) -> Vec<(&'static str, &'static str)> {
        let [locks, lanes] = TABLES;
        let inserts = [
            (locks, "(lock_name,kind) SELECT 'x',9".to_owned()),
            (
                lanes,
                "(id,seq,modify_time) SELECT 'x',0,UTC_TIMESTAMP(6)".to_owned(),
            ),
        ];
        let mut denied = Vec::new();
        for (table, values) in inserts {
            for (privilege, sql) in [
                ("SELECT", format!("SELECT * FROM {table} LIMIT 0")),
                (
                    "INSERT",
                    format!("INSERT INTO {table} {values} FROM DUAL WHERE 1=0"),
                ),
                (
                    "UPDATE",
                    format!("UPDATE {table} SET modify_time='1970-01-01' WHERE 1=0"),
                ),
                ("DELETE", format!("DELETE FROM {table} WHERE 1=0")),
            ] {
                let sql = format!("SET sql_safe_updates=0;{sql};ROLLBACK");
                if self.rows(&sql).await.is_err_and(|error| is_denied(&error)) {
                    denied.push((table, privilege));
                }
            }
        }
        denied
    }

    async fn wire(&mut self) -> Wire {
        let mut wire = Wire::default();
        for _ in 0..ASKED {
            wire.answered_by.extend(self.text(WHO).await);
        }
        match self.rows(&format!("{WHO};{WHO}")).await {
            Ok(rows) => {
                let answers = rows
                    .iter()
                    .filter_map(|row| row.try_get_unchecked::<String, _>(0).ok());
                wire.answered_by.extend(answers);
                wire.refuses_packets = rows.len() != 2;
            }
            Err(_) => wire.refuses_packets = true,
        }
        wire
    }

    async fn clocks(&mut self) -> Option<Clocks> {
        let mut best: Option<Clocks> = None;
        for _ in 0..CLOCK_READS {
            let before = since_1970();
            let server: i64 = self
                .text(&format!("SELECT CAST(({CLOCK}) AS CHAR)"))
                .await?
                .parse()
                .ok()?;
            let after = since_1970();
            let uncertain = (after - before) / 2;
            let read = Clocks {
                ahead: server - (before + uncertain),
                uncertain,
            };
            if best.is_none_or(|best| read.uncertain < best.uncertain) {
                best = Some(read);
            }
        }
        best
    }

    /// What `purge` would take, by the library's own rule: free locks, forgotten ids, and counters that were deleted or whose window has ended.
    async fn purgeable(&mut self, older_than: Duration) -> Option<u64> {
        let limit = COUNTING.as_secs();
        // One of the two knows the word.
        let _ = self
            .rows(&format!("SET SESSION max_statement_time={limit}"))
            .await;
        let _ = self
            .rows(&format!("SET SESSION max_execution_time={}", limit * 1_000))
            .await;
        let age = older_than.as_micros();
        self.number(&format!(
            "SELECT COUNT(*) FROM t_tag_lock WHERE (kind=1 AND (status=0 OR deadline<=UTC_TIMESTAMP(6)) \
             OR kind>1 AND deadline<=UTC_TIMESTAMP(6) OR kind=4 AND status=4) AND TIMESTAMPDIFF(MICROSECOND,modify_time,UTC_TIMESTAMP(6))>={age}"
        ))
        .await
    }

    async fn group(&mut self) -> Option<Group> {
        let members = "performance_schema.replication_group_members";
        let state = self
            .text(&format!(
                "SELECT MEMBER_STATE FROM {members} WHERE MEMBER_ID=@@server_uuid"
            ))
            .await?;
        let online = self
            .number(&format!(
                "SELECT COUNT(*) FROM {members} WHERE MEMBER_STATE='ONLINE'"
            ))
            .await?;
        Some(Group { state, online })
    }
}

fn is_denied(error: &sqlx::Error) -> bool {
    let told = error.as_database_error();
    let told = told.and_then(|told| told.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>());
    told.is_some_and(|told| DENIED.contains(&told.number()))
}

fn since_1970() -> i64 {
    let time = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
