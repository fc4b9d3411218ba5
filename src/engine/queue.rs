//! What waits for a lane: requests by row, so that a batch has at most one operation per row.

use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::request::{Group, Member};
use crate::clock::Moment;
use crate::error::Error;
use crate::sql::operation::RowKey;

/// How large a batch may become.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) rows: usize,
    /// Estimated bytes of the packet.
    pub(crate) bytes: usize,
}

/// The requests of one row, in the order in which they came.
#[derive(Default)]
struct Mailbox {
    waiting: VecDeque<Member>,
    /// The row stands in one of the two ready lists.
    ready: bool,
}

/// The queue as plain data.
#[derive(Default)]
pub(crate) struct Waiting {
    rows: HashMap<RowKey, Mailbox>,
    /// Rows with a renewal or a release: they go first, so that overload never costs a lease.
    urgent: VecDeque<RowKey>,
    ready: VecDeque<RowKey>,
    /// Groups that ran once and must run again; they go before all.
    again: VecDeque<Group>,
    /// The rows that its lanes are at, if there are several: no two are at one row.
    running: HashSet<RowKey>,
    /// Rows with something to do that another lane is at.
    parked: Vec<RowKey>,
    /// How many requests have come.
    arrived: u64,
    /// It takes no more, but for what gives something back.
    closed: bool,
    /// How many lanes serve it.
    lanes: usize,
    /// Settlements that may still put something back.
    holds: usize,
    /// Its lanes have ended: nothing that is put here is answered any more.
    abandoned: bool,
}

impl Waiting {
    pub(crate) fn push(&mut self, key: RowKey, member: Member) {
        let urgent = member.request.is_urgent();
        self.arrived += 1;
        let mailbox = self.rows.entry(key.clone()).or_default();
        mailbox.waiting.push_back(member);
        if !mailbox.ready {
            mailbox.ready = true;
            if urgent {
                self.urgent.push_back(key);
            } else {
                self.ready.push_back(key);
            }
        }
    }

    /// The next batch: one group per row.
    pub(crate) fn take(&mut self, limits: Limits) -> Vec<Group> {
        let mut batch: Vec<Group> = Vec::new();
        let mut bytes = 0;
        let fits = |batch: &Vec<Group>, bytes: usize| {
            batch.is_empty() || (batch.len() < limits.rows && bytes < limits.bytes)
        };
        // No two groups of a batch may change one row.
        let mut claimed: HashSet<RowKey> = HashSet::new();
        let mut put_off = VecDeque::new();
        while fits(&batch, bytes) {
            let Some(group) = self.again.pop_front() else {
                break;
            };
            if group.keys().all(|key| !claimed.contains(key)) {
                claimed.extend(group.keys().cloned());
                bytes += group.row().weight();
                batch.push(group);
            } else {
                put_off.push_back(group);
            }
        }
        // Rows with more to do come back behind the others.
        let mut later = Vec::new();
        while fits(&batch, bytes) {
            let Some(key) = self.urgent.pop_front().or_else(|| self.ready.pop_front()) else {
                break;
            };
            let Some(mailbox) = self.rows.get_mut(&key) else {
                continue;
            };
            let second = mailbox.waiting.front();
            let second = second.and_then(|member| member.request.second());
            let among = |rows: &HashSet<RowKey>| {
                rows.contains(&key) || second.is_some_and(|second| rows.contains(second))
            };
            if among(&claimed) {
                later.push(key);
                continue;
            }
            if among(&self.running) {
                self.parked.push(key);
                continue;
            }
            mailbox.ready = false;
            let Some(group) = Group::take(key.clone(), &mut mailbox.waiting) else {
                self.rows.remove(&key);
                continue;
            };
            if mailbox.waiting.is_empty() {
                self.rows.remove(&key);
            } else {
                mailbox.ready = true;
                later.push(key);
            }
            claimed.extend(group.keys().cloned());
            bytes += group.row().weight();
            batch.push(group);
        }
        self.ready.extend(later);
        put_off.append(&mut self.again);
        self.again = put_off;
        if self.lanes > 1 {
            self.running.extend(claimed);
        }
        batch
    }

    /// A lane is done with these rows.
    pub(crate) fn leave_rows<'k>(&mut self, rows: impl IntoIterator<Item = &'k RowKey>) {
        for row in rows {
            self.running.remove(row);
        }
        self.ready.extend(self.parked.drain(..));
    }

    /// Takes a group apart that has changed nothing: its requests run together with the others for their row, and before
    /// them if they came first.
    pub(crate) fn join(&mut self, group: Group, first: bool) {
        let mailbox = self.rows.entry(group.key.clone()).or_default();
        let mut members = VecDeque::from(group.members);
        for member in &mut members {
            member.create = group.create;
        }
        if first {
            members.append(&mut mailbox.waiting);
            mailbox.waiting = members;
        } else {
            mailbox.waiting.append(&mut members);
        }
        if !mailbox.ready {
            mailbox.ready = true;
            self.ready.push_back(group.key);
        }
    }

    /// Puts a group back; it runs before what came later.
    pub(crate) fn put_back(&mut self, group: Group) {
        self.again.push_back(group);
    }

    /// Takes out what nobody wants any more.
    fn take_expired(&mut self, now: Moment) -> Vec<(RowKey, Member)> {
        let mut expired = Vec::new();
        let again = std::mem::take(&mut self.again);
        for mut group in again {
            for member in group.take_expired(now) {
                expired.push((group.key.clone(), member));
            }
            if !group.members.is_empty() {
                self.again.push_back(group);
            }
        }
        for (key, mailbox) in &mut self.rows {
            if mailbox.waiting.iter().any(|member| member.expires <= now) {
                let (old, fresh) = mailbox
                    .waiting
                    .drain(..)
                    .partition(|member| member.expires <= now);
                mailbox.waiting = fresh;
                let old: VecDeque<Member> = old;
                expired.extend(old.into_iter().map(|member| (key.clone(), member)));
            }
        }
        expired
    }

    /// How many rows have something to do.
    fn rows(&self) -> usize {
        self.again.len() + self.urgent.len() + self.ready.len()
    }

    /// Nothing will ever come.
    fn is_over(&self) -> bool {
        self.is_empty() && self.closed && self.holds == 0
    }

    fn is_empty(&self) -> bool {
        self.again.is_empty() && self.urgent.is_empty() && self.ready.is_empty()
    }
}

/// The queue of a lane, shared with those who submit to it.
#[derive(Default)]
pub(crate) struct LaneQueue {
    waiting: Mutex<Waiting>,
    filled: Notify,
}

impl LaneQueue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing between lock and unlock leaves the queue half changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many rows have something to do, and how many requests have come in all.
    pub(crate) fn filling(&self) -> (usize, u64) {
        let waiting = self.lock();
        (waiting.rows(), waiting.arrived)
    }

    pub(crate) fn push(&self, key: RowKey, member: Member) {
        let mut waiting = self.lock();
        let taken = !waiting.closed || member.request.is_release();
        if waiting.abandoned || !taken {
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
                if waiting.abandoned {
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
        self.lock().lanes += 1;
    }

    /// A lane has ended. When it was the last one, whoever waits is told, and so is whoever comes.
    pub(crate) fn leave(&self) {
        let last = {
            let mut waiting = self.lock();
            waiting.lanes -= 1;
            waiting.lanes == 0
        };
        if last {
            self.abandon();
        }
    }

    /// A settlement may still put something back: the lanes wait for it before they end.
    pub(crate) fn hold(&self) {
        self.lock().holds += 1;
    }

    pub(crate) fn let_go(&self) {
        self.lock().holds -= 1;
        self.filled.notify_waiters();
        self.filled.notify_one();
    }

    fn abandon(&self) {
        let (rows, again) = {
            let mut waiting = self.lock();
            waiting.closed = true;
            waiting.abandoned = true;
            waiting.urgent.clear();
            waiting.ready.clear();
            waiting.parked.clear();
            (
                std::mem::take(&mut waiting.rows),
                std::mem::take(&mut waiting.again),
            )
        };
        for mut member in rows.into_values().flat_map(|mailbox| mailbox.waiting) {
            member.finish(Err(Error::Closed));
        }
        for group in again {
            group.fail(&Error::Closed);
        }
    }

    /// Waits until there is something to take, or never will be.
    pub(crate) async fn some(&self) {
        let mut filled = pin!(self.filled.notified());
        loop {
            // From here on a notification is not missed.
            filled.as_mut().enable();
            {
                let waiting = self.lock();
                if !waiting.is_empty() || waiting.is_over() {
                    return;
                }
            }
            filled.as_mut().await;
            filled.set(self.filled.notified());
        }
    }

    /// The next batch, empty if another lane took it; `None` when the queue is closed and empty.
    pub(crate) fn take(&self, limits: Limits) -> Option<Vec<Group>> {
        let mut waiting = self.lock();
        let batch = waiting.take(limits);
        if batch.is_empty() && waiting.is_over() {
            return None;
        }
        if !waiting.is_empty() {
            // Another lane may serve this queue too.
            self.filled.notify_one();
        }
        Some(batch)
    }

    /// Fails what nobody wants any more.
    pub(crate) fn expire(&self, now: Moment, error: impl Fn(&RowKey) -> Error) {
        let expired = self.lock().take_expired(now);
        for (key, mut member) in expired {
            member.finish(Err(error(&key)));
        }
    }

    /// Takes no more requests; those that wait still run.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_waiters();
        self.filled.notify_one();
    }
}
