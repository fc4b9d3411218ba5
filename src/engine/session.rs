//! A connection of the library's own: opened with its settings, used for one packet at a time,
//! closed at the first sign of trouble.

use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Either, Row};
use tokio::time::{Instant, timeout};

use crate::metric;
use crate::sql::dialect::Dialect;
use crate::sql::packed::LAST_OF_SEQUENCE;
use crate::sql::prepared::Prepared;
use crate::sql::script::{MARK, Packet, Proof};
use crate::sql::server_error::{Meaning, STATEMENT_TIMEOUT, TOO_MANY_PREPARED, code_of};
use crate::sql::session::{
    ADDRESS, CIPHER, Commit, LAST, MADE, OWN_ADDRESS, WHO, address_of, kill, rollback, settings,
};

/// An open connection with its settings made.
pub(crate) struct Session {
    connection: MySqlConnection,
    pub(crate) dialect: Dialect,
    /// The server's `max_allowed_packet`, in bytes.
    pub(crate) max_packet: usize,
    /// What the server has prepared for it.
    pub(crate) prepared: Prepared,
    /// How many connections the account may have; 0 if nothing limits them.
    pub(crate) account_limit: i64,
    /// It has TLS.
    pub(super) encrypted: bool,
    /// How long the server may take for one packet.
    pub(super) limit: Duration,
    /// It failed behind a COMMIT, and must be closed.
    pub(crate) spent: bool,
    /// Which session of the server it is.
    pub(crate) id: SessionId,
    /// What was sent has not been answered.
    pub(crate) in_flight: bool,
    /// Its `autocommit` is on, for reads. Each packet switches it off.
    reads_alone: bool,
}

/// A session as the server's list of sessions shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionId {
    number: u64,
    /// The client's address as the server sees it, with the port: behind a proxy another server may have the same number. `None` if the
    /// server did not say.
    address: Option<String>,
}

impl SessionId {
    #[cfg(test)]
    pub(super) fn of(number: u64) -> Self {
        Self {
            number,
            address: None,
        }
    }

    pub(crate) fn can_be_killed(&self) -> bool {
        self.address.is_some()
    }
}

/// The pause before a session is opened again that met the server's limit for a statement.
const AGAIN: Duration = Duration::from_millis(5);

/// Why a packet has no reply.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The transaction did not happen, and the session can be used on.
    RolledBack {
        meaning: Meaning,
        error: sqlx::Error,
    },
    /// Nobody knows: the session must be closed and the batch settled.
    Unknown(sqlx::Error),
}

impl Failure {
    /// What the server said, for those who try again in either case.
    pub(crate) fn into_error(self) -> sqlx::Error {
        match self {
            Self::RolledBack { error, .. } | Self::Unknown(error) => error,
        }
    }
}

impl Session {
    /// Connects and makes the settings, each within `limit`.
    pub(crate) async fn open(
        options: &MySqlConnectOptions,
        commit: Commit,
        limit: Duration,
    ) -> Result<Self, sqlx::Error> {
        // sqlx would send these settings in a query of its own: the library sends them with its others.
        let options = options
            .clone()
            .disable_statement_logging()
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .timezone(None)
            .set_names(false);
        let start = Instant::now();
        loop {
            match Self::attempt(&options, commit, limit).await {
                // The server's limit for a statement holds until the settings are made, and a busy machine may exceed it.
                Err(error) if is_statement_timeout(&error) && start.elapsed() < limit => {
                    tokio::time::sleep(AGAIN).await;
                }
                result => {
                    let answered = |error: &sqlx::Error| code_of(error).is_some();
                    metric::reachable(result.as_ref().err().is_none_or(answered));
                    return result;
                }
            }
        }
    }

    async fn attempt(
        options: &MySqlConnectOptions,
        commit: Commit,
        limit: Duration,
    ) -> Result<Self, sqlx::Error> {
        let mut connection = within(limit, options.connect()).await?;
        let who = within(limit, last_row(&mut connection, WHO.to_owned())).await?;
        let who = who.ok_or(sqlx::Error::RowNotFound)?;
        let version: String = who.try_get_unchecked(0)?;
        let number = who.try_get_unchecked(1)?;
        let mut dialect = Dialect::of_version(&version);
        let max_packet: u64 = who.try_get_unchecked(2)?;
        let account_limit = who.try_get_unchecked(3)?;
        let prepared_limit: u64 = who.try_get_unchecked(4)?;
        let answers = rows_until_error(&mut connection, settings(dialect, commit));
        let answers = within(limit, answers).await?;
        let answer = |column| answers.iter().find_map(|row| text(row, column));
        if answer(MADE).is_none() {
            return Err(sqlx::Error::Protocol(
                "the server, or a proxy before it, did not answer all statements of a query".into(),
            ));
        }
        let encrypted = answer(CIPHER).is_some_and(|cipher| !cipher.is_empty());
        // By its address another session can kill it. A session over a local socket has none: it cannot be killed, and all else works.
        let has_port = |address: &String| address.contains(':');
        let mut address = answer(ADDRESS).filter(has_port);
        if let Dialect::MariaDb { sequences } = &mut dialect {
            *sequences = answer(LAST).as_deref() == Some(LAST_OF_SEQUENCE);
        } else if address.is_none() {
            let row = within(limit, last_row(&mut connection, OWN_ADDRESS.to_owned())).await;
            address = match row {
                Ok(row) => row.and_then(|row| text(&row, ADDRESS)).filter(has_port),
                Err(sqlx::Error::Database(_)) => None,
                Err(error) => return Err(error),
            };
        }
        Ok(Self {
            connection,
            dialect,
            max_packet: usize::try_from(max_packet).unwrap_or(usize::MAX),
            prepared: Prepared::of_server(prepared_limit),
            account_limit,
            encrypted,
            limit,
            spent: false,
            id: SessionId { number, address },
            in_flight: false,
            reads_alone: commit == Commit::Automatic,
        })
    }

    /// Says goodbye to the server; it does not matter whether that arrives.
    pub(crate) async fn close(self) {
        drop(within(self.limit, self.connection.close()).await);
    }

    /// Sends a query that changes nothing or ends its own transaction; its last row's first column.
    pub(crate) async fn query(&mut self, sql: String) -> Result<Option<String>, sqlx::Error> {
        let sql = self.switched(false, sql);
        self.in_flight = true;
        let row = within(self.limit, last_row(&mut self.connection, sql)).await;
        self.in_flight = is_unanswered(&row);
        row?.map(|row| row.try_get_unchecked::<Option<String>, _>(0))
            .transpose()
            .map(Option::flatten)
    }

    /// All rows of such a query.
    pub(crate) async fn rows(&mut self, sql: String) -> Result<Vec<MySqlRow>, sqlx::Error> {
        let sql = self.switched(false, sql);
        self.fetch(sql).await
    }

    /// All rows of a statement that is a transaction of its own: it needs no `COMMIT` behind it.
    pub(crate) async fn rows_alone(&mut self, sql: String) -> Result<Vec<MySqlRow>, sqlx::Error> {
        let sql = self.switched(true, sql);
        self.fetch(sql).await
    }

    /// A query, behind what switches `autocommit`, if that has to be.
    fn switched(&mut self, on: bool, sql: String) -> String {
        if std::mem::replace(&mut self.reads_alone, on) == on {
            return sql;
        }
        format!("SET autocommit={};{sql}", u8::from(on))
    }

    async fn fetch(&mut self, sql: String) -> Result<Vec<MySqlRow>, sqlx::Error> {
        self.in_flight = true;
        let query = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut self.connection);
        let rows = within(self.limit, query).await;
        self.in_flight = is_unanswered(&rows);
        rows
    }

    /// Ends sessions of this account that were given up, and gives back those that the server still has.
    pub(crate) async fn kill(
        &mut self,
        sessions: Vec<SessionId>,
    ) -> Result<Vec<SessionId>, sqlx::Error> {
        let mut left = Vec::new();
        for session in sessions {
            let Some(address) = &session.address else {
                continue;
            };
            let seen = match self.query(address_of(session.number)).await {
                // This server does not say: it may be another one.
                Err(sqlx::Error::Database(_)) => None,
                seen => seen?,
            };
            if seen.as_ref() == Some(address) {
                match self.query(kill(session.number)).await {
                    // It has ended meanwhile.
                    Ok(_) | Err(sqlx::Error::Database(_)) => left.push(session),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(left)
    }

    /// Sends a packet, and waits until its `COMMIT` is acknowledged; the first column of its answer.
    pub(crate) async fn packet(&mut self, packet: Packet) -> Result<Option<String>, Failure> {
        let Packet { sql, proof } = packet;
        self.reads_alone = false;
        self.in_flight = true;
        let mut done = 0;
        let mut last = None;
        let reading = async {
            let mut results = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_many(&mut self.connection);
            while let Some(result) = results.try_next().await? {
                match result {
                    Either::Left(_) => done += 1,
                    Either::Right(row) => last = Some(row),
                }
            }
            Ok(())
        };
        let result = within(self.limit, reading).await;
        self.in_flight = is_unanswered(&result);
        let committed = match proof {
            Proof::Result(commit) => done > commit,
            Proof::Mark(_) => last.is_some(),
        };
        match result {
            Ok(()) if committed => {}
            // What fails behind the COMMIT is of no account for this packet.
            Err(_) if committed => self.spent = true,
            Ok(()) => {
                return Err(Failure::Unknown(sqlx::Error::Protocol(
                    "the server answered fewer statements than it was sent".into(),
                )));
            }
            Err(error) => return Err(self.failure(error, proof, done).await),
        }
        last.map(|row| row.try_get_unchecked::<Option<String>, _>(0))
            .transpose()
            .map(Option::flatten)
            .map_err(Failure::Unknown)
    }

    /// What an error says of a packet that is not known to be committed, after `done` results.
    async fn failure(&mut self, error: sqlx::Error, proof: Proof, done: usize) -> Failure {
        self.prepared.forget();
        let Some(code) = code_of(&error) else {
            return Failure::Unknown(error);
        };
        if code == TOO_MANY_PREPARED {
            self.prepared.switch_off();
        }
        let rollback = rollback(self.dialect);
        let undone = match proof {
            Proof::Result(commit) => {
                let undone = done < commit || Meaning::undoes_commit(code);
                undone && self.query(rollback.to_owned()).await.is_ok()
            }
            Proof::Mark(mark) => {
                let answer = self.query(format!("{rollback};{MARK}")).await;
                answer.is_ok_and(|last| {
                    last != Some(mark.to_string()) || Meaning::undoes_commit(code)
                })
            }
        };
        if undone {
            let meaning = Meaning::of(code);
            Failure::RolledBack { meaning, error }
        } else {
            Failure::Unknown(error)
        }
    }
}

/// Whether the server may still be at it.
fn is_unanswered<T>(result: &Result<T, sqlx::Error>) -> bool {
    !matches!(result, Ok(_) | Err(sqlx::Error::Database(_)))
}

fn is_statement_timeout(error: &sqlx::Error) -> bool {
    code_of(error).is_some_and(|code| STATEMENT_TIMEOUT.contains(&code))
}

/// The rows of all statements, up to the first behind the first row that the server refuses.
async fn rows_until_error(
    connection: &mut MySqlConnection,
    sql: String,
) -> Result<Vec<MySqlRow>, sqlx::Error> {
    let mut rows = Vec::new();
    let mut results = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_many(connection);
    loop {
        match results.try_next().await {
            Ok(Some(Either::Left(_))) => {}
            Ok(Some(Either::Right(row))) => rows.push(row),
            Ok(None) => return Ok(rows),
            Err(error) => {
                let meaning = code_of(&error).map(Meaning::of);
                let refused = meaning.is_some_and(|meaning| meaning != Meaning::Gone);
                return if refused && !rows.is_empty() {
                    Ok(rows)
                } else {
                    Err(error)
                };
            }
        }
    }
}

/// A column of a row, as text, if it has that.
fn text(row: &MySqlRow, column: &str) -> Option<String> {
    let text = row.try_get_unchecked::<Option<String>, _>(column);
    text.ok().flatten()
}

async fn last_row(
    connection: &mut MySqlConnection,
    sql: String,
) -> Result<Option<MySqlRow>, sqlx::Error> {
    let mut last = None;
    let mut results = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_many(connection);
    while let Some(result) = results.try_next().await? {
        if let Either::Right(row) = result {
            last = Some(row);
        }
    }
    Ok(last)
}

/// Runs `work` for at most `limit`; what it leaves behind then must be dropped.
async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let result = timeout(limit, work).await;
    result.unwrap_or_else(|_| Err(no_answer()))
}

/// The error of a server that did not answer in time.
pub(super) fn no_answer() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(
        std::io::ErrorKind::TimedOut,
        "the server did not answer in time",
    ))
}
