//! The queue of a lane: what waits, shared between those who submit and those who serve.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::group::Group;
use super::outcome::Answer;
use super::pending::Pending;
use super::request::Member;
use super::stage::LaneKind;
use super::waiting::{Limits, Waiting};
use crate::clock::Moment;
use crate::error::Error;
use crate::sql::row::RowKey;

/// The queue of a lane, shared with those who submit to it.
pub(crate) struct LaneQueue {
    waiting: Mutex<Waiting>,
    filled: Notify,
    pending: Arc<Pending>,
}

/// How full a queue is, or several together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filling {
    /// How many rows have something to do.
    pub(crate) rows: usize,
    /// How many requests have come in all.
    pub(crate) arrived: u64,
}

impl LaneQueue {
    pub(super) fn new(kind: LaneKind, pending: Arc<Pending>) -> Self {
        Self {
            waiting: Mutex::new(Waiting::new(kind)),
            filled: Notify::new(),
            pending,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing between lock and unlock leaves the queue half changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn filling(&self) -> Filling {
        let waiting = self.lock();
        Filling {
            rows: waiting.rows(),
            arrived: waiting.arrived(),
        }
    }

    pub(crate) fn push(&self, key: RowKey, member: Member) {
        let mut waiting = self.lock();
        if !waiting.takes(&member) {
            drop(waiting);
            let mut member = member;
            member.finish(Err(Error::Closed));
            return;
        }
        let was_empty = waiting.is_empty();
        waiting.push(key, member);
        drop(waiting);
        if was_empty {
            self.filled.notify_one();
        }
    }

    pub(crate) fn put_back(&self, groups: impl IntoIterator<Item = Group>) {
        self.take_back(groups, Waiting::put_back);
    }

    /// Takes groups apart that have changed nothing: see [`Waiting::join`].
    pub(crate) fn join(&self, groups: impl IntoIterator<Item = Group>, first: bool) {
        self.take_back(groups, |waiting, group| waiting.join(group, first));
    }

    fn take_back(
        &self,
        groups: impl IntoIterator<Item = Group>,
        take: impl Fn(&mut Waiting, Group),
    ) {
        let mut refused = Vec::new();
        {
            let mut waiting = self.lock();
            for group in groups {
                if waiting.is_abandoned() {
                    refused.push(group);
                } else {
                    take(&mut waiting, group);
                }
            }
        }
        // Outside the lock: who is told may submit.
        for group in refused {
            group.fail(&Error::Closed);
        }
        self.filled.notify_one();
    }

    /// Its own lane may take what waits here.
    pub(super) fn wake(&self) {
        self.filled.notify_one();
    }

    /// Whether several packets would have to wait for what waits here.
    pub(crate) fn is_apart(&self) -> bool {
        self.lock().is_apart()
    }

    /// A lane is done with these rows.
    pub(crate) fn leave_rows(&self, rows: &[RowKey]) {
        if rows.is_empty() {
            return;
        }
        self.lock().leave_rows(rows);
        self.filled.notify_one();
    }

    /// A lane serves this queue.
    pub(crate) fn enter(&self) {
        self.lock().enter();
    }

    /// A lane has ended. When it was the last one, whoever waits is told, and so is whoever comes.
    pub(crate) fn leave(&self) {
        let (members, groups) = {
            let mut waiting = self.lock();
            if !waiting.leave() {
                return;
            }
            waiting.abandon()
        };
        // Outside the lock: who is told may submit.
        for mut member in members {
            member.finish(Err(Error::Closed));
        }
        for group in groups {
            group.fail(&Error::Closed);
        }
    }

    /// Waits until there is something to take, and it `may` be taken, or never will be.
    pub(crate) async fn some(&self, may: impl Fn() -> bool) {
        let mut filled = pin!(self.filled.notified());
        let mut over = pin!(self.pending.over().notified());
        loop {
            // From here on a notification is not missed.
            filled.as_mut().enable();
            over.as_mut().enable();
            let is_empty = self.lock().is_empty();
            if (!is_empty && may()) || self.pending.is_over() {
                return;
            }
            tokio::select! {
                () = filled.as_mut() => filled.set(self.filled.notified()),
                () = over.as_mut() => over.set(self.pending.over().notified()),
            }
        }
    }

    /// The next batch, empty if another lane took it; `None` when nothing is under way any more, and nothing will be.
    pub(crate) fn take(&self, limits: Limits) -> Option<Vec<Group>> {
        let mut waiting = self.lock();
        let batch = waiting.take(limits);
        if batch.is_empty() && self.pending.is_over() {
            return None;
        }
        if !waiting.is_empty() {
            // Another lane may serve this queue too.
            self.filled.notify_one();
        }
        Some(batch)
    }

    /// Whether nothing is under way any more, and nothing will be.
    pub(super) fn is_over(&self) -> bool {
        self.pending.is_over()
    }

    /// Answers what nobody waits for any longer.
    pub(crate) fn expire(
        &self,
        now: Moment,
        answer: impl Fn(&RowKey, &Member) -> Result<Answer, Error>,
    ) {
        let expired = self.lock().take_expired(now);
        for (key, mut member) in expired {
            let answer = answer(&key, &member);
            member.finish(answer);
        }
    }

    /// Takes no more requests; those that wait still run.
    pub(crate) fn close(&self) {
        self.lock().close();
        self.filled.notify_waiters();
        self.filled.notify_one();
    }
}
