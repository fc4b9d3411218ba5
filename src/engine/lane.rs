//! A lane: one connection that sends one batch after the other.
//!
//! While a packet is in flight, requests queue and leave together with the next one; an idle lane
//! sends at once. Each lane numbers its batches in a row of its own, so that a batch whose reply was
//! lost is neither lost nor doubled: it is settled ([`super::settle`]) while the lane goes on under a
//! fresh identity.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::backoff::Backoff;
use super::outcome::{Outcome, Verdict, judge};
use super::pool::Connection;
use super::queue::{LaneQueue, Limits};
use super::request::Group;
use super::session::Failure;
use super::settle::{Unsettled, settle};
use crate::clock::Moment;
use crate::error::Error;
use crate::mutant::{self, Mutant};
use crate::sql::obstacle::{self, LANE_TABLE, TABLE};
use crate::sql::operation::{Operation, RowKey};
use crate::sql::packet::{self, Batch, Mode, RowOperation};
use crate::sql::reply::{Reply, RowState};
use crate::sql::server_error::{LOCK_WAIT_TIMEOUT, Meaning, code_of};
use crate::stripe::STRIPES;
use crate::telemetry;
use crate::token::Token;

/// The most rows of a batch: the reply stays below 64 KB.
pub(crate) const MAX_ROWS: usize = 1_024;
/// As long as the server has not said what it takes.
const MAX_BYTES: usize = 512 * 1024;
/// A lane that slept longer registers again, since a purge may have taken its row (after a day).
const REGISTRATION: Duration = Duration::from_secs(3_600);
/// A connection that was idle for longer is made anew: what stands between may have forgotten it.
const IDLE: Duration = Duration::from_secs(60);
/// How long a packet that waits aside may wait for its row: `innodb_lock_wait_timeout` is a second, and
/// the servers look at it once a second.
pub(super) const ROW_WAIT: Duration = Duration::from_secs(3);
/// The pause between two looks at a row that a transaction holds, where connections are shared.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// A stripe that is stuck this often in a row is somebody's who hangs: the batch goes round it.
const STUCK: u32 = 2;
/// A batch that is undone this often in a row is halved each time: one of its operations may be the reason.
const UNDONE: u32 = 8;

/// For how many packets requests queue at a stripe after one that found others at its row: they come again.
const CROWDED: u8 = 64;
/// A row that is locked although its request has queued is one that a transaction of the application holds, or a packet that did not
/// queue: that one is over in a moment. So often it is tried again.
const SKIPPED: u32 = 2;

/// After a batch of fewer requests a lane lets others run once before its next.
const FEW: usize = 4;
/// After others: how often in a row it lets others run without a new request. Some microseconds each time.
const PATIENCE: u32 = 8;
/// How often in all, however many come: nobody waits for those who come without an end.
const MOST_PAUSES: u32 = 1_024;

/// A lane's identity on the server: its row, and how many batches it has had.
struct Registration {
    id: Token,
    number: u64,
    last_used: Moment,
}

pub(crate) struct Lane {
    shared: Arc<Shared>,
    queue: Arc<LaneQueue>,
    mode: Mode,
    session: Option<Connection>,
    /// Kept when a connection is closed between two batches; not when a batch's outcome is unknown.
    registration: Option<Registration>,
    connecting: Backoff,
    conflicts: Backoff,
    /// How often in a row a stripe was waited for in vain.
    stuck: u32,
    /// How often in a row a packet was undone for another reason than a lock that it waited for.
    undone: u32,
    /// By stripe: in how many more packets requests queue.
    crowded: [u8; STRIPES as usize],
    /// Why there is no connection, as long as there is none.
    cause: Option<Error>,
    /// The rows that it is at, if others serve the same queue.
    rows: Vec<RowKey>,
    /// It waits aside, and has a look at all rows first: those that have become free need not wait for the others.
    glance: bool,
    /// The longest packet that the server takes, once it has said so.
    max_packet: Option<usize>,
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
        queue.enter();
        Self {
            shared,
            queue,
            mode,
            session: None,
            registration: None,
            connecting: Backoff::connecting(),
            conflicts: Backoff::conflict(),
            stuck: 0,
            undone: 0,
            crowded: [0; STRIPES as usize],
            cause: None,
            rows: Vec::new(),
            glance: false,
            max_packet: None,
        }
    }

    /// Runs until the queue is closed and empty.
    pub(crate) async fn run(mut self) {
        let mut patience = 0;
        loop {
            if self.queue.filling().0 == 0 {
                tokio::select! {
                    biased;
                    some = tokio::time::timeout(IDLE, self.queue.some()) => if some.is_err() {
                        self.session = None;
                        continue;
                    },
                    () = self.shared.pool.wanted(), if self.session.is_some() => {
                        self.pass_session_on();
                        continue;
                    }
                }
                // Where there were many, the first one is not alone.
                self.gather(patience).await;
            }
            if self.mode == Mode::Wait {
                self.glance = !self.glance && self.queue.filling().0 > 1;
            }
            let Some(batch) = self.queue.take(self.limits()) else {
                break;
            };
            // Nobody keeps a connection that others need while he waits for a row: he has a look now and then.
            let shares = self.mode == Mode::Wait
                && self.shared.pool.is_short()
                && batch.iter().all(|group| !group.create);
            self.glance |= shares;
            let answered = batch.iter().map(|group| group.members.len()).sum();
            if self.mode == Mode::Wait {
                self.rows = batch.iter().flat_map(Group::keys).cloned().collect();
            }
            let batch = if self.glance {
                // What is to be created waits for its stripe, alone.
                let (create, exist): (Vec<Group>, _) =
                    batch.into_iter().partition(|group| group.create);
                self.put_back(create);
                exist
            } else {
                batch
            };
            self.carry_out(batch).await;
            self.leave_rows();
            if shares {
                self.rest(LOOK_AGAIN).await;
            }
            let (left, _) = self.queue.filling();
            patience = match answered {
                // There is nobody to join, and to let others run wakes a thread.
                0 | 1 if left == 0 => 0,
                // With few of them, more pauses would cost more than they save.
                few if few < FEW => 1,
                _ => PATIENCE,
            };
            self.gather(patience).await;
        }
    }

    /// These run again, one for each row.
    fn put_back(&self, groups: Vec<Group>) {
        match self.mode {
            Mode::Wait => self.queue.join(groups, true),
            _ => self.queue.put_back(groups),
        }
    }

    /// Somebody else of this client may need its connection.
    fn pass_session_on(&mut self) {
        let session = self.session.take();
        self.session = session.and_then(|session| self.shared.pool.pass_on(session));
    }

    /// Does nothing for a while; others may have its connection meanwhile.
    async fn rest(&mut self, time: Duration) {
        let mut over = pin!(tokio::time::sleep(time));
        loop {
            tokio::select! {
                () = &mut over => return,
                () = self.shared.pool.wanted(), if self.session.is_some() => {
                    self.pass_session_on();
                }
            }
        }
    }

    /// Another lane may be at its rows now.
    fn leave_rows(&mut self) {
        self.queue.leave_rows(&self.rows);
        self.rows.clear();
    }

    /// Those who were answered may have more to ask: together they fill one batch, where the lane would otherwise
    /// send one half after the other. Lets them run, for as long as they come.
    async fn gather(&self, patience: u32) {
        let (mut rows, mut before) = self.queue.filling();
        let mut idle = 0;
        for _ in 0..MOST_PAUSES {
            if rows >= MAX_ROWS || idle >= patience {
                return;
            }
            tokio::task::yield_now().await;
            let (more, arrived) = self.queue.filling();
            idle = if arrived > before { 0 } else { idle + 1 };
            (rows, before) = (more, arrived);
        }
    }

    fn limits(&self) -> Limits {
        let bytes = self.max_packet.map_or(MAX_BYTES, room);
        let rows = match self.mode {
            Mode::Wait if !self.glance => 1,
            _ => MAX_ROWS,
        };
        Limits { rows, bytes }
    }

    /// Runs the batch until each of its requests has an outcome or has moved elsewhere.
    async fn carry_out(&mut self, mut batch: Vec<Group>) {
        loop {
            let now = Moment::now();
            if self.mode == Mode::Wait || self.cause.is_some() {
                // Others wait behind rows that are held for long, and behind a batch that runs again and again.
                self.queue.expire(now, |key| self.too_late(key));
            }
            batch.retain_mut(|group| {
                for mut member in group.take_expired(now) {
                    member.finish(Err(self.too_late(&group.key)));
                }
                !group.members.is_empty()
            });
            if batch.is_empty() {
                return;
            }
            let attempt = self.attempt(batch).await;
            if !matches!(attempt, Attempt::Offline(..)) {
                self.pass_session_on();
            }
            match attempt {
                Attempt::Done => return,
                Attempt::Again(groups) => {
                    if self.mode == Mode::Wait {
                        // Another row that is waited for aside may have its turn first.
                        self.put_back(groups);
                        let delay = self.conflicts.delay();
                        self.rest(delay).await;
                        return;
                    }
                    batch = groups;
                    let delay = self.conflicts.delay();
                    self.rest(delay).await;
                }
                Attempt::Offline(groups, cause) => {
                    batch = groups;
                    self.session = None;
                    if cause.is_hopeless() {
                        for group in batch {
                            group.fail(&cause);
                        }
                        return;
                    }
                    telemetry::offline(&cause);
                    self.queue.expire(Moment::now(), |_| cause.clone());
                    self.cause = Some(cause);
                    // Whoever's time ends before is told on time.
                    let ends = batch.iter().flat_map(|group| &group.members);
                    let end = ends.map(|member| member.expires.left()).min();
                    let delay = self.connecting.delay();
                    tokio::time::sleep(end.map_or(delay, |end| delay.min(end))).await;
                }
            }
        }
    }

    /// Why a request has not been sent in time.
    fn too_late(&self, key: &RowKey) -> Error {
        match &self.cause {
            Some(cause @ Error::Locked { .. }) => cause.clone(),
            Some(cause) if self.mode == Mode::Skip || self.session.is_none() => cause.clone(),
            // What waits aside is held by a transaction, or its stripe is.
            _ => Error::Busy {
                name: key.name.to_string(),
            },
        }
    }

    async fn attempt(&mut self, batch: Vec<Group>) -> Attempt {
        if let Err(cause) = self.connect().await {
            return Attempt::Offline(batch, cause);
        }
        let (Some(session), Some(registration)) = (&mut self.session, &mut self.registration)
        else {
            return Attempt::Offline(batch, Error::Closed);
        };
        let mut rows: Vec<RowOperation> = batch.iter().map(Group::row).collect();
        let number = registration.number + 1;
        let mode = match self.mode {
            Mode::Wait if self.glance => Mode::Skip,
            // What is to be created needs its stripe.
            Mode::Wait if rows.iter().any(|row| row.create) => Mode::Skip,
            mode => mode,
        };
        if self.mode == Mode::Skip {
            for row in &mut rows {
                row.queue = self.crowded[row.key.stripe().index()] > 0 || row.operation.is_shared();
            }
            for crowded in &mut self.crowded {
                *crowded = crowded.saturating_sub(1);
            }
        }
        let not_after = self.shared.clock.ahead(self.shared.options.packet_limit);
        let packet = packet::write(
            &Batch {
                lane: registration.id,
                number,
                rows: &rows,
                mode,
                not_after,
            },
            session.dialect,
            &mut session.prepared,
        );
        let sent = Moment::now();
        registration.last_used = sent;
        match session.packet(packet).await {
            Ok(text) => {
                registration.number = number;
                if session.spent {
                    self.session = None;
                }
                self.connecting.reset();
                self.conflicts.reset();
                self.stuck = 0;
                self.undone = 0;
                self.cause = None;
                telemetry::batch(rows.len(), Moment::now().since(sent));
                match text.and_then(|text| Reply::decode(&text, rows.len())) {
                    Some(reply) => {
                        // It says when it was decided, which was before a row was waited for.
                        if mode != Mode::Wait {
                            self.shared.observe(&reply, sent);
                        }
                        let ran = if reply.server_now > not_after {
                            Ran::Late
                        } else {
                            Ran::Now
                        };
                        let batch = self.pass_on(batch, &rows, reply);
                        self.conclude(batch, ran, sent).await;
                    }
                    // It was committed; what it did stands in the rows.
                    None => self.settle(batch, sent, number),
                }
                Attempt::Done
            }
            Err(Failure::RolledBack {
                meaning: Meaning::NumberUsed,
                error,
            }) => {
                // By this batch itself, if a server took back a commit that its cluster has kept; otherwise the
                // settlement says that it never ran.
                telemetry::unknown_outcome(number, &error);
                self.settle(batch, sent, number);
                Attempt::Done
            }
            Err(Failure::RolledBack { meaning, error }) => {
                if code_of(&error) == Some(LOCK_WAIT_TIMEOUT) {
                    let lane = registration.id;
                    self.cause = self.find_obstacle(lane).await;
                }
                self.rolled_back(batch, meaning, error)
            }
            Err(Failure::Unknown(error)) => {
                telemetry::unknown_outcome(number, &error);
                self.cause = Some(Error::from_sqlx(error));
                self.settle(batch, sent, number);
                Attempt::Done
            }
        }
    }

    /// An operation that did not queue at its stripe, and whose row the server skipped as locked, has changed nothing: the lane runs it again
    /// before all others, and lets what comes for this stripe queue at once. Gives back the others, each with its row.
    fn pass_on(
        &mut self,
        batch: Vec<Group>,
        operations: &[RowOperation],
        reply: Reply,
    ) -> Vec<(Group, Option<RowState>)> {
        let mut batch: Vec<_> = batch.into_iter().zip(reply.rows).collect();
        if self.mode == Mode::Wait {
            return batch;
        }
        let mut passed = Vec::new();
        for ((group, row), operation) in batch.iter().zip(operations) {
            let others = match row {
                None => !operation.queues() && !group.may_be_missing(),
                Some(_) if group.operation.is_shared() => false,
                // It had been taken to be missing, or somebody else holds the lock.
                Some(row) => {
                    let refused = row.granted.is_none();
                    group.create && !row.is_new(reply.server_now)
                        || refused && matches!(group.operation, Operation::Acquire(_))
                }
            };
            if others {
                self.crowded[group.key.stripe().index()] = CROWDED;
            }
            passed.push(others && row.is_none());
        }
        if passed.contains(&true) {
            let mut passed = passed.into_iter();
            let again = batch.extract_if(.., |_| passed.next() == Some(true));
            let again: Vec<Group> = again.map(|(group, _)| group).collect();
            self.put_back(again);
        }
        batch
    }

    /// Ends the groups of a batch that was committed.
    async fn conclude(&mut self, batch: Vec<(Group, Option<RowState>)>, ran: Ran, sent: Moment) {
        let mut skipped = Vec::new();
        for (group, row) in batch {
            // What is not there and need not be missing was skipped.
            if row.is_none() && (self.glance || !group.may_be_missing()) {
                skipped.push(group);
            } else {
                self.end(group, row.as_ref(), sent, ran);
            }
        }
        if skipped.is_empty() {
            return;
        }
        // What it is that speaks against them stands in the rows. They have changed nothing, and can run again.
        let rows: Vec<RowOperation> = skipped.iter().map(Group::row).collect();
        let Some(reply) = self.read(&rows).await else {
            self.put_back(skipped);
            return;
        };
        for (group, row) in skipped.into_iter().zip(&reply.rows) {
            if row.is_none() && group.create && self.has_stripe(&group.key).await {
                // It was there, and a purge has taken it since.
                self.put_back(vec![group]);
            } else {
                self.end(group, row.as_ref(), sent, ran);
            }
        }
    }

    fn end(&self, mut group: Group, row: Option<&RowState>, sent: Moment, ran: Ran) {
        let again = self.mode == Mode::Skip && ran == Ran::Now && group.skipped < SKIPPED;
        if again
            && row.is_some_and(|row| row.granted.is_none())
            && judge(&group.operation, row).is_open()
        {
            group.skipped += 1;
            self.put_back(vec![group]);
            return;
        }
        let home = (self.mode == Mode::Wait).then_some(&*self.queue);
        self.shared.conclude(group, row, sent, ran, home);
    }

    /// Whether the stripe of a row exists, or nobody knows.
    async fn has_stripe(&mut self, key: &RowKey) -> bool {
        let Some(session) = self.session.as_mut() else {
            return true;
        };
        let answer = session.query(packet::find_stripe(key.stripe())).await;
        answer.is_err() || answer.is_ok_and(|answer| answer.is_some())
    }

    /// Reads rows as they are, without a lock; `None` if that failed, and with it the connection.
    async fn read(&mut self, rows: &[RowOperation]) -> Option<Reply> {
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
                    // Its COMMIT was not reached.
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

    /// The server refused the packet and has undone it.
    fn rolled_back(
        &mut self,
        mut batch: Vec<Group>,
        meaning: Meaning,
        error: sqlx::Error,
    ) -> Attempt {
        match meaning {
            Meaning::Conflict => {
                telemetry::conflict(&error);
                let waited = code_of(&error) == Some(LOCK_WAIT_TIMEOUT);
                if waited && matches!(self.cause, Some(Error::Locked { whole: false, .. })) {
                    // The lane's own row: another one may be free.
                    self.registration = None;
                } else if waited
                    && !matches!(self.cause, Some(Error::Locked { .. }))
                    && self.mode == Mode::Skip
                {
                    self.stuck += 1;
                    if self.stuck >= STUCK {
                        // Somebody holds a stripe and does not let go. Aside, each waits for its own row, or for its own
                        // stripe if the row is missing.
                        self.shared.aside.join(batch, false);
                        return Attempt::Done;
                    }
                }
                if !waited {
                    self.undone += 1;
                    if self.undone >= UNDONE {
                        // Whoever's time ends is told why; and one of them may be the reason.
                        self.cause = Some(Error::from_sqlx(error));
                        let rest = batch.split_off(batch.len().div_ceil(2));
                        self.put_back(rest);
                    }
                }
                Attempt::Again(batch)
            }
            Meaning::ReadOnly | Meaning::Gone => Attempt::Offline(batch, Error::from_sqlx(error)),
            Meaning::Refused if batch.len() > 1 => {
                // One of them displeases the server: halve until it stands alone.
                let rest = batch.split_off(batch.len() / 2);
                self.put_back(rest);
                Attempt::Again(batch)
            }
            Meaning::Hopeless | Meaning::Refused | Meaning::NumberUsed => {
                let error = Error::from_sqlx(error);
                for group in batch {
                    group.fail(&error);
                }
                Attempt::Done
            }
        }
    }

    /// Hands an unknown outcome to a task of its own, and goes on under a new identity.
    fn settle(&mut self, batch: Vec<Group>, sent: Moment, number: u64) {
        self.session = None;
        if mutant::on(Mutant::BlindRetry) {
            self.registration = None;
            self.queue.put_back(batch);
            return;
        }
        if let Some(registration) = self.registration.take() {
            let unsettled = Unsettled {
                lane: registration.id,
                number,
                batch,
                sent,
            };
            let hold = self.shared.hold();
            let shared = Arc::clone(&self.shared);
            self.shared.spawn(async move {
                settle(shared, unsettled).await;
                drop(hold);
            });
        }
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
        let options = &self.shared.options;
        let limit = match self.mode {
            Mode::Skip => options.packet_limit,
            // The server ends its wait for the row before: an outcome that is known.
            Mode::Wait => options.packet_limit + ROW_WAIT,
        };
        let session = match &mut self.session {
            Some(session) => session,
            none => {
                let given = self.shared.pool.get(limit).await;
                none.insert(given.map_err(Error::from_sqlx)?)
            }
        };
        self.max_packet = Some(session.max_packet);
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

/// When a packet ran whose rows are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    Now,
    /// After its time for grants was over.
    Late,
    /// At some time before the rows were read: its reply was lost.
    Before,
}

impl Drop for Lane {
    /// However it ends, also with its runtime or by a panic: nobody waits for an answer in vain.
    fn drop(&mut self) {
        self.leave_rows();
        self.queue.leave();
    }
}

impl Shared {
    /// Ends a group by what its row says, or sends it on to where it can end. `aside`: it ran there.
    pub(super) fn conclude(
        &self,
        mut group: Group,
        row: Option<&RowState>,
        sent: Moment,
        ran: Ran,
        aside: Option<&LaneQueue>,
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
                for member in group.finish(&outcome, sent, ran == Ran::Before) {
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
                match aside {
                    // Its stripe may be the reason why it is there.
                    Some(aside) => aside.join([group], true),
                    None => self.lane_of(&group.key).put_back([group]),
                }
            }
            Verdict::Busy => match &group.operation {
                // Refused by a clock that has been corrected since.
                Operation::Acquire(_) if ran != Ran::Now => {
                    self.lane_of(&group.key).put_back([group])
                }
                // Whoever waits for a lock asks again; it needs no connection for that.
                Operation::Acquire(_) => drop(group.finish(&Outcome::Busy, sent, false)),
                _ => {
                    // It is there now, and is waited for without its stripe.
                    group.create = false;
                    self.aside.join([group], false);
                }
            },
        }
    }
}
