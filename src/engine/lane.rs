//! A lane: one connection that sends one batch after the other.
//!
//! While a packet is in flight, requests queue and leave together with the next one; an idle lane sends at once. There are
//! lanes of three kinds, by what their packets wait for ([`LaneKind`]): those that never wait have all that can be answered at once.
//!
//! One more lane rescues renewals: those whose own lane has not answered by their next date go over its connection. Each of its packets
//! may take half of the time for which its leases can be trusted, so that there is time for one more.
//!
//! A panic does not end a lane: what it was at is in [`Lane::batch`], and is settled, or sent by the next packet.

mod conclude;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::backoff::Backoff;
use super::gather;
use super::group::Group;
use super::link::{Link, Numbered, Sent};
use super::manner::{Manner, PacketWait};
use super::outcome::{Answer, Outcome};
use super::request::Member;
use super::serving::Serving;
use super::settle::{Unsettled, settle};
use super::shared::Shared;
use super::stage::LaneKind;
use super::supervise::survives;
use super::waiting::Limits;
use crate::clock::Moment;
use crate::error::Error;
use crate::mutant::{self, Mutant};
use crate::sql::operation::Operation;
use crate::sql::packet::{Mode, RowOperation};
use crate::sql::row::RowKey;
use crate::sql::server_error::Meaning;
use crate::stripe::StripeSet;
use crate::telemetry;
use crate::timing::{IDLE, IDLE_WAITING, LOCK_WAIT, LOOK_AGAIN};

/// After so many conflicts in a row each batch is halved: one of its operations may be the reason.
const HALVE_AFTER: u32 = 8;

pub(crate) struct Lane {
    shared: Arc<Shared>,
    queues: Serving,
    kind: LaneKind,
    /// It carries the renewals that others have not answered.
    rescues: bool,
    link: Link,
    /// What it is at. Once a packet's reply is there, groups are taken off its end, each as it is answered.
    batch: Vec<Group>,
    connecting: Backoff,
    conflicts: Backoff,
    /// How many packets in a row the server undid by a conflict. A wait for a lock that took too long is none.
    conflicts_in_a_row: u32,
    /// The rows of its batch, which other lanes of the same queue leave alone. Empty for a lane that never waits: its rows are its alone.
    rows: Vec<RowKey>,
    manner: Manner,
}

/// How an attempt to run a batch ended.
enum BatchAttempt {
    /// Each request has its outcome, or was handed to another lane.
    Done,
    /// The outcome is unknown: a settlement has the batch, and finds it out.
    Settling,
    /// Run what is left again, after a pause that the conflict calls for.
    Again,
    Offline(Error),
}

impl Lane {
    pub(crate) fn new(shared: Arc<Shared>, queues: Serving, kind: LaneKind) -> Self {
        queues.own().enter();
        let limit = shared.options.packet_limit;
        let limit = match kind {
            LaneKind::NeverWaits => limit,
            // The server ends a wait for a lock sooner than this, so that the packet's outcome is known.
            LaneKind::WaitsForStripe | LaneKind::WaitsForRow => limit + LOCK_WAIT,
        };
        Self {
            link: Link::new(Arc::clone(&shared), limit),
            shared,
            queues,
            kind,
            rescues: false,
            batch: Vec::new(),
            connecting: Backoff::connecting(),
            conflicts: Backoff::conflict(),
            conflicts_in_a_row: 0,
            rows: Vec::new(),
            manner: Manner::new(kind),
        }
    }

    /// The lane of renewals that others have not answered.
    pub(crate) fn rescuing(shared: Arc<Shared>) -> Self {
        let queues = Serving::alone(Arc::clone(&shared.rescue));
        let mut lane = Self::new(shared, queues, LaneKind::NeverWaits);
        lane.rescues = true;
        lane
    }

    /// Runs until the queue is closed and empty.
    pub(crate) async fn run(mut self) {
        let mut pauses = Backoff::connecting();
        loop {
            if survives("a lane", self.work()).await {
                return;
            }
            self.recover();
            tokio::time::sleep(pauses.delay()).await;
        }
    }

    /// Goes on after a panic: what may have run is settled, and what has not runs again.
    fn recover(&mut self) {
        match self.link.under_way() {
            Some(numbered) => self.settle(numbered),
            None => {
                self.link.give_up_identity();
                let batch = std::mem::take(&mut self.batch);
                self.shared.put(batch, Some(self.kind));
            }
        }
        self.leave_rows();
        self.queues.rest();
    }

    /// It is done with its rows.
    fn leave_rows(&mut self) {
        self.queues.own().leave_rows(&self.rows);
        self.rows.clear();
    }

    async fn work(&mut self) {
        let mut patience = 0;
        loop {
            if self.queues.filling().rows == 0 {
                if !self.wait_for_requests().await {
                    continue;
                }
                // If the last batch answered several requests, more follow at once: let other tasks run first, so that they share this
                // packet.
                gather::gather(&self.queues, patience).await;
            }
            if !self.queues.begin(self.link.is_ready()) {
                // Another lane serves the queue.
                if self.queues.own().is_over() {
                    return;
                }
                continue;
            }
            let opened = self.connect().await;
            let shares = self.shares_its_connection();
            let Some(requests) = self.next_batch(opened.is_ok(), shares) else {
                return;
            };
            self.carry_out(opened).await;
            self.leave_rows();
            if shares {
                self.rest(LOOK_AGAIN).await;
            }
            patience = gather::patience(requests, self.queues.filling().rows);
            gather::gather(&self.queues, patience).await;
        }
    }

    /// Nothing waits: sleeps until something does, or never will. False if it woke for its connection alone, which it closes when it was
    /// idle for long, and gives to whoever needs one.
    async fn wait_for_requests(&mut self) -> bool {
        let idle = match self.kind {
            LaneKind::NeverWaits if !self.rescues => IDLE,
            _ => IDLE_WAITING,
        };
        self.queues.rest();
        tokio::select! {
            biased;
            some = tokio::time::timeout(idle, self.queues.some()) => {
                if some.is_err() {
                    self.link.close();
                }
                some.is_ok()
            }
            () = self.shared.pool.wanted(), if self.link.is_open() => {
                self.link.pass_on();
                false
            }
        }
    }

    /// Connects before it takes a batch, so that requests which come meanwhile go along. The lanes that wait, and the one that rescues,
    /// connect when they send.
    async fn connect(&mut self) -> Result<(), Error> {
        let first = self.kind == LaneKind::NeverWaits && !self.rescues;
        if first && self.queues.filling().rows > 0 {
            self.link.open().await
        } else {
            Ok(())
        }
    }

    /// Whether it waits for rows and connections are short. Then its packet does not block in the server: it skips locked rows, and the
    /// lane looks again after [`LOOK_AGAIN`]. Others use the connection in between.
    fn shares_its_connection(&self) -> bool {
        self.kind == LaneKind::WaitsForRow && self.shared.pool.is_short()
    }

    /// Takes the next batch. How many requests it has; `None` when nothing is under way any more, and nothing will be.
    fn next_batch(&mut self, opened: bool, shares: bool) -> Option<usize> {
        let connected = opened && self.link.is_open();
        let apart = || self.queues.own().is_apart();
        let careful = self.kind == LaneKind::WaitsForStripe && self.shared.is_careful();
        self.manner.next(shares, careful, apart);
        self.batch = self.queues.take(self.limits(), connected)?;
        if self.kind != LaneKind::NeverWaits {
            self.rows = self.batch.iter().flat_map(Group::keys).cloned().collect();
        }
        Some(self.batch.iter().map(|group| group.members.len()).sum())
    }

    fn limits(&self) -> Limits {
        let rows = self.link.rows(self.queues.filling().rows);
        Limits {
            rows: rows.min(self.manner.most()),
            bytes: self.link.room(),
            wait: self.manner.wait(),
        }
    }

    /// Its packet does not get through: requests that it took from other lanes' queues go back there, and over their connections.
    fn part(&mut self) {
        let (shared, own) = (&self.shared, self.queues.own());
        let others = self.batch.extract_if(.., |group| !shared.is_in(group, own));
        let others: Vec<Group> = others.collect();
        shared.put(others, Some(self.kind));
        self.queues.part();
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

    /// Runs the batch until each of its requests has an outcome or has moved elsewhere.
    async fn carry_out(&mut self, mut opened: Result<(), Error>) {
        let mut attempts_undone = 0;
        loop {
            let now = Moment::now();
            if self.kind != LaneKind::NeverWaits || self.link.cause.is_some() {
                // Requests wait in the queues behind a row or a stripe that is held for long, or behind a batch that runs again and again.
                // Those whose time is over are answered there.
                self.queues
                    .expire(now, |key, member| self.too_late(key, member));
            }
            self.drop_expired(now);
            if self.batch.is_empty() {
                if let Err(cause) = &opened {
                    self.shared.unreachable(cause);
                }
                return;
            }
            let attempt = match std::mem::replace(&mut opened, Ok(())) {
                Ok(()) => self.attempt().await,
                Err(cause) => BatchAttempt::Offline(cause),
            };
            attempts_undone += u32::from(matches!(attempt, BatchAttempt::Again));
            if attempts_undone > 1 || matches!(attempt, BatchAttempt::Offline(_)) {
                self.part();
            }
            if !matches!(attempt, BatchAttempt::Offline(_)) {
                self.link.pass_on();
            }
            match attempt {
                BatchAttempt::Done | BatchAttempt::Settling => return,
                BatchAttempt::Again => {
                    let delay = self.conflicts.delay();
                    if self.kind != LaneKind::NeverWaits {
                        // Put it back, so that requests that need other rows or stripes may have their turn first.
                        let batch = std::mem::take(&mut self.batch);
                        self.shared.put(batch, Some(self.kind));
                        self.leave_rows();
                        self.rest(delay).await;
                        return;
                    }
                    if !self.batch.is_empty() {
                        self.rest(delay).await;
                    }
                }
                BatchAttempt::Offline(cause) => {
                    self.link.close();
                    if cause.is_hopeless() {
                        self.fail(&cause);
                        return;
                    }
                    self.shared.unreachable(&cause);
                    self.queues.expire(Moment::now(), |_, _| Err(cause.clone()));
                    self.link.cause = Some(cause);
                    if self.batch.is_empty() {
                        return;
                    }
                    // It wakes in time to tell whoever's time ends during the pause.
                    let ends = self.batch.iter().flat_map(|group| &group.members);
                    let end = ends.map(|member| member.expires.left()).min();
                    let delay = self.connecting.delay();
                    tokio::time::sleep(end.map_or(delay, |end| delay.min(end))).await;
                }
            }
        }
    }

    /// Answers those of the batch that nobody wants any more.
    fn drop_expired(&mut self, now: Moment) {
        let mut expired = Vec::new();
        for group in &mut self.batch {
            let members = group.take_expired(now).into_iter();
            expired.extend(members.map(|member| (group.key.clone(), member)));
        }
        self.batch.retain(|group| !group.members.is_empty());
        for (key, mut member) in expired {
            let answer = self.too_late(&key, &member);
            member.finish(answer);
        }
    }

    fn fail(&mut self, error: &Error) {
        for group in self.batch.drain(..) {
            group.fail(error);
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

    async fn attempt(&mut self) -> BatchAttempt {
        let mode = self.manner.mode();
        let waited = self.manner.stripes(&self.batch);
        if let Some(waited) = waited {
            // The request by whose stripes these were chosen may have expired. They need a stripe that sorts before those waited for:
            // to lock it now would break the order of locking. Put them back.
            let comes_before =
                |group: &mut Group| !group.stripes().without(waited).is_behind(waited);
            let others: Vec<Group> = self.batch.extract_if(.., comes_before).collect();
            self.shared.put(others, Some(self.kind));
        }
        // All packets lock rows in one order.
        self.batch.sort_by(Group::order);
        let rows: Vec<_> = self
            .batch
            .iter()
            .map(|group| group.row(group.is_within(waited)))
            .collect();
        match self.send(&rows, mode).await {
            Sent::Ran { reply, late, sent } => {
                self.shared.reached();
                self.connecting.reset();
                self.conflicts.reset();
                self.conflicts_in_a_row = 0;
                self.note_wait(waited, false);
                self.conclude(waited, reply, late, sent).await;
                BatchAttempt::Done
            }
            Sent::Unknown(numbered) => {
                // It may have waited for so many stripes that its time was over before it had them all.
                self.note_wait(waited, true);
                self.settle(numbered);
                BatchAttempt::Settling
            }
            Sent::RolledBack {
                meaning,
                error,
                locked,
            } => {
                if locked {
                    // The server does not say which row or stripe was locked: it is known only if the packet waited for what one request needs.
                    let known = self.manner.wait() == PacketWait::First || self.batch.len() == 1;
                    for group in &mut self.batch {
                        group.course.locked |= known && self.manner.had(group, waited);
                    }
                    self.note_wait(waited, true);
                }
                self.rolled_back(meaning, error, locked)
            }
            Sent::Offline(error) => BatchAttempt::Offline(error),
        }
    }

    /// The packet has waited, for these stripes if there are any.
    fn note_wait(&mut self, stripes: Option<StripeSet>, in_vain: bool) {
        if in_vain {
            self.manner.waited_in_vain();
        } else {
            self.manner.waited();
        }
        if let (PacketWait::All, Some(stripes)) = (self.manner.wait(), stripes) {
            self.shared.waited_for_all(stripes, in_vain);
        }
    }

    async fn send(&mut self, rows: &[RowOperation], mode: Mode) -> Sent {
        if !self.rescues {
            return self.link.send(rows, mode).await;
        }
        let members = self.batch.iter().flat_map(|group| &group.members);
        let trust = members.map(|member| member.expires.left()).min();
        self.link
            .rescue(rows, mode, trust.unwrap_or_default())
            .await
    }

    /// The server refused the packet and has undone it.
    fn rolled_back(&mut self, meaning: Meaning, error: sqlx::Error, locked: bool) -> BatchAttempt {
        match meaning {
            Meaning::Conflict => {
                telemetry::conflict(&error);
                if !locked && !matches!(self.link.cause, Some(Error::Locked { .. })) {
                    self.conflicts_in_a_row += 1;
                    if self.conflicts_in_a_row >= HALVE_AFTER {
                        // Requests whose time ends are told this error. And one of the batch may be the reason: halve it.
                        self.link.cause = Some(Error::from_sqlx(error));
                        self.halve();
                    }
                }
                BatchAttempt::Again
            }
            Meaning::ReadOnly | Meaning::Gone => BatchAttempt::Offline(Error::from_sqlx(error)),
            Meaning::Refused if self.batch.len() > 1 => {
                // One of them displeases the server: halve until it stands alone.
                self.halve();
                BatchAttempt::Again
            }
            Meaning::Hopeless | Meaning::Refused | Meaning::NumberUsed => {
                self.fail(&Error::from_sqlx(error));
                BatchAttempt::Done
            }
        }
    }

    /// Puts one half of the batch back.
    fn halve(&mut self) {
        let rest = self.batch.split_off(self.manner.halve(self.batch.len()));
        self.shared.put(rest, Some(self.kind));
    }

    /// Hands an unknown outcome to a task of its own, and goes on under a new identity.
    fn settle(&mut self, numbered: Numbered) {
        self.link.give_up_identity();
        let batch = std::mem::take(&mut self.batch);
        if mutant::on(Mutant::BlindRetry) {
            self.shared.put(batch, Some(self.kind));
            return;
        }
        let (renewals, batch): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .enumerate()
            .partition(|(_, group)| matches!(group.operation, Operation::Renew(_)));
        // Token, fence and status guard them: whatever became of these, they may be repeated, and no lease waits for the settlement.
        let renewals = renewals.into_iter().map(|(_, group)| group);
        self.shared.put(renewals, Some(self.kind));
        if !batch.is_empty() {
            let shared = Arc::clone(&self.shared);
            self.shared
                .spawn(settle(shared, Unsettled { numbered, batch }));
        }
        // It has no connection now: other lanes serve their own queues again.
        self.queues.part();
    }
}

impl Drop for Lane {
    /// However it ends, also with its runtime or by a panic: nobody waits for an answer in vain.
    fn drop(&mut self) {
        self.queues.own().leave_rows(&self.rows);
        self.queues.own().leave();
    }
}
