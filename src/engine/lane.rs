//! A lane: one connection that sends one batch after the other.
//!
//! While a packet is in flight, requests queue and leave together with the next one; an idle lane
//! sends at once. Each lane numbers its batches in a row of its own, so that a batch whose reply was
//! lost is neither lost nor doubled: it is settled ([`super::settle`]) while the lane goes on under a
//! fresh identity.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::backoff::Backoff;
use super::outcome::{Verdict, judge};
use super::queue::{LaneQueue, Limits};
use super::request::Group;
use super::session::{Failure, Session};
use super::settle::{Unsettled, settle};
use crate::clock::Moment;
use crate::error::Error;
use crate::sql::operation::Operation;
use crate::sql::packet::{self, Batch, Mode, RowOperation};
use crate::sql::reply::Reply;
use crate::sql::server_error::Meaning;
use crate::sql::session::Commit;
use crate::token::Token;

/// The most rows of a batch: the reply stays below 64 KB.
pub(crate) const MAX_ROWS: usize = 1_024;
/// As long as the server has not said what it takes.
const MAX_BYTES: usize = 512 * 1024;
/// A lane that slept longer registers again, since a purge may have taken its row (after a day).
const REGISTRATION: Duration = Duration::from_secs(3_600);
/// A lane that waits aside closes its connection after this long without work.
const IDLE: Duration = Duration::from_secs(30);

/// A lane's identity on the server: its row, and how many batches it has had.
struct Registration {
    id: Token,
    number: u64,
    last_used: Moment,
}

/// An open session and the lane's row in it.
struct Link {
    session: Session,
    registration: Registration,
}

pub(crate) struct Lane {
    shared: Arc<Shared>,
    queue: Arc<LaneQueue>,
    mode: Mode,
    link: Option<Link>,
    connecting: Backoff,
    conflicts: Backoff,
}

/// How an attempt to run a batch ended.
enum Attempt {
    Done,
    /// Run these again, after a pause that the conflict calls for.
    Again(Vec<Group>),
    /// There is no connection: the error of the last attempt to make one.
    Offline(Vec<Group>, Error),
}

impl Lane {
    pub(crate) fn new(shared: Arc<Shared>, queue: Arc<LaneQueue>, mode: Mode) -> Self {
        Self {
            shared,
            queue,
            mode,
            link: None,
            connecting: Backoff::connecting(),
            conflicts: Backoff::conflict(),
        }
    }

    /// Runs until the queue is closed and empty.
    pub(crate) async fn run(mut self) {
        loop {
            let limits = self.limits();
            let batch = match self.mode {
                Mode::Skip => self.queue.next(limits).await,
                Mode::Wait => match tokio::time::timeout(IDLE, self.queue.next(limits)).await {
                    Ok(batch) => batch,
                    Err(_) => {
                        self.link = None;
                        continue;
                    }
                },
            };
            let Some(batch) = batch else { break };
            self.carry_out(batch).await;
        }
    }

    fn limits(&self) -> Limits {
        let bytes = self.link.as_ref().map_or(MAX_BYTES, |link| {
            (link.session.max_packet / 2).min(16 * MAX_BYTES)
        });
        match self.mode {
            Mode::Skip => Limits {
                rows: MAX_ROWS,
                bytes,
            },
            Mode::Wait => Limits { rows: 1, bytes },
        }
    }

    /// Runs the batch until each of its requests has an outcome or has moved elsewhere.
    async fn carry_out(&mut self, mut batch: Vec<Group>) {
        let mut error: Option<Error> = None;
        loop {
            let now = Moment::now();
            batch.retain_mut(|group| {
                let name = group.key.name.clone();
                let expired = || {
                    error.clone().unwrap_or_else(|| Error::Busy {
                        name: name.to_string(),
                    })
                };
                group.expire(now, expired)
            });
            if batch.is_empty() {
                return;
            }
            match self.attempt(batch).await {
                Attempt::Done => {
                    self.conflicts.reset();
                    return;
                }
                Attempt::Again(groups) => {
                    if self.mode == Mode::Wait {
                        // Another one that waits aside may have its turn first.
                        self.queue.put_back(groups);
                        return;
                    }
                    batch = groups;
                    tokio::time::sleep(self.conflicts.delay()).await;
                }
                Attempt::Offline(groups, cause) => {
                    batch = groups;
                    self.link = None;
                    if cause.is_hopeless() {
                        for group in batch {
                            group.fail(&cause);
                        }
                        return;
                    }
                    tracing::warn!(error = %cause, "no connection for a lane; trying again");
                    self.queue.expire(Moment::now(), &cause);
                    error = Some(cause);
                    tokio::time::sleep(self.connecting.delay()).await;
                }
            }
        }
    }

    async fn attempt(&mut self, batch: Vec<Group>) -> Attempt {
        let (mode, shared) = (self.mode, Arc::clone(&self.shared));
        let link = match self.link().await {
            Ok(link) => link,
            Err(cause) => return Attempt::Offline(batch, cause),
        };
        let rows: Vec<RowOperation> = batch.iter().map(Group::row).collect();
        let number = link.registration.number + 1;
        let packet = packet::write(
            &Batch {
                lane: link.registration.id,
                number,
                rows: &rows,
                mode,
                not_after: shared.clock.ahead(shared.options.packet_limit),
            },
            link.session.dialect,
        );
        let sent = Moment::now();
        let result = link.session.packet(packet.sql, packet.commit).await;
        link.registration.last_used = sent;
        match result {
            Ok(text) => {
                link.registration.number = number;
                if link.session.spent {
                    self.link = None;
                }
                let reply = text.and_then(|text| Reply::decode(&text, rows.len()));
                match reply {
                    Some(reply) => {
                        self.shared.observe(&reply, sent);
                        self.deliver(batch, &reply, sent);
                    }
                    // It was committed; what it did stands in the rows.
                    None => self.settle(batch, sent, number),
                }
                Attempt::Done
            }
            Err(Failure::RolledBack { meaning, error }) => self.rolled_back(batch, meaning, error),
            Err(Failure::Unknown(error)) => {
                tracing::warn!(%error, batch = number, "a batch's outcome is unknown; settling it");
                self.settle(batch, sent, number);
                Attempt::Done
            }
        }
    }

    /// The server refused the packet and has undone it.
    fn rolled_back(
        &mut self,
        mut batch: Vec<Group>,
        meaning: Meaning,
        error: sqlx::Error,
    ) -> Attempt {
        match meaning {
            Meaning::Conflict => {
                tracing::debug!(%error, "conflict; running the batch again");
                Attempt::Again(batch)
            }
            Meaning::NumberUsed => {
                self.link = None;
                Attempt::Again(batch)
            }
            Meaning::ReadOnly | Meaning::Gone => Attempt::Offline(batch, Error::from_sqlx(error)),
            Meaning::Hopeless => {
                let error = Error::from_sqlx(error);
                for group in batch {
                    group.fail(&error);
                }
                Attempt::Done
            }
            Meaning::Refused if batch.len() > 1 => {
                // One of them displeases the server: halve until it stands alone.
                let rest = batch.split_off(batch.len() / 2);
                self.queue.put_back(rest);
                Attempt::Again(batch)
            }
            Meaning::Refused => {
                let error = Error::from_sqlx(error);
                for group in batch {
                    group.fail(&error);
                }
                Attempt::Done
            }
        }
    }

    /// Tells everybody what became of their request.
    fn deliver(&self, batch: Vec<Group>, reply: &Reply, sent: Moment) {
        for (group, row) in batch.into_iter().zip(&reply.rows) {
            self.shared.conclude(group, row.as_ref(), sent);
        }
    }

    /// Hands an unknown outcome to a task of its own, and goes on under a new identity.
    fn settle(&mut self, batch: Vec<Group>, sent: Moment, number: u64) {
        if let Some(link) = self.link.take() {
            let unsettled = Unsettled {
                lane: link.registration.id,
                number,
                batch,
                sent,
            };
            self.shared
                .spawn(settle(Arc::clone(&self.shared), unsettled));
        }
    }

    /// The lane's connection and identity, made if there is none.
    async fn link(&mut self) -> Result<&mut Link, Error> {
        let limit = self.shared.options.packet_limit;
        if let Some(link) = &mut self.link
            && Moment::now().since(link.registration.last_used) > REGISTRATION
        {
            match register(&mut link.session).await {
                Ok(registration) => link.registration = registration,
                Err(_) => self.link = None,
            }
        }
        match &mut self.link {
            Some(_) => {}
            none => {
                let mut session =
                    Session::open(&self.shared.options.connect, Commit::Explicit, limit)
                        .await
                        .map_err(Error::from_sqlx)?;
                let registration = register(&mut session).await.map_err(Error::from_sqlx)?;
                *none = Some(Link {
                    session,
                    registration,
                });
                self.connecting.reset();
            }
        }
        self.link.as_mut().ok_or(Error::Closed)
    }
}

/// Gives a lane its row, acknowledged before the first batch is sent.
async fn register(session: &mut Session) -> Result<Registration, sqlx::Error> {
    let id = Token::random();
    session.query(packet::register_lane(id)).await?;
    Ok(Registration {
        id,
        number: 0,
        last_used: Moment::now(),
    })
}

impl Shared {
    /// Ends a group by what its row says, or sends it on to where it can end.
    pub(super) fn conclude(
        self: &Arc<Self>,
        mut group: Group,
        row: Option<&crate::sql::reply::RowState>,
        sent: Moment,
    ) {
        let verdict = match judge(&group.operation, row) {
            // The counter may be what is missing.
            Verdict::Busy if !group.create && group.operation.second().is_some() => {
                Verdict::Missing
            }
            verdict => verdict,
        };
        match verdict {
            Verdict::Final(outcome) => {
                let key = group.key.clone();
                for member in group.finish(&outcome, sent) {
                    self.lane_of(&key).push(key.clone(), member);
                }
            }
            Verdict::Missing if group.create => {
                // It was created in the same packet, unless its stripe is missing.
                group.fail(&Error::NotMigrated {
                    source: Arc::new(sqlx::Error::RowNotFound),
                });
            }
            Verdict::Missing => {
                group.create = true;
                let lane = self.lane_of(&group.key);
                lane.put_back([group]);
            }
            Verdict::Busy => match &group.operation {
                // Whoever waits for a lock asks again; it needs no connection for that.
                Operation::Acquire(_) => {
                    group.finish(&super::outcome::Outcome::Busy, sent);
                }
                _ => self.aside.put_back([group]),
            },
        }
    }
}
