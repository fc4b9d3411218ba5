//! Asking a server. Nothing is decided here, and nothing is changed. What the server refuses to tell is left out, and the checks say so; a
//! question that stays unanswered ends the command.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row};
use tag_lock::{AtClose, Error, LockClient};

use super::facts::{Clocks, Denied, Facts, Group, Purgeable, TABLES, Tables, Wire};
use crate::args::Common;
use crate::exit::Failure;
use crate::output::duration;

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
/// The server's error when the account has as many connections as it may have.
const ALL_TAKEN: u16 = 1226;
/// How often a connection is tried then, and how long it waits in between.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(200);
/// How long it may take to close a connection.
const CLOSING: Duration = Duration::from_secs(5);
/// A lock of this name is looked up, and never taken.
const PROBE: &str = "tag_lock: doctor";

pub(super) async fn read(common: &Common, older_than: Duration) -> Result<Facts, Failure> {
    // The library connects as it always does: what keeps it from that is its to say.
    let client = common.client().await?;
    let tables = match client.inspect(PROBE).await {
        Ok(_) => Tables::Ready,
        Err(Error::NotMigrated { .. }) => Tables::NotMigrated,
        Err(Error::AccessDenied { .. }) => Tables::Hidden,
        // The server is there, and why it does so is what somebody wants to know.
        Err(Error::ReadOnly { source, .. }) => Tables::Refused(source.to_string()),
        Err(error) => return Err(error.into()),
    };
    let purgeable = if tables == Tables::Ready {
        purgeable(&client, older_than).await?
    } else {
        Purgeable::NotCounted
    };
    // An account may have one connection only.
    client.close_within(AtClose::Release, CLOSING).await;
    let options = common.options()?;
    let database = options.get_database().unwrap_or_default().to_owned();
    let within = common.request_timeout + Duration::from_secs(5);
    let options = options.disable_statement_logging();
    let mut server = Server {
        connection: connect(within, &options).await?,
        within,
    };
    let facts = Facts {
        version: server.text("SELECT VERSION()").await?.unwrap_or_default(),
        variables: server.pairs(&format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({VARIABLES})")).await?,
        status: server.pairs(&format!("SHOW GLOBAL STATUS WHERE Variable_name IN ({STATUS})")).await?,
        database,
        engines: server.engines().await?,
        denied: match tables {
            Tables::Ready | Tables::Hidden => server.denied().await?,
            Tables::NotMigrated | Tables::Refused(_) => Vec::new(),
        },
        account_limit: server.number("SELECT @@max_user_connections").await?,
        replicas: server
            .number("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'")
            .await?,
        clocks: server.clocks().await?,
        purgeable,
        tables,
        older_than,
        group: server.group().await?,
        // The last one: who does not like what it asks may close the connection.
        wire: server.wire().await?,
    };
    let _ = answer(within, server.connection.close()).await;
    Ok(facts)
}

/// Connects. The server may count a connection for a moment longer that was closed before.
async fn connect(
    within: Duration,
    options: &MySqlConnectOptions,
) -> Result<MySqlConnection, Failure> {
    let mut tries = 1..=TRIES;
    loop {
        let _ = tries.next();
        match answer(within, options.connect()).await? {
            Ok(connection) => return Ok(connection),
            Err(error) if number(&error) == Some(ALL_TAKEN) && !tries.is_empty() => {
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(told(&error)),
        }
    }
}

/// What the library would purge.
async fn purgeable(client: &LockClient, older_than: Duration) -> Result<Purgeable, Failure> {
    match tokio::time::timeout(COUNTING, client.purgeable(older_than)).await {
        Ok(Ok(counted)) => Ok(Purgeable::Rows(counted.rows + counted.lanes)),
        // It is the caller who asked for too small an age.
        Ok(Err(error @ Error::InvalidOption { .. })) => Err(error.into()),
        Ok(Err(error)) => Ok(Purgeable::Refused(error.to_string())),
        Err(_) => Ok(Purgeable::TooMany),
    }
}

fn told(error: &sqlx::Error) -> Failure {
    Failure::Other(format!("the server did not answer: {error}; try again"))
}

/// What comes of it, if that is in time.
async fn answer<F: Future>(within: Duration, question: F) -> Result<F::Output, Failure> {
    tokio::time::timeout(within, question).await.map_err(|_| {
        Failure::Other(format!(
            "the server did not answer within {}; try again",
            duration(within)
        ))
    })
}

/// A connection for questions. A question that the server refuses has the answer `None`, or an empty one.
struct Server {
    connection: MySqlConnection,
    /// How long an answer may take.
    within: Duration,
}

impl Server {
    /// The rows of the answer, or the server's error.
    async fn rows(&mut self, sql: &str) -> Result<Result<Vec<MySqlRow>, sqlx::Error>, Failure> {
        let question = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_all(&mut self.connection);
        match answer(self.within, question).await? {
            Err(error) if error.as_database_error().is_none() => Err(told(&error)),
            answered => Ok(answered),
        }
    }

    async fn text(&mut self, sql: &str) -> Result<Option<String>, Failure> {
        let rows = self.rows(sql).await?.unwrap_or_default();
        Ok(rows.first().and_then(|row| row.try_get_unchecked(0).ok()))
    }

    async fn number(&mut self, sql: &str) -> Result<Option<u64>, Failure> {
        let text = self.text(&format!("SELECT CAST(({sql}) AS CHAR)")).await?;
        Ok(text.and_then(|text| text.parse().ok()))
    }

    /// The first column's texts, and the second one's.
    async fn pairs(&mut self, sql: &str) -> Result<BTreeMap<String, String>, Failure> {
        let rows = self.rows(sql).await?.unwrap_or_default();
        let pair = |row: &MySqlRow| {
            let name: String = row.try_get_unchecked(0).ok()?;
            Some((name.to_lowercase(), row.try_get_unchecked(1).ok()?))
        };
        Ok(rows.iter().filter_map(pair).collect())
    }

    async fn engines(&mut self) -> Result<BTreeMap<String, String>, Failure> {
        let [locks, lanes] = TABLES;
        self.pairs(&format!(
            "SELECT TABLE_NAME,ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() \
             AND TABLE_NAME IN ('{locks}','{lanes}')"
        ))
        .await
    }

    /// What the account may not do to the tables, or what the server did not let it try. Each statement changes no row, whatever there is.
    async fn denied(&mut self) -> Result<Vec<Denied>, Failure> {
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
                if let Err(error) = self.rows(&sql).await? {
                    denied.push(Denied {
                        table,
                        privilege,
                        otherwise: (!is_denied(&error)).then(|| error.to_string()),
                    });
                }
            }
        }
        Ok(denied)
    }

    /// Who answers by itself, in a transaction, which those who split reads from writes send to the primary, and to a packet.
    async fn wire(&mut self) -> Result<Wire, Failure> {
        let mut wire = Wire::default();
        for _ in 0..ASKED {
            wire.answered_by.extend(self.text(WHO).await?);
        }
        match self.in_transaction(WHO).await {
            Ok(answer) => wire.answered_by.extend(answer),
            // What was heard before counts all the same.
            Err(_) => return Ok(wire),
        }
        let packet = AssertSqlSafe(format!("{WHO};{WHO}"));
        let question = sqlx::raw_sql(packet).fetch_all(&mut self.connection);
        match answer(self.within, question).await? {
            Ok(rows) => {
                let answers = rows
                    .iter()
                    .filter_map(|row| row.try_get_unchecked::<String, _>(0).ok());
                wire.answered_by.extend(answers);
                wire.refuses_packets = rows.len() != 2;
            }
            // It may have closed the connection, too.
            Err(_) => wire.refuses_packets = true,
        }
        Ok(wire)
    }

    async fn in_transaction(&mut self, sql: &str) -> Result<Option<String>, Failure> {
        let _ = self.rows("START TRANSACTION").await?;
        let answer = self.text(sql).await?;
        let _ = self.rows("ROLLBACK").await?;
        Ok(answer)
    }

    async fn clocks(&mut self) -> Result<Option<Clocks>, Failure> {
        let mut best: Option<Clocks> = None;
        for _ in 0..CLOCK_READS {
            let before = since_1970();
            let server = self
                .text(&format!("SELECT CAST(({CLOCK}) AS CHAR)"))
                .await?;
            let after = since_1970();
            let Some(server) = server.and_then(|server| server.parse::<i64>().ok()) else {
                return Ok(None);
            };
            let uncertain = (after - before) / 2;
            let read = Clocks {
                ahead: server - (before + uncertain),
                uncertain,
            };
            if best.is_none_or(|best| read.uncertain < best.uncertain) {
                best = Some(read);
            }
        }
        Ok(best)
    }

    /// Older servers show a member that was not started without an id.
    async fn group(&mut self) -> Result<Option<Group>, Failure> {
        let members = "performance_schema.replication_group_members";
        let state = self
            .text(&format!(
                "SELECT MEMBER_STATE FROM {members} WHERE MEMBER_ID IN (@@server_uuid,'')"
            ))
            .await?;
        let online = self
            .number(&format!(
                "SELECT COUNT(*) FROM {members} WHERE MEMBER_STATE='ONLINE'"
            ))
            .await?;
        Ok(state
            .zip(online)
            .map(|(state, online)| Group { state, online }))
    }
}

fn is_denied(error: &sqlx::Error) -> bool {
    number(error).is_some_and(|number| DENIED.contains(&number))
}

/// The number of the server's error.
fn number(error: &sqlx::Error) -> Option<u16> {
    let told = error.as_database_error()?;
    let told = told.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()?;
    Some(told.number())
}

fn since_1970() -> i64 {
    let time = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
