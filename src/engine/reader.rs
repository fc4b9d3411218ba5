//! Reads rows without a lock: counters' values, and locks that somebody waits for.
//!
//! All reads that come while one is in flight leave together with the next. What people ask may take long, and has a reader of its own.

use std::sync::Arc;

use sqlx::Row;
use sqlx::mysql::MySqlRow;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::backoff::Backoff;
use super::gather::MAX_ROWS;
use super::link::room;
use super::patience::{Age, ReaderPatience};
use super::pool::Connection;
use super::shared::Shared;
use crate::clock::Moment;
use crate::error::Error;
use crate::sql::operation::{Operation, Touch};
use crate::sql::packet::{self, RowOperation, StripeUse};
use crate::sql::reply::{Reply, RowState};
use crate::sql::row::RowKey;
use crate::sql::server_error::{Meaning, code_of};
use crate::timing::IDLE_WAITING;

/// Rows that somebody wants to see.
pub(crate) struct RowRead {
    pub(crate) keys: Vec<RowKey>,
    /// Until when somebody waits for it.
    pub(crate) end: Moment,
    pub(crate) reply: oneshot::Sender<Result<Vec<Option<RowState>>, Error>>,
}

/// Work for the reader.
pub(crate) enum Reading {
    Rows(RowRead),
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
            Self::Rows(look) => !look.reply.is_closed(),
            Self::Query { reply, .. } => !reply.is_closed(),
        }
    }
}

/// Who asks a reader.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker {
    /// Those who wait for locks, and whoever reads a counter: they are answered at once.
    Program,
    /// People: what they ask may take its time, and nobody asks for long.
    People,
}

/// Reads until all who could ask are gone.
pub(crate) async fn read(
    shared: Arc<Shared>,
    asker: Asker,
    readings: Arc<Mutex<mpsc::UnboundedReceiver<Reading>>>,
) {
    let mut readings = readings.lock().await;
    let mut reader = Reader::new(shared, asker);
    // Its connection is closed when nobody has asked for so long.
    let idle = match asker {
        Asker::Program => None,
        Asker::People => Some(IDLE_WAITING),
    };
    let mut next = None;
    loop {
        reader.pass_on();
        let reading = match next.take() {
            Some(reading) => Some(reading),
            None => tokio::select! {
                biased;
                reading = readings.recv() => reading,
                () = reader.shared.pool.wanted(), if reader.session.is_some() => continue,
                () = tokio::time::sleep(idle.unwrap_or_default()), if idle.is_some() && reader.session.is_some() => {
                    reader.session = None;
                    continue;
                }
            },
        };
        match reading {
            None => return,
            Some(reading) if !reading.is_awaited() => {}
            Some(Reading::Query { sql, end, reply }) => {
                let result = reader.show(&sql, end).await;
                // Who asked may have gone away.
                drop(reply.send(result.map_err(Error::from_sqlx)));
            }
            Some(Reading::Rows(look)) => {
                let mut rows = look.keys.len();
                let mut batch = vec![look];
                while rows < MAX_ROWS
                    && let Ok(reading) = readings.try_recv()
                {
                    match reading {
                        reading if !reading.is_awaited() => {}
                        Reading::Rows(look) => {
                            rows += look.keys.len();
                            batch.push(look);
                        }
                        query @ Reading::Query { .. } => {
                            next = Some(query);
                            break;
                        }
                    }
                }
                reader.answer(batch).await;
            }
        }
    }
}

/// Whether a read that failed may do better on a fresh connection.
fn may_heal(error: &sqlx::Error) -> bool {
    match code_of(error).map(Meaning::of) {
        None => true,
        Some(meaning) => matches!(meaning, Meaning::Conflict | Meaning::Gone),
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
}

/// A connection that is read from, and what comes of it.
struct Reader {
    shared: Arc<Shared>,
    session: Option<Connection>,
    patience: ReaderPatience,
    age: Age,
}

impl Reader {
    fn new(shared: Arc<Shared>, asker: Asker) -> Self {
        let limit = shared.options.packet_limit;
        let patience = match asker {
            Asker::Program => ReaderPatience::quick(limit),
            Asker::People => ReaderPatience::unhurried(limit),
        };
        Self {
            shared,
            session: None,
            patience,
            age: Age::Fresh,
        }
    }

    /// Gives the connection to the first who waits for one.
    fn pass_on(&mut self) {
        let session = self.session.take();
        self.session = session.and_then(|session| self.shared.pool.pass_on(session));
    }

    /// The connection, opened if there is none.
    async fn connected(&mut self) -> Result<&mut Connection, sqlx::Error> {
        match &mut self.session {
            Some(session) => Ok(session),
            none => {
                let limit = self.shared.options.packet_limit;
                let opened = self.shared.pool.get(limit).await?;
                self.age = match opened.is_passed_on {
                    true => Age::Open,
                    false => Age::Fresh,
                };
                Ok(none.insert(opened))
            }
        }
    }

    /// All rows of a statement.
    async fn rows(&mut self, sql: String) -> Result<Vec<MySqlRow>, sqlx::Error> {
        self.connected().await?;
        let asked = Moment::now();
        // There may be no other connection.
        let limit = match self.shared.pool.is_short() {
            true => self.shared.options.packet_limit,
            false => self.patience.limit(self.age, asked),
        };
        let session = self.connected().await?;
        session.limit = limit;
        let rows = session.rows_alone(sql).await;
        let now = Moment::now();
        self.patience.waited(now.since(asked), now);
        if rows.is_ok() {
            self.age = Age::Open;
        }
        rows
    }

    /// Closes the connection that failed; pauses and says yes if another attempt may do better.
    async fn may_try_again(&mut self, healing: &mut Healing, error: &sqlx::Error) -> bool {
        // A connection that was open may have been dead for long: that costs no pause.
        let was_connected = self.session.take().is_some();
        let was_open = was_connected && self.age == Age::Open;
        let is_away = !was_connected || code_of(error).is_none();
        if may_heal(error) && !was_open && is_away {
            self.shared.unreachable(error);
        }
        if !may_heal(error) || healing.end.has_passed() {
            return false;
        }
        if !was_open {
            let pause = healing.backoff.delay().min(healing.end.left());
            tokio::time::sleep(pause).await;
        }
        true
    }

    async fn show(&mut self, sql: &str, end: Moment) -> Result<Vec<MySqlRow>, sqlx::Error> {
        let mut healing = Healing::new(end);
        loop {
            match self.rows(sql.to_owned()).await {
                Err(error) if self.may_try_again(&mut healing, &error).await => {}
                result => {
                    if result.is_ok() {
                        self.shared.reached();
                    }
                    return result;
                }
            }
        }
    }

    async fn answer(&mut self, mut batch: Vec<RowRead>) {
        let last = batch.iter().map(|look| look.end).max();
        let mut healing = Healing::new(last.unwrap_or_else(Moment::now));
        while !batch.is_empty() {
            let keys = batch.iter().flat_map(|look| &look.keys);
            let rows: Vec<RowOperation> = keys
                .map(|key| RowOperation {
                    key: key.clone(),
                    operation: Operation::Touch(Touch),
                    create: false,
                    stripes: StripeUse::None,
                    group: 0,
                })
                .collect();
            match self.states(&rows).await {
                Ok(seen) => {
                    self.shared.reached();
                    let mut states = seen.into_iter();
                    for look in batch {
                        let seen = states.by_ref().take(look.keys.len()).collect();
                        // Who asked may have gone away.
                        drop(look.reply.send(Ok(seen)));
                    }
                    return;
                }
                Err(error) => {
                    let again = self.may_try_again(&mut healing, &error).await;
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

    /// What rows say; `None` for one that does not exist.
    async fn states(
        &mut self,
        rows: &[RowOperation],
    ) -> Result<Vec<Option<RowState>>, sqlx::Error> {
        let session = self.connected().await?;
        let (room, dialect) = (room(session.max_packet), session.dialect);
        let mut all = Vec::with_capacity(rows.len());
        let mut rest = rows;
        while !rest.is_empty() {
            let (rows, behind) = rest.split_at(fitting(rest, room));
            rest = behind;
            let sent = Moment::now();
            let read = packet::read(rows, dialect);
            let seen = self.rows(read).await?;
            let text = seen
                .first()
                .map(|row| row.try_get_unchecked::<Option<String>, _>(0));
            let reply = text
                .transpose()?
                .flatten()
                .and_then(|text| Reply::decode(&text, rows.len()))
                .ok_or_else(|| sqlx::Error::Protocol("a read's reply cannot be decoded".into()))?;
            self.shared.observe(&reply, sent);
            all.extend(reply.rows);
        }
        Ok(all)
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
