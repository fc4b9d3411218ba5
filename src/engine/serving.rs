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
use super::queue::LaneQueue;
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
enum Hand {
    /// Nobody; whoever comes first.
    Free,
    /// Its own lane, which is at work.
    Own(Work),
    /// Its own lane has left it to those that are at work.
    Left,
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
struct Place {
    hand: Hand,
    /// How many of its rows the last packet had: as many may come again, where the first of them wakes its lane.
    usual: usize,
}

/// Who serves each of the queues that go together.
#[derive(Debug)]
pub(super) struct Floor {
    places: Mutex<Vec<Place>>,
}

impl Floor {
    pub(super) fn new(lanes: usize) -> Arc<Self> {
        let place = Place {
            hand: Hand::Free,
            usual: 0,
        };
        let places = Mutex::new(vec![place; lanes]);
        Arc::new(Self { places })
    }

    fn places(&self) -> MutexGuard<'_, Vec<Place>> {
        // Nothing between lock and unlock leaves it half changed.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queues that a lane may serve.
pub(super) struct Serving {
    floor: Arc<Floor>,
    queues: Vec<Arc<LaneQueue>>,
    /// Which of them is its own.
    own: usize,
}

impl Serving {
    /// A queue whose lanes serve nothing else.
    pub(super) fn alone(queue: Arc<LaneQueue>) -> Self {
        Self {
            floor: Floor::new(1),
            queues: vec![queue],
            own: 0,
        }
    }

    /// One of several queues that go together.
    pub(super) fn one_of(floor: &Arc<Floor>, queues: &[Arc<LaneQueue>], own: usize) -> Self {
        Self {
            floor: Arc::clone(floor),
            queues: queues.to_vec(),
            own,
        }
    }

    /// The lane's own queue.
    pub(super) fn own(&self) -> &LaneQueue {
        &self.queues[self.own]
    }

    /// Whether this lane may take what waits in a queue.
    fn serves(&self, queue: usize, places: &[Place]) -> bool {
        let at_work = matches!(places[self.own].hand, Hand::Own(_));
        match places[queue].hand {
            Hand::Free | Hand::Own(_) | Hand::Returned => queue == self.own,
            Hand::Left => queue != self.own && at_work,
            Hand::Lent(lane) => lane == self.own,
        }
    }

    /// How many rows have something to do, and how many requests have come in all.
    pub(super) fn filling(&self) -> (usize, u64) {
        let places = self.floor.places();
        let queues = self.queues.iter().enumerate();
        let served = queues.filter(|(queue, _)| self.serves(*queue, &places));
        let add = |(rows, arrived), (more, come)| (rows + more, arrived + come);
        served.map(|(_, queue)| queue.filling()).fold((0, 0), add)
    }

    /// Waits until there is something to take in the lane's own queue, or never will be. What was left to others it takes back if that
    /// does not come about.
    pub(super) async fn some(&self) {
        let may = || self.serves(self.own, &self.floor.places());
        let some = self.own().some(may);
        let is_left = || self.floor.places()[self.own].hand == Hand::Left;
        if !is_left() {
            some.await;
        } else if tokio::time::timeout(LEFT, some).await.is_err() {
            // Nothing of what is left is in a packet.
            let mut places = self.floor.places();
            if places[self.own].hand == Hand::Left {
                places[self.own].hand = Hand::Returned;
            }
        }
    }

    /// Goes to work, unless another lane serves the own queue, or one that is at work will have room for what waits there. `connected`: the lane
    /// has a connection.
    pub(super) fn begin(&mut self, connected: bool) -> bool {
        let mut places = self.floor.places();
        match places[self.own].hand {
            Hand::Free if self.is_left(&places, connected) => places[self.own].hand = Hand::Left,
            Hand::Free | Hand::Returned => {
                // Whoever is not connected either waits for this one.
                let room = if connected { 0 } else { TOGETHER };
                places[self.own].hand = Hand::Own(Work { room, connected });
            }
            // It may have lost its connection since.
            Hand::Own(work) => {
                places[self.own].hand = Hand::Own(Work { connected, ..work });
            }
            Hand::Left | Hand::Lent(_) => {}
        }
        matches!(places[self.own].hand, Hand::Own(_))
    }

    /// Whether a lane that is at work will have room for what waits in the own queue. Who has a connection does not wait for one who has none.
    fn is_left(&self, places: &[Place], connected: bool) -> bool {
        let waiting = self.own().filling().0.max(places[self.own].usual);
        places.iter().any(|place| match place.hand {
            Hand::Own(work) => waiting <= work.room && (work.connected || !connected),
            _ => false,
        })
    }

    /// The next batch of a lane that is at work; `None` when nothing is under way any more, and nothing will be.
    pub(super) fn take(&mut self, limits: Limits, connected: bool) -> Option<Vec<Group>> {
        let mut batch = self.own().take(limits)?;
        let mut places = self.floor.places();
        places[self.own].usual = batch.len();
        let mut bytes: usize = batch.iter().map(Group::weight).sum();
        let most = if connected {
            limits.rows.min(TOGETHER)
        } else {
            0
        };
        for (other, queue) in self.queues.iter().enumerate() {
            let served = self.serves(other, &places);
            if other == self.own || !(served || places[other].hand == Hand::Free) {
                continue;
            }
            let room = Limits {
                rows: most.saturating_sub(batch.len()),
                bytes: limits.bytes.saturating_sub(bytes),
                ..limits
            };
            let (rows, _) = queue.filling();
            let usual = rows.max(places[other].usual);
            if rows > 0 && usual <= room.rows && room.bytes > 0 {
                let mut more = queue.take(room).unwrap_or_default();
                // One id of two counters: the second finds it used, in a packet of its own.
                let again = |group: &mut Group| {
                    group.operation.once().is_some()
                        && batch.iter().any(|other| other.key == group.key)
                };
                queue.put_back(more.extract_if(.., again));
                bytes += more.iter().map(Group::weight).sum::<usize>();
                places[other].usual = more.len();
                batch.extend(more);
                places[other].hand = Hand::Lent(self.own);
            } else if served {
                give_back(&mut places[other], queue);
            }
        }
        let room = match limits.bytes.saturating_sub(bytes) {
            0 => 0,
            _ => most.saturating_sub(batch.len()),
        };
        places[self.own].hand = Hand::Own(Work { room, connected });
        Some(batch)
    }

    /// Its packet does not get through: each lane serves its own queue, into which what was in the packet has been put back.
    pub(super) fn part(&mut self) {
        let mut places = self.floor.places();
        let work = Work {
            room: 0,
            connected: false,
        };
        if matches!(places[self.own].hand, Hand::Own(_)) {
            places[self.own].hand = Hand::Own(work);
        }
        for (other, queue) in self.queues.iter().enumerate() {
            if other != self.own && self.serves(other, &places) {
                give_back(&mut places[other], queue);
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
            let places = self.floor.places();
            let queues = self.queues.iter().enumerate();
            let served = queues.filter(|(queue, _)| self.serves(*queue, &places));
            served.map(|(_, queue)| queue).collect::<Vec<_>>()
        };
        for queue in served {
            queue.expire(now, &answer);
        }
    }

    /// Nothing waits: whoever has something first takes what the others have.
    pub(super) fn rest(&mut self) {
        let mut places = self.floor.places();
        if !matches!(places[self.own].hand, Hand::Own(_)) {
            return;
        }
        places[self.own].hand = Hand::Free;
        for (place, queue) in places.iter_mut().zip(&self.queues) {
            let ends = match place.hand {
                Hand::Lent(lane) => lane == self.own,
                // Its lane decides anew.
                Hand::Left => true,
                Hand::Free | Hand::Own(_) | Hand::Returned => false,
            };
            if ends {
                place.hand = Hand::Free;
                queue.wake();
            }
        }
    }
}

/// What waits in a queue is for its own lane.
fn give_back(place: &mut Place, queue: &LaneQueue) {
    place.hand = match queue.filling() {
        (0, _) => Hand::Free,
        _ => Hand::Returned,
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
