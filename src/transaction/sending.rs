//! Sends statements in a transaction of the caller's, and reads what their acknowledgements prove.

use futures_util::TryStreamExt;
use sqlx::mysql::{MySqlConnection, MySqlQueryResult, MySqlRow};
use sqlx::{AssertSqlSafe, Either, Row};

use crate::error::Error;
use crate::name::Name;
use crate::sql::home::Home;
use crate::sql::server_error::{
    BAD_FIELD, CHECKREAD, DEADLOCK, DENIED, ERROR_DURING_COMMIT, LOCK_NOWAIT, LOCK_WAIT_TIMEOUT,
    NO_DATABASE, NO_SUCH_SAVEPOINT, NO_SUCH_TABLE, QUERY_INTERRUPTED, STATEMENT_TIMEOUT,
    TRANSACTION_ROLLBACK_DURING_COMMIT, UNKNOWN_ERROR, code_of,
};
use crate::sql::transaction::{self, CallerPacket, Change, RESTORE, Verdict};

/// Sends a change, and reads its verdict from the acknowledgement.
pub(crate) async fn execute(
    connection: &mut MySqlConnection,
    home: &Home,
    change: &Change,
    name: &Name,
) -> Result<Verdict, Error> {
    let changes = std::slice::from_ref(change);
    let verdicts = execute_all(connection, home, changes, &[name]).await?;
    Ok(verdicts.first().copied().unwrap_or(Verdict::Unknown))
}

/// Sends changes in one packet, each of a name, and reads their verdicts.
pub(super) async fn execute_all(
    connection: &mut MySqlConnection,
    home: &Home,
    changes: &[Change],
    names: &[&Name],
) -> Result<Vec<Verdict>, Error> {
    let (done, _) = send(connection, home, CallerPacket::of(changes), names).await?;
    let mut verdicts = Vec::with_capacity(changes.len());
    for (position, change) in changes.iter().enumerate() {
        let done = done.get(position);
        let verdict = done.map(|done| change.verdict(done.rows_affected(), done.last_insert_id()));
        let verdict = verdict.unwrap_or(Verdict::Unknown);
        match verdict {
            Verdict::Outside => return Err(outside(names[position])),
            Verdict::Elsewhere => return Err(elsewhere(home, names[position])),
            // Another database may have no such row.
            Verdict::Unknown => expect_here(connection, home, names[position]).await?,
            Verdict::Changed(_) | Verdict::Refused => {}
        }
        verdicts.push(verdict);
    }
    Ok(verdicts)
}

/// Sends a packet: the acknowledgements of its statements, and its last row. An error is one of the statement that came next.
pub(super) async fn send(
    connection: &mut MySqlConnection,
    home: &Home,
    packet: CallerPacket,
    names: &[&Name],
) -> Result<(Vec<MySqlQueryResult>, Option<MySqlRow>), Error> {
    let (mut done, mut last) = (Vec::new(), None);
    let reading = async {
        let mut results = sqlx::raw_sql(AssertSqlSafe(packet.sql)).fetch_many(&mut *connection);
        let mut number = 0;
        while let Some(result) = results.try_next().await? {
            match result {
                Either::Left(result) => {
                    if number >= packet.result {
                        done.push(result);
                    }
                    number += 1;
                }
                Either::Right(row) => last = Some(row),
            }
        }
        Ok::<_, sqlx::Error>(())
    };
    match reading.await {
        Ok(()) => Ok((done, last)),
        Err(error) => {
            if packet.restores && error.as_database_error().is_some() {
                // If it fails, the server closes the connection if that is idle.
                drop(sqlx::raw_sql(RESTORE).execute(&mut *connection).await);
            }
            let name = names.get(done.len()).or(names.last());
            if let Some(name) = name
                && code_of(&error).is_some_and(may_be_of_another_table)
            {
                expect_here(connection, home, name).await?;
            }
            Err(explain(error, name.map(|name| name.to_string())))
        }
    }
}

/// Whether a server may say this of a table that is another one than the client's, or none. Somebody may have a row there that is called as ours.
fn may_be_of_another_table(code: u16) -> bool {
    matches!(
        code,
        NO_SUCH_TABLE | NO_DATABASE | BAD_FIELD | LOCK_WAIT_TIMEOUT | LOCK_NOWAIT
    ) || DENIED.contains(&code)
}

pub(super) fn outside(name: &Name) -> Error {
    Error::NoTransaction {
        name: name.to_string(),
    }
}

pub(super) fn elsewhere(home: &Home, name: &Name) -> Error {
    Error::OtherDatabase {
        name: name.to_string(),
        database: home.database.clone(),
    }
}

/// Asks the session of a caller whether it is in the client's database.
///
/// # Errors
///
/// [`Error::OtherDatabase`] if not; what the server says if it does not tell.
pub(super) async fn expect_here(
    connection: &mut MySqlConnection,
    home: &Home,
    name: &Name,
) -> Result<(), Error> {
    let query = sqlx::raw_sql(AssertSqlSafe(transaction::is_here(home)));
    let is_here = match query.fetch_one(connection).await {
        Ok(row) => row.try_get_unchecked::<i64, _>(0),
        Err(error) => Err(error),
    };
    match is_here {
        Ok(0) => Err(elsewhere(home, name)),
        Ok(_) => Ok(()),
        Err(error) => Err(explain(error, Some(name.to_string()))),
    }
}

/// What the server's error means inside a transaction.
fn explain(error: sqlx::Error, name: Option<String>) -> Error {
    let name = name.unwrap_or_default();
    let interrupted = |error: sqlx::Error| Error::Interrupted {
        name: name.clone(),
        source: Some(error.into()),
    };
    match code_of(&error) {
        Some(NO_SUCH_SAVEPOINT) => Error::NoTransaction { name },
        Some(LOCK_WAIT_TIMEOUT | LOCK_NOWAIT) => Error::Busy { name },
        Some(DEADLOCK | TRANSACTION_ROLLBACK_DURING_COMMIT | ERROR_DURING_COMMIT) => {
            Error::RolledBack {
                name,
                source: error.into(),
            }
        }
        Some(CHECKREAD) => Error::StaleSnapshot {
            name,
            source: error.into(),
        },
        Some(QUERY_INTERRUPTED | UNKNOWN_ERROR) => interrupted(error),
        Some(code) if STATEMENT_TIMEOUT.contains(&code) => interrupted(error),
        _ => Error::from_sqlx(error),
    }
}
