//! A lane's link to the server: its connection, and the identity under which it numbers its batches.
//!
//! Each lane numbers its batches in a row of its own, so that a batch whose reply was lost is neither lost nor doubled: it is
//! settled ([`super::settle`]) while the lane goes on under a fresh identity.

use std::sync::Arc;
use std::time::Duration;

use super::gather::MAX_ROWS;
use super::pool::Connection;
use super::record::Fit;
use super::session::{Failure, no_answer};
use super::shared::Shared;
use crate::clock::Moment;
use crate::error::Error;
use crate::sql::obstacle;
use crate::sql::packet::{self, Batch, Mode, RowOperation};
use crate::sql::reply::Reply;
use crate::sql::row::RowKey;
use crate::sql::server_error::{LOCK_WAIT_TIMEOUT, Meaning, code_of};
use crate::sql::{LANE_TABLE, TABLE};
use crate::telemetry;
use crate::timing::{IDLE, REGISTRATION};
use crate::token::Token;

/// As long as the server has not said what it takes.
const MAX_BYTES: usize = 512 * 1024;
/// A packet of renewals has this much time, however short the trust is that is left.
const SHORTEST: Duration = Duration::from_millis(20);

/// A lane's identity on the server: its row, and how many batches it has had.
struct Registration {
    id: Token,
    number: u64,
    last_used: Moment,
}

/// Which batch of which lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbered {
    pub(super) lane: Token,
    pub(super) number: u64,
    pub(super) sent: Moment,
    /// How many rows it has.
    pub(super) rows: usize,
}

/// What became of a packet.
pub(super) enum Sent {
    Ran {
        reply: Reply,
        /// Its time for grants was over.
        late: bool,
        sent: Moment,
    },
    /// It may have run.
    Unknown(Numbered),
    /// The server refused it and has undone it.
    RolledBack {
        meaning: Meaning,
        error: sqlx::Error,
        /// It waited for a row or a stripe, and somebody held that.
        locked: bool,
    },
    /// There is no connection: the error of the last attempt to make one.
    Offline(Error),
}

pub(super) struct Link {
    shared: Arc<Shared>,
    /// How long a packet may take.
    limit: Duration,
    session: Option<Connection>,
    /// Kept when a connection is closed between two batches; not when a batch's outcome is unknown.
    registration: Option<Registration>,
    /// A packet that was sent, as long as its outcome is unknown or not taken in.
    under_way: Option<Numbered>,
    /// Why nothing goes through, as long as nothing does.
    pub(super) cause: Option<Error>,
    /// The longest packet that the server takes, once it has said so.
    max_packet: Option<usize>,
    /// Connections have TLS, as far as is known.
    encrypted: bool,
    fit: Fit,
}

impl Link {
    pub(super) fn new(shared: Arc<Shared>, limit: Duration) -> Self {
        Self {
            shared,
            limit,
            session: None,
            registration: None,
            under_way: None,
            cause: None,
            max_packet: None,
            encrypted: false,
            fit: Fit::default(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.session.is_some()
    }

    pub(super) fn close(&mut self) {
        self.session = None;
    }

    /// The packet that may have run, and of which its lane has not taken in what became of it.
    pub(super) fn under_way(&self) -> Option<Numbered> {
        self.under_way
    }

    /// What the packet came to has been taken in.
    pub(super) fn has_concluded(&mut self) {
        self.under_way = None;
    }

    /// How many bytes a packet may be estimated at.
    pub(super) fn room(&self) -> usize {
        self.max_packet.map_or(MAX_BYTES, room)
    }

    /// How many rows the next packet may have, where so many wait.
    pub(super) fn rows(&self, waiting: usize) -> usize {
        if self.encrypted {
            self.fit.most(waiting).min(MAX_ROWS)
        } else {
            MAX_ROWS
        }
    }

    /// Somebody else of this client may need the connection.
    pub(super) fn pass_on(&mut self) {
        let session = self.session.take();
        self.session = session.and_then(|session| self.shared.pool.pass_on(session));
    }

    /// Whether a packet can be sent without connecting first.
    pub(super) fn is_ready(&self) -> bool {
        let ready = |session: &Connection| session.idle() <= IDLE;
        self.session.as_ref().is_some_and(ready)
    }

    /// Connects, if that is not so.
    pub(super) async fn open(&mut self) -> Result<(), Error> {
        let opened = self.connect().await;
        if let Err(cause) = &opened {
            self.session = None;
            self.cause = Some(cause.clone());
        }
        opened
    }

    /// Sends a batch as one packet.
    pub(super) async fn send(&mut self, rows: &[RowOperation], mode: Mode) -> Sent {
        if let Err(cause) = self.connect().await {
            return Sent::Offline(cause);
        }
        let (Some(session), Some(registration)) = (&mut self.session, &mut self.registration)
        else {
            return Sent::Offline(Error::Closed);
        };
        let not_after = self.shared.clock.ahead(self.limit);
        let (lane, number) = (registration.id, registration.number + 1);
        let batch = Batch {
            lane,
            number,
            rows,
            mode,
            not_after,
        };
        let packet = packet::write(&batch, session.dialect, &mut session.prepared);
        let bytes = packet.sql.len();
        self.fit.sent(rows.len(), bytes);
        let sent = Moment::now();
        registration.last_used = sent;
        let numbered = Numbered {
            lane,
            number,
            sent,
            rows: rows.len(),
        };
        self.under_way = Some(numbered);
        let unknown = Sent::Unknown(numbered);
        match session.packet(packet).await {
            Ok(text) => {
                registration.number = number;
                if session.spent {
                    self.session = None;
                }
                self.cause = None;
                let took = Moment::now().since(sent);
                self.fit.answered(bytes, took);
                telemetry::batch(rows.len(), took);
                // It was committed; if the text cannot be read, what it did stands in the rows.
                let Some(reply) = text.and_then(|text| Reply::decode(&text, rows.len())) else {
                    return unknown;
                };
                let late = reply.server_now > not_after;
                // Where a row is waited for, the server's time in the reply is that from before the wait, and says little of its clock now.
                // But if the packet was late, it runs again, and a step of the clock must be known by then.
                if mode != Mode::Wait || late {
                    self.shared.observe(&reply, sent);
                }
                Sent::Ran { reply, late, sent }
            }
            Err(Failure::RolledBack {
                meaning: Meaning::NumberUsed,
                error,
            }) => {
                // By this batch itself, if a server took back a commit that its cluster has kept; otherwise the
                // settlement says that it never ran.
                telemetry::unknown_outcome(number, &error, false);
                unknown
            }
            Err(Failure::RolledBack { meaning, error }) => {
                self.under_way = None;
                if meaning == Meaning::Hopeless {
                    // A session keeps the privileges that its account had when it connected: a new one sees those that were granted since.
                    self.session = None;
                }
                let waited = code_of(&error) == Some(LOCK_WAIT_TIMEOUT);
                if waited {
                    self.cause = self.find_obstacle(lane).await;
                }
                let locked = waited && self.cause.is_none();
                if matches!(self.cause, Some(Error::Locked { whole: false, .. })) && waited {
                    // Somebody has locked the lane's own row: register a new one.
                    self.registration = None;
                }
                Sent::RolledBack {
                    meaning,
                    error,
                    locked,
                }
            }
            Err(Failure::Unknown(error)) => {
                telemetry::unknown_outcome(number, &error, self.shared.outage.is_on());
                self.cause = Some(Error::from_sqlx(error));
                unknown
            }
        }
    }

    /// Sends renewals of leases that can be trusted for so long. A packet may take half of that, so that there is time for one more over another
    /// connection; to connect takes its time too.
    pub(super) async fn rescue(
        &mut self,
        rows: &[RowOperation],
        mode: Mode,
        trust: Duration,
    ) -> Sent {
        let trust = trust.max(SHORTEST);
        self.limit = (trust / 2).clamp(SHORTEST, self.shared.options.packet_limit);
        let sent = tokio::time::timeout(trust, self.send(rows, mode)).await;
        sent.unwrap_or_else(|_| {
            // They may be repeated, whatever became of these.
            self.give_up_identity();
            Sent::Offline(Error::from_sqlx(no_answer()))
        })
    }

    /// The outcome of the last batch is found out by somebody else: that needs its row, and its connection is of no more use.
    pub(super) fn give_up_identity(&mut self) {
        self.session = None;
        self.registration = None;
        self.under_way = None;
    }

    /// Reads rows as they are, without a lock; `None` if that failed, and with it the connection.
    pub(super) async fn read(&mut self, rows: &[RowOperation]) -> Option<Reply> {
        let session = self.session.as_mut()?;
        let read = packet::read(rows, session.dialect);
        match session.query(format!("{read};COMMIT")).await {
            Ok(text) => text.and_then(|text| Reply::decode(&text, rows.len())),
            Err(error) => {
                self.session = None;
                self.cause = Some(Error::from_sqlx(error));
                None
            }
        }
    }

    /// Whether the stripe of a row exists, or nobody knows.
    pub(super) async fn has_stripe(&mut self, key: &RowKey) -> bool {
        let Some(session) = self.session.as_mut() else {
            return true;
        };
        match session.query(packet::find_stripe(key.stripe())).await {
            Ok(answer) => answer.is_some(),
            Err(_) => {
                self.session = None;
                true
            }
        }
    }

    /// Looks for what a packet has waited for in vain: `None` if it is a row that its requests name, or a stripe.
    async fn find_obstacle(&mut self, lane: Token) -> Option<Error> {
        let session = self.session.as_mut()?;
        let queries = [
            (LANE_TABLE, obstacle::find_lane(lane)),
            (TABLE, obstacle::find_table()),
        ];
        for (table, query) in queries {
            match session.query(query).await {
                Ok(None) if table == LANE_TABLE => {
                    return Some(Error::Locked {
                        table,
                        whole: false,
                    });
                }
                Ok(_) => {}
                Err(error) => {
                    let waited = code_of(&error) == Some(LOCK_WAIT_TIMEOUT);
                    // The query failed before its COMMIT, and its transaction may be open.
                    self.session = None;
                    return Some(if waited {
                        Error::Locked { table, whole: true }
                    } else {
                        Error::from_sqlx(error)
                    });
                }
            }
        }
        None
    }

    /// Makes the lane's connection and its identity, as far as there is none.
    async fn connect(&mut self) -> Result<(), Error> {
        let idle = |session: &Connection| session.idle() > IDLE;
        if self.session.as_ref().is_some_and(idle) {
            self.session = None;
        }
        let unused = |registration: &Registration| Moment::now().since(registration.last_used);
        if self.registration.as_ref().map(unused) > Some(REGISTRATION) {
            self.registration = None;
        }
        let session = match &mut self.session {
            Some(session) => session,
            none => {
                let given = self.shared.pool.get(self.limit).await;
                none.insert(given.map_err(Error::from_sqlx)?)
            }
        };
        session.limit = self.limit;
        self.max_packet = Some(session.max_packet);
        self.encrypted = session.encrypted;
        if self.registration.is_none() {
            // Acknowledged before the first batch is sent.
            let id = Token::random();
            let packet = packet::register_lane(id, session.dialect);
            if let Err(failure) = session.packet(packet).await {
                let error = failure.into_error();
                let locked = match code_of(&error) {
                    Some(LOCK_WAIT_TIMEOUT) => self.find_obstacle(id).await,
                    _ => None,
                };
                return Err(locked.unwrap_or_else(|| Error::from_sqlx(error)));
            }
            self.registration = Some(Registration {
                id,
                number: 0,
                last_used: Moment::now(),
            });
        }
        Ok(())
    }
}

/// How many bytes a packet may be estimated at on a server that takes `max_packet`.
pub(super) fn room(max_packet: usize) -> usize {
    (max_packet / 2).min(16 * MAX_BYTES)
}
