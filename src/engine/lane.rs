//! A lane: one connection that sends one batch after the other.
//!
//! While a packet is in flight, requests queue and leave together with the next one; an idle lane sends at once. There are
//! lanes of three kinds, by what their packets wait for ([`Waits`]): those that never wait have all that can be answered at once.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::backoff::Backoff;
use super::group::Group;
use super::link::{Link, Numbered, Sent};
use super::outcome::{Answer, Outcome};
use super::queue::LaneQueue;
use super::request::Member;
use super::settle::{Unsettled, settle};
use super::shared::Shared;
use super::stage::{Case, How, Next, Stage, Waits, next};
use super::waiting::Limits;
use crate::clock::Moment;
use crate::error::Error;
use crate::mutant::{self, Mutant};
use crate::sql::packet::Mode;
use crate::sql::reply::{Reply, RowState};
use crate::sql::row::RowKey;
use crate::sql::server_error::Meaning;
use crate::stripe::StripeSet;
use crate::telemetry;
use crate::timing::{IDLE, IDLE_WAITING, LOCK_WAIT, LOOK_AGAIN};

/// The most rows of a batch: the reply stays below 64 KB.
pub(crate) const MAX_ROWS: usize = 1_024;
/// A batch that is undone this often in a row is halved each time: one of its operations may be the reason.
const UNDONE: u32 = 8;

/// After a batch of fewer requests a lane lets others run once before its next.
const FEW: usize = 4;
/// After others: how often in a row it lets others run without a new request. Some microseconds each time.
const PATIENCE: u32 = 8;
/// How often in all, however many come: nobody waits for those who come without an end.
const MOST_PAUSES: u32 = 1_024;

pub(crate) struct Lane {
    shared: Arc<Shared>,
    queue: Arc<LaneQueue>,
    waits: Waits,
    link: Link,
    connecting: Backoff,
    conflicts: Backoff,
    /// How often in a row a packet was undone for another reason than a lock that it waited for.
    undone: u32,
    /// The rows that it is at, if others serve the same queue.
    rows: Vec<RowKey>,
    /// It passes over what it would have to wait for, so that what has become free need not wait for the others.
    glance: bool,
    /// The last packet that waited did so in vain.
    stuck: bool,
}

/// How an attempt to run a batch ended.
enum Attempt {
    Done,
    /// Run these again, after a pause that the conflict calls for.
    Again(Vec<Group>),
    Offline(Vec<Group>, Error),
}

impl Lane {
    pub(crate) fn new(shared: Arc<Shared>, queue: Arc<LaneQueue>, waits: Waits) -> Self {
        queue.enter();
        let limit = shared.options.packet_limit;
        let limit = match waits {
            Waits::Never => limit,
            // The server ends its wait before: an outcome that is known.
            Waits::ForStripe | Waits::ForRow => limit + LOCK_WAIT,
        };
        Self {
            link: Link::new(Arc::clone(&shared), limit),
            shared,
            queue,
            waits,
            connecting: Backoff::connecting(),
            conflicts: Backoff::conflict(),
            undone: 0,
            rows: Vec::new(),
            glance: false,
            stuck: false,
        }
    }

    /// Runs until the queue is closed and empty.
    pub(crate) async fn run(mut self) {
        let idle = match self.waits {
            Waits::Never => IDLE,
            Waits::ForStripe | Waits::ForRow => IDLE_WAITING,
        };
        let mut patience = 0;
        loop {
            if self.queue.filling().0 == 0 {
                tokio::select! {
                    biased;
                    some = tokio::time::timeout(idle, self.queue.some()) => if some.is_err() {
                        self.link.close();
                        continue;
                    },
                    () = self.shared.pool.wanted(), if self.link.is_open() => {
                        self.link.pass_on();
                        continue;
                    }
                }
                // Where there were many, the first one is not alone.
                self.gather(patience).await;
            }
            // Nobody keeps a connection that others need while he waits for a row: he has a look now and then.
            let shares = self.waits == Waits::ForRow && self.shared.pool.is_short();
            let may_wait_long = match self.waits {
                Waits::Never => false,
                Waits::ForStripe => self.stuck,
                Waits::ForRow => true,
            };
            self.glance = shares || (may_wait_long && !self.glance && self.queue.is_apart());
            let Some(batch) = self.queue.take(self.limits()) else {
                break;
            };
            let answered = batch.iter().map(|group| group.members.len()).sum();
            if self.waits != Waits::Never {
                self.rows = batch.iter().flat_map(Group::keys).cloned().collect();
            }
            self.carry_out(batch).await;
            self.queue.leave_rows(&self.rows);
            self.rows.clear();
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

    fn limits(&self) -> Limits {
        let waits = self.waits != Waits::Never && !self.glance;
        Limits {
            rows: MAX_ROWS,
            bytes: self.link.room(),
            waits,
        }
    }

    /// Does nothing for a while; others may have its connection meanwhile.
    async fn rest(&mut self, time: Duration) {
        let mut over = pin!(tokio::time::sleep(time));
        loop {
            tokio::select! {
                () = &mut over => return,
                () = self.shared.pool.wanted(), if self.link.is_open() => self.link.pass_on(),
            }
        }
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

    /// Runs the batch until each of its requests has an outcome or has moved elsewhere.
    async fn carry_out(&mut self, mut batch: Vec<Group>) {
        loop {
            let now = Moment::now();
            if self.waits != Waits::Never || self.link.cause.is_some() {
                // Others wait behind what is held for long, and behind a batch that runs again and again.
                self.queue
                    .expire(now, |key, member| self.too_late(key, member));
            }
            batch.retain_mut(|group| {
                for mut member in group.take_expired(now) {
                    let answer = self.too_late(&group.key, &member);
                    member.finish(answer);
                }
                !group.members.is_empty()
            });
            if batch.is_empty() {
                return;
            }
            let attempt = self.attempt(batch).await;
            if !matches!(attempt, Attempt::Offline(..)) {
                self.link.pass_on();
            }
            match attempt {
                Attempt::Done => return,
                Attempt::Again(groups) => {
                    let delay = self.conflicts.delay();
                    if self.waits != Waits::Never {
                        // What is waited for elsewhere may have its turn first.
                        self.shared.put(groups, Some(self.waits));
                        self.rest(delay).await;
                        return;
                    }
                    batch = groups;
                    self.rest(delay).await;
                }
                Attempt::Offline(groups, cause) => {
                    batch = groups;
                    self.link.close();
                    if cause.is_hopeless() {
                        for group in batch {
                            group.fail(&cause);
                        }
                        return;
                    }
                    telemetry::offline(&cause);
                    self.queue.expire(Moment::now(), |_, _| Err(cause.clone()));
                    self.link.cause = Some(cause);
                    // Whoever's time ends before is told on time.
                    let ends = batch.iter().flat_map(|group| &group.members);
                    let end = ends.map(|member| member.expires.left()).min();
                    let delay = self.connecting.delay();
                    tokio::time::sleep(end.map_or(delay, |end| delay.min(end))).await;
                }
            }
        }
    }

    /// What a request is told whose time is over.
    fn too_late(&self, key: &RowKey, member: &Member) -> Result<Answer, Error> {
        let name = || key.name.to_string();
        match &self.link.cause {
            Some(cause @ Error::Locked { .. }) => Err(cause.clone()),
            Some(cause) if !self.link.is_open() => Err(cause.clone()),
            _ if member.course.is_blocked() && member.request.queues() => Ok(Answer {
                outcome: Outcome::Busy,
                sent: Moment::now(),
                settled: false,
            }),
            _ if member.course.is_blocked() => Err(Error::Busy { name: name() }),
            Some(cause) => Err(cause.clone()),
            None => Err(Error::Overloaded { name: name() }),
        }
    }

    async fn attempt(&mut self, mut batch: Vec<Group>) -> Attempt {
        let mode = match self.waits {
            Waits::ForRow if !self.glance => Mode::Wait,
            _ => Mode::Skip,
        };
        // It waits for what the first needs. The others need the same, or it takes what it can get behind that.
        let first = batch.first().map(Group::stripes).unwrap_or_default();
        let waits = self.waits == Waits::ForStripe && !self.glance;
        if waits {
            // The one with which they came may have gone.
            let comes_before = |group: &mut Group| !group.stripes().without(first).is_behind(first);
            let others: Vec<Group> = batch.extract_if(.., comes_before).collect();
            self.shared.put(others, Some(self.waits));
        }
        // All packets lock rows in one order.
        batch.sort_by(Group::order);
        let rows: Vec<_> = batch
            .iter()
            .map(|group| group.row(waits && group.stripes().without(first).is_empty()))
            .collect();
        match self.link.send(&rows, mode).await {
            Sent::Ran { reply, late, sent } => {
                self.connecting.reset();
                self.conflicts.reset();
                self.undone = 0;
                self.stuck &= self.glance;
                self.conclude(batch, first, reply, late, sent).await;
                Attempt::Done
            }
            Sent::Unknown(numbered) => {
                self.settle(batch, numbered);
                Attempt::Done
            }
            Sent::RolledBack {
                meaning,
                error,
                locked,
            } => {
                for group in &mut batch {
                    // The others were not waited for.
                    group.course.locked |= locked && group.stripes().without(first).is_empty();
                }
                self.stuck |= locked;
                self.rolled_back(batch, meaning, error, locked)
            }
            Sent::Offline(error) => Attempt::Offline(batch, error),
        }
    }

    /// Ends the groups of a batch that was committed, or sends them to where they can end.
    /// `first`: the stripes for which its packet waited, if it did.
    async fn conclude(
        &mut self,
        batch: Vec<Group>,
        first: StripeSet,
        reply: Reply,
        late: bool,
        sent: Moment,
    ) {
        let mut look = Vec::new();
        for (group, row) in batch.into_iter().zip(&reply.rows) {
            let waited =
                self.waits != Waits::ForStripe || group.stripes().without(first).is_empty();
            let how = if self.glance || !waited {
                How::Glance
            } else {
                How::Packet
            };
            self.shared
                .note_crowd(&group, row.as_ref(), reply.server_now);
            let row = row.as_ref();
            let looked = self.proceed(group, row, how, late, sent);
            look.extend(looked);
        }
        if look.is_empty() {
            return;
        }
        // What it is that speaks against them stands in the rows. They have changed nothing, and can run again.
        let rows: Vec<_> = look.iter().map(|group| group.row(false)).collect();
        let Some(reply) = self.link.read(&rows).await else {
            self.shared.put(look, Some(self.waits));
            return;
        };
        for (group, row) in look.into_iter().zip(&reply.rows) {
            let Some(mut group) = self.proceed(group, row.as_ref(), How::Look, late, sent) else {
                continue;
            };
            if self.link.has_stripe(&group.key).await {
                // It was there, and a purge has taken it since.
                group.go(Stage::Create);
                self.shared.put([group], Some(self.waits));
            } else {
                group.fail(&Error::NotMigrated {
                    source: Arc::new(sqlx::Error::RowNotFound),
                });
            }
        }
    }

    /// Does what comes next for a group; gives it back if more must be known.
    fn proceed(
        &self,
        mut group: Group,
        row: Option<&RowState>,
        how: How,
        late: bool,
        sent: Moment,
    ) -> Option<Group> {
        let case = Case {
            operation: &group.operation,
            stage: group.course.stage,
            tries: group.course.tries,
            row,
            how,
            late,
        };
        // At first it may be missing.
        let passed_over = row.is_none() && case.stage != Stage::Try;
        match next(case) {
            Next::Answer(outcome) => self.shared.answer(group, &outcome, sent, false),
            Next::Go(stage) => {
                group.go(stage);
                group.course.passed_over |= passed_over;
                self.shared.put([group], Some(self.waits));
            }
            Next::Retry => {
                group.course.tries += 1;
                group.course.passed_over = true;
                self.shared.put([group], Some(self.waits));
            }
            Next::Look | Next::FindStripe => return Some(group),
        }
        None
    }

    /// The server refused the packet and has undone it.
    fn rolled_back(
        &mut self,
        mut batch: Vec<Group>,
        meaning: Meaning,
        error: sqlx::Error,
        locked: bool,
    ) -> Attempt {
        match meaning {
            Meaning::Conflict => {
                telemetry::conflict(&error);
                if !locked && !matches!(self.link.cause, Some(Error::Locked { .. })) {
                    self.undone += 1;
                    if self.undone >= UNDONE {
                        // Whoever's time ends is told why; and one of them may be the reason.
                        self.link.cause = Some(Error::from_sqlx(error));
                        let rest = batch.split_off(batch.len().div_ceil(2));
                        self.shared.put(rest, Some(self.waits));
                    }
                }
                Attempt::Again(batch)
            }
            Meaning::ReadOnly | Meaning::Gone => Attempt::Offline(batch, Error::from_sqlx(error)),
            Meaning::Refused if batch.len() > 1 => {
                // One of them displeases the server: halve until it stands alone.
                let rest = batch.split_off(batch.len() / 2);
                self.shared.put(rest, Some(self.waits));
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
    fn settle(&mut self, batch: Vec<Group>, numbered: Numbered) {
        self.link.give_up_identity();
        if mutant::on(Mutant::BlindRetry) {
            self.shared.put(batch, Some(self.waits));
            return;
        }
        let unsettled = Unsettled {
            lane: numbered.lane,
            number: numbered.number,
            batch,
            sent: numbered.sent,
        };
        let shared = Arc::clone(&self.shared);
        self.shared.spawn(settle(shared, unsettled));
    }
}

impl Drop for Lane {
    /// However it ends, also with its runtime or by a panic: nobody waits for an answer in vain.
    fn drop(&mut self) {
        self.queue.leave_rows(&self.rows);
        self.queue.leave();
    }
}
