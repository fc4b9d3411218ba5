//! Which lane serves which queue: its own, and as long as there is little to do those of the others.
//!
//! A packet costs the server about the same whether it has two rows or twenty. So few requests go together in one packet at a time, whatever
//! their lanes are; where there are many, each lane sends its own, and the server works on several at once. With 50 clients of 8 tasks
//! each on MySQL 9.7.4 that is twice as many locks a second (docs/records/performance.md).
//!
//! A queue is served by one lane at a time: so a row is in one packet of its client at most.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::group::Group;
use super::outcome::Answer;
use super::queue::{Filling, LaneQueue};
use super::request::Member;
use super::waiting::Limits;
use crate::clock::Moment;
use crate::error::Error;
use crate::sql::row::RowKey;
use crate::timing::LEFT;

/// So many rows go in one packet, those in flight among them. By measurement: one lane has at least what two have up to 32 tasks on both
/// servers, and less with 64.
const TOGETHER: usize = 32;

/// Who serves a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServedBy {
    /// Nobody; whoever comes first.
    Nobody,
    /// Its own lane, which is at work.
    OwnLane(Work),
    /// Its own lane has left it to those that are at work.
    LeftToOthers,
    /// The lane of this queue.
    Lent(usize),
    /// Nobody yet, and its own lane next: another one had no room for it.
    Returned,
}

/// What others may leave to a lane that is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Work {
    /// How many rows more its last packet would have had.
    room: usize,
    /// It has a connection.
    connected: bool,
}

/// A queue, as those see it that may serve it.
#[derive(Clone, Copy, Debug)]
struct QueueState {
    served_by: ServedBy,
    /// How many of its rows the last packet had: as many may come again, where the first of them wakes its lane.
    usual: usize,
}

/// Who serves each of the queues that go together.
#[derive(Debug)]
pub(super) struct QueueStates {
    states: Mutex<Vec<QueueState>>,
}

impl QueueStates {
    pub(super) fn new(lanes: usize) -> Arc<Self> {
        let state = QueueState {
            served_by: ServedBy::Nobody,
            usual: 0,
        };
        let states = Mutex::new(vec![state; lanes]);
        Arc::new(Self { states })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<QueueState>> {
        // Nothing between lock and unlock leaves it half changed.
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queues that a lane may serve.
pub(super) struct Serving {
    states: Arc<QueueStates>,
    queues: Vec<Arc<LaneQueue>>,
    /// Which of them is its own.
    own: usize,
}

impl Serving {
    /// A queue whose lanes serve nothing else.
    pub(super) fn alone(queue: Arc<LaneQueue>) -> Self {
        Self {
            states: QueueStates::new(1),
            queues: vec![queue],
            own: 0,
        }
    }

    /// One of several queues that go together.
    pub(super) fn one_of(states: &Arc<QueueStates>, queues: &[Arc<LaneQueue>], own: usize) -> Self {
        Self {
            states: Arc::clone(states),
            queues: queues.to_vec(),
            own,
        }
    }

    /// The lane's own queue.
    pub(super) fn own(&self) -> &LaneQueue {
        &self.queues[self.own]
    }

    /// Whether this lane may take what waits in a queue.
    fn serves(&self, queue: usize, states: &[QueueState]) -> bool {
        let at_work = matches!(states[self.own].served_by, ServedBy::OwnLane(_));
        match states[queue].served_by {
            ServedBy::Nobody | ServedBy::OwnLane(_) | ServedBy::Returned => queue == self.own,
            ServedBy::LeftToOthers => queue != self.own && at_work,
            ServedBy::Lent(lane) => lane == self.own,
        }
    }

    /// How full the queues are that it serves now.
    pub(super) fn filling(&self) -> Filling {
        let states = self.states.lock();
        let queues = self.queues.iter().enumerate();
        let served = queues.filter(|(queue, _)| self.serves(*queue, &states));
        let add = |sum: Filling, more: Filling| Filling {
            rows: sum.rows + more.rows,
            arrived: sum.arrived + more.arrived,
        };
        let fillings = served.map(|(_, queue)| queue.filling());
        fillings.fold(Filling::default(), add)
    }

    /// Waits until there is something to take in the lane's own queue, or never will be. What was left to others it takes back if that
    /// does not come about.
    pub(super) async fn some(&self) {
        let may = || self.serves(self.own, &self.states.lock());
        let some = self.own().some(may);
        let is_left = || self.states.lock()[self.own].served_by == ServedBy::LeftToOthers;
        if !is_left() {
            some.await;
        } else if tokio::time::timeout(LEFT, some).await.is_err() {
            // No lane has taken anything of this queue meanwhile: its own lane takes it back.
            let mut states = self.states.lock();
            if states[self.own].served_by == ServedBy::LeftToOthers {
                states[self.own].served_by = ServedBy::Returned;
            }
        }
    }

    /// Goes to work, unless another lane serves the own queue, or one that is at work will have room for what waits there. `connected`: the lane
    /// has a connection.
    pub(super) fn begin(&mut self, connected: bool) -> bool {
        let mut states = self.states.lock();
        match states[self.own].served_by {
            ServedBy::Nobody if self.is_left(&states, connected) => {
                states[self.own].served_by = ServedBy::LeftToOthers
            }
            ServedBy::Nobody | ServedBy::Returned => {
                // It connects first. Lanes that have no connection either leave their requests to it, so that only one connects.
                let room = if connected { 0 } else { TOGETHER };
                states[self.own].served_by = ServedBy::OwnLane(Work { room, connected });
            }
            // It may have lost its connection since.
            ServedBy::OwnLane(work) => {
                states[self.own].served_by = ServedBy::OwnLane(Work { connected, ..work });
            }
            ServedBy::LeftToOthers | ServedBy::Lent(_) => {}
        }
        matches!(states[self.own].served_by, ServedBy::OwnLane(_))
    }

    /// Whether a lane that is at work will have room for what waits in the own queue. Who has a connection does not wait for one who has none.
    fn is_left(&self, states: &[QueueState], connected: bool) -> bool {
        let waiting = self.own().filling().rows.max(states[self.own].usual);
        states.iter().any(|state| match state.served_by {
            ServedBy::OwnLane(work) => waiting <= work.room && (work.connected || !connected),
            _ => false,
        })
    }

    /// The next batch of a lane that is at work; `None` when nothing is under way any more, and nothing will be.
    pub(super) fn take(&mut self, limits: Limits, connected: bool) -> Option<Vec<Group>> {
        let mut batch = self.own().take(limits)?;
        let mut states = self.states.lock();
        states[self.own].usual = batch.len();
        let mut bytes: usize = batch.iter().map(Group::weight).sum();
        let most = if connected {
            limits.rows.min(TOGETHER)
        } else {
            0
        };
        for (other, queue) in self.queues.iter().enumerate() {
            let served = self.serves(other, &states);
            if other == self.own || !(served || states[other].served_by == ServedBy::Nobody) {
                continue;
            }
            let room = Limits {
                rows: most.saturating_sub(batch.len()),
                bytes: limits.bytes.saturating_sub(bytes),
                ..limits
            };
            let rows = queue.filling().rows;
            let usual = rows.max(states[other].usual);
            if rows > 0 && usual <= room.rows && room.bytes > 0 {
                let mut more = queue.take(room).unwrap_or_default();
                // One id for two counters: the other counter's queue may have it too, and a packet has each row once. The second goes
                // with a later packet, and finds the id used.
                let again = |group: &mut Group| {
                    group.operation.once().is_some()
                        && batch.iter().any(|other| other.key == group.key)
                };
                queue.put_back(more.extract_if(.., again));
                bytes += more.iter().map(Group::weight).sum::<usize>();
                states[other].usual = more.len();
                batch.extend(more);
                states[other].served_by = ServedBy::Lent(self.own);
            } else if served {
                give_back(&mut states[other], queue);
            }
        }
        let room = match limits.bytes.saturating_sub(bytes) {
            0 => 0,
            _ => most.saturating_sub(batch.len()),
        };
        states[self.own].served_by = ServedBy::OwnLane(Work { room, connected });
        Some(batch)
    }

    /// Its packet does not get through: each lane serves its own queue, into which what was in the packet has been put back.
    pub(super) fn part(&mut self) {
        let mut states = self.states.lock();
        let work = Work {
            room: 0,
            connected: false,
        };
        if matches!(states[self.own].served_by, ServedBy::OwnLane(_)) {
            states[self.own].served_by = ServedBy::OwnLane(work);
        }
        for (other, queue) in self.queues.iter().enumerate() {
            if other != self.own && self.serves(other, &states) {
                give_back(&mut states[other], queue);
            }
        }
    }

    /// Answers what nobody waits for any longer.
    pub(super) fn expire(
        &self,
        now: Moment,
        answer: impl Fn(&RowKey, &Member) -> Result<Answer, Error>,
    ) {
        let served = {
            let states = self.states.lock();
            let queues = self.queues.iter().enumerate();
            let served = queues.filter(|(queue, _)| self.serves(*queue, &states));
            served.map(|(_, queue)| queue).collect::<Vec<_>>()
        };
        for queue in served {
            queue.expire(now, &answer);
        }
    }

    /// Nothing waits: whoever has something first takes what the others have.
    pub(super) fn rest(&mut self) {
        let mut states = self.states.lock();
        if !matches!(states[self.own].served_by, ServedBy::OwnLane(_)) {
            return;
        }
        states[self.own].served_by = ServedBy::Nobody;
        for (state, queue) in states.iter_mut().zip(&self.queues) {
            let ends = match state.served_by {
                ServedBy::Lent(lane) => lane == self.own,
                // Its lane decides anew.
                ServedBy::LeftToOthers => true,
                ServedBy::Nobody | ServedBy::OwnLane(_) | ServedBy::Returned => false,
            };
            if ends {
                state.served_by = ServedBy::Nobody;
                queue.wake();
            }
        }
    }
}

/// What waits in a queue is for its own lane.
fn give_back(state: &mut QueueState, queue: &LaneQueue) {
    state.served_by = match queue.filling().rows {
        0 => ServedBy::Nobody,
        _ => ServedBy::Returned,
    };
    queue.wake();
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.rest();
    }
}

#[cfg(test)]
mod tests;
