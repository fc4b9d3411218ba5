//! Reads rows without a lock: counters' values, and locks that somebody waits for.
//!
//! All reads that come while one is in flight leave together with the next. What people ask may take long, and has a reader of its own.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Row;
use sqlx::mysql::MySqlRow;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::backoff::Backoff;
use super::gather::MAX_ROWS;
use super::link::room;
use super::pool::Connection;
use super::shared::Shared;
use crate::clock::Moment;
use crate::error::Error;
use crate::sql::operation::{Operation, Touch};
use crate::sql::packet::{self, RowOperation, Stripes};
use crate::sql::reply::{Reply, RowState};
use crate::sql::row::RowKey;
use crate::sql::server_error::{Meaning, code_of};

/// Rows that somebody wants to see.
pub(crate) struct Look {
    pub(crate) keys: Vec<RowKey>,
    /// Until when somebody waits for it.
    pub(crate) end: Moment,
    pub(crate) reply: oneshot::Sender<Result<Vec<Option<RowState>>, Error>>,
}

/// Work for the reader.
pub(crate) enum Reading {
    Look(Look),
    /// A query of its own, for people.
    Query {
        sql: String,
        end: Moment,
        reply: oneshot::Sender<Result<Vec<MySqlRow>, Error>>,
    },
}

impl Reading {
    /// Whether somebody still waits for it.
    fn is_awaited(&self) -> bool {
        match self {
            Self::Look(look) => !look.reply.is_closed(),
            Self::Query { reply, .. } => !reply.is_closed(),
        }
    }
}

/// Reads until all who could ask are gone. Its connection is closed when nobody has asked for `idle`.
pub(crate) async fn read(
    shared: Arc<Shared>,
    readings: Arc<Mutex<mpsc::UnboundedReceiver<Reading>>>,
    idle: Option<Duration>,
) {
    let mut readings = readings.lock().await;
    let mut session: Option<Connection> = None;
    let mut next = None;
    loop {
        session = session.and_then(|session| shared.pool.pass_on(session));
        let reading = match next.take() {
            Some(reading) => Some(reading),
            None => tokio::select! {
                biased;
                reading = readings.recv() => reading,
                () = shared.pool.wanted(), if session.is_some() => continue,
                () = tokio::time::sleep(idle.unwrap_or_default()), if idle.is_some() && session.is_some() => {
                    session = None;
                    continue;
                }
            },
        };
        match reading {
            None => return,
            Some(reading) if !reading.is_awaited() => {}
            Some(Reading::Query { sql, end, reply }) => {
                let mut healing = Healing::new(end);
                let result = loop {
                    match show(&shared, &mut session, &sql).await {
                        Err(error)
                            if healing.may_try_again(&shared, &mut session, &error).await => {}
                        result => break result,
                    }
                };
                if result.is_ok() {
                    shared.reached();
                }
                // Who asked may have gone away.
                drop(reply.send(result.map_err(Error::from_sqlx)));
            }
            Some(Reading::Look(look)) => {
                let mut rows = look.keys.len();
                let mut batch = vec![look];
                while rows < MAX_ROWS
                    && let Ok(reading) = readings.try_recv()
                {
                    match reading {
                        reading if !reading.is_awaited() => {}
                        Reading::Look(look) => {
                            rows += look.keys.len();
                            batch.push(look);
                        }
                        query @ Reading::Query { .. } => {
                            next = Some(query);
                            break;
                        }
                    }
                }
                answer(&shared, &mut session, batch).await;
            }
        }
    }
}

async fn show(
    shared: &Shared,
    session: &mut Option<Connection>,
    sql: &str,
) -> Result<Vec<MySqlRow>, sqlx::Error> {
    let session = connected(shared, session).await?;
    session.rows_alone(sql.to_owned()).await
}

/// Whether a read that failed may do better on a fresh connection.
fn may_heal(error: &sqlx::Error) -> bool {
    match code_of(error).map(Meaning::of) {
        None => true,
        Some(meaning) => matches!(meaning, Meaning::Conflict | Meaning::Gone),
    }
}

/// The reader's session, opened if there is none.
async fn connected<'s>(
    shared: &Shared,
    session: &'s mut Option<Connection>,
) -> Result<&'s mut Connection, sqlx::Error> {
    match session {
        Some(session) => Ok(session),
        none => {
            let opened = shared.pool.get(shared.options.packet_limit).await?;
            Ok(none.insert(opened))
        }
    }
}

/// Attempts of one read: until its time is over, each on a fresh connection.
struct Healing {
    end: Moment,
    backoff: Backoff,
}

impl Healing {
    fn new(end: Moment) -> Self {
        Self {
            end,
            backoff: Backoff::connecting(),
        }
    }

    /// Closes the session that failed; pauses and says yes if another attempt may do better.
    async fn may_try_again(
        &mut self,
        shared: &Shared,
        session: &mut Option<Connection>,
        error: &sqlx::Error,
    ) -> bool {
        // A connection that was open may have been dead for long: that costs no pause.
        let was_open = session.take().is_some();
        if may_heal(error) && !was_open {
            shared.unreachable(error);
        }
        if !may_heal(error) || self.end.has_passed() {
            return false;
        }
        if !was_open {
            tokio::time::sleep(self.backoff.delay().min(self.end.left())).await;
        }
        true
    }
}

async fn answer(shared: &Shared, session: &mut Option<Connection>, mut batch: Vec<Look>) {
    let last = batch.iter().map(|look| look.end).max();
    let mut healing = Healing::new(last.unwrap_or_else(Moment::now));
    while !batch.is_empty() {
        let keys = batch.iter().flat_map(|look| &look.keys);
        let rows: Vec<RowOperation> = keys
            .map(|key| RowOperation {
                key: key.clone(),
                operation: Operation::Touch(Touch),
                create: false,
                stripes: Stripes::None,
                group: 0,
            })
            .collect();
        match query(shared, session, &rows).await {
            Ok(reply) => {
                shared.reached();
                let mut states = reply.rows.into_iter();
                for look in batch {
                    let seen = states.by_ref().take(look.keys.len()).collect();
                    // Who asked may have gone away.
                    drop(look.reply.send(Ok(seen)));
                }
                return;
            }
            Err(error) => {
                let again = healing.may_try_again(shared, session, &error).await;
                let now = Moment::now();
                let error = Error::from_sqlx(error);
                for look in std::mem::take(&mut batch) {
                    if again && look.end > now {
                        batch.push(look);
                    } else {
                        drop(look.reply.send(Err(error.clone())));
                    }
                }
            }
        }
    }
}

/// How many of the first rows fit into a query of `room` bytes.
fn fitting(rows: &[RowOperation], room: usize) -> usize {
    let mut bytes = 0;
    let fits = |row: &&RowOperation| {
        bytes += row.weight();
        bytes <= room
    };
    let fitting = rows.iter().take(MAX_ROWS).take_while(fits).count();
    // A single row always does.
    fitting.max(1)
}

async fn query(
    shared: &Shared,
    session: &mut Option<Connection>,
    rows: &[RowOperation],
) -> Result<Reply, sqlx::Error> {
    let session = connected(shared, session).await?;
    let mut all = Reply {
        server_now: 0,
        rows: Vec::with_capacity(rows.len()),
    };
    let mut rest = rows;
    while !rest.is_empty() {
        let (rows, behind) = rest.split_at(fitting(rest, room(session.max_packet)));
        rest = behind;
        let sent = Moment::now();
        let read = packet::read(rows, session.dialect);
        let seen = session.rows_alone(read).await?;
        let text = seen
            .first()
            .map(|row| row.try_get_unchecked::<Option<String>, _>(0));
        let reply = text
            .transpose()?
            .flatten()
            .and_then(|text| Reply::decode(&text, rows.len()))
            .ok_or_else(|| sqlx::Error::Protocol("a read's reply cannot be decoded".into()))?;
        shared.observe(&reply, sent);
        all.server_now = reply.server_now;
        all.rows.extend(reply.rows);
    }
    Ok(all)
}
