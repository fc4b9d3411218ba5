//! Which lane serves which queue: its own, and as long as there is little to do those of the others.
//!
//! A packet costs the server about the same whether it has two rows or twenty. So few requests go together in one packet at a time, whatever
//! their lanes are; where there are many, each lane sends its own, and the server works on several at once. With 50 clients of 8 tasks
//! each on MySQL 9.7.4 that is twice as many locks a second (docs/performance.md).
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
        let work = Work { room: 0, connected };
        match places[self.own].hand {
            Hand::Free if self.is_left(&places, connected) => places[self.own].hand = Hand::Left,
            Hand::Free | Hand::Returned => {
                // Whoever is not connected either waits for this one.
                let room = if connected { 0 } else { TOGETHER };
                places[self.own].hand = Hand::Own(Work { room, ..work });
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
mod tests {
    use super::super::request::Request;
    use super::super::stage::Waits;
    use super::*;
    use crate::name::Name;

    const LIMITS: Limits = Limits {
        rows: 1_000,
        bytes: 1 << 20,
        waits: false,
    };

    struct Lanes {
        queues: Vec<Arc<LaneQueue>>,
        lanes: Vec<Serving>,
        limits: Limits,
        names: usize,
    }

    impl Lanes {
        fn new() -> Self {
            let queue = |_| Arc::new(LaneQueue::new(Waits::Never, Arc::default()));
            let queues: Vec<_> = (0..2).map(queue).collect();
            let floor = Floor::new(2);
            let lane = |own| Serving::one_of(&floor, &queues, own);
            Self {
                lanes: (0..2).map(lane).collect(),
                queues,
                limits: LIMITS,
                names: 0,
            }
        }

        fn push(&mut self, queue: usize, rows: usize) {
            for _ in 0..rows {
                self.names += 1;
                let key = RowKey::counter(Name::new(&format!("n{}", self.names)).expect("a name"));
                let request = Request::Add {
                    delta: 1,
                    window: 0,
                };
                self.queues[queue].push(key, Member::new(request, Moment::now(), None));
            }
        }

        /// How many rows this lane takes; `None` if another one does.
        fn take(&mut self, lane: usize) -> Option<usize> {
            let lane = &mut self.lanes[lane];
            let waiting = lane.filling().0;
            let begins = lane.begin(true);
            let taken = begins.then(|| lane.take(self.limits, true).map_or(0, |batch| batch.len()));
            assert!(
                begins || waiting == 0,
                "a lane does nothing and does not wait"
            );
            taken
        }

        fn rest(&mut self, lane: usize) {
            self.lanes[lane].rest();
        }
    }

    #[test]
    fn few_go_together() {
        let mut lanes = Lanes::new();
        lanes.push(0, 3);
        lanes.push(1, 4);
        assert_eq!(lanes.take(0), Some(7));
        lanes.push(1, 2);
        assert_eq!(lanes.take(1), None, "another lane serves its queue");
        assert_eq!(lanes.take(0), Some(2));
        assert_eq!(lanes.take(0), Some(0));
        lanes.rest(0);
        lanes.push(0, 1);
        lanes.push(1, 1);
        assert_eq!(lanes.take(1), Some(2));
        assert_eq!(lanes.take(0), None);
        lanes.rest(1);
        lanes.push(0, 1);
        assert_eq!(lanes.take(0), Some(1));
    }

    #[test]
    fn few_wait_for_a_lane_that_is_at_work() {
        let mut lanes = Lanes::new();
        lanes.push(0, 1);
        assert_eq!(lanes.take(0), Some(1));
        lanes.push(1, 1);
        assert!(!lanes.lanes[1].begin(true), "it is left to the other lane");
        lanes.rest(1);
        assert_eq!(
            lanes.lanes[1].filling().0,
            0,
            "it waits, and does not go round"
        );
        assert_eq!(lanes.lanes[0].filling().0, 1);
        assert_eq!(lanes.take(0), Some(1));
        lanes.push(1, 1);
        lanes.rest(0);
        // Nobody is at work any more.
        assert_eq!(lanes.take(1), Some(1));
    }

    #[test]
    fn many_go_in_packets_of_their_own() {
        let mut lanes = Lanes::new();
        lanes.push(0, 20);
        lanes.push(1, 20);
        assert_eq!(lanes.take(0), Some(20));
        assert_eq!(lanes.take(1), Some(20));
        lanes.push(0, 20);
        assert_eq!(lanes.take(0), Some(20), "nobody takes what a lane is at");
    }

    #[test]
    fn what_was_few_and_becomes_many_is_given_back() {
        let mut lanes = Lanes::new();
        lanes.push(0, 1);
        lanes.push(1, 1);
        assert_eq!(lanes.take(0), Some(2));
        lanes.push(0, 20);
        lanes.push(1, 20);
        assert_eq!(lanes.take(1), None);
        assert_eq!(lanes.take(0), Some(20));
        assert_eq!(lanes.take(1), Some(20));
    }

    #[test]
    fn a_lane_that_ends_leaves_nothing_behind() {
        let mut lanes = Lanes::new();
        lanes.push(0, 1);
        assert_eq!(lanes.take(0), Some(1));
        lanes.push(1, 1);
        assert!(!lanes.lanes[1].begin(true));
        drop(lanes.lanes.remove(0));
        assert_eq!(lanes.take(0), Some(1));
    }

    #[test]
    fn a_packet_that_is_full_is_left_nothing() {
        let mut lanes = Lanes::new();
        lanes.limits.rows = 4;
        lanes.push(0, 4);
        assert_eq!(lanes.take(0), Some(4));
        lanes.push(0, 4);
        lanes.push(1, 3);
        assert_eq!(lanes.take(1), Some(3));
    }

    #[test]
    fn what_has_no_room_is_served_by_its_own_lane() {
        let mut lanes = Lanes::new();
        lanes.limits.rows = 4;
        lanes.push(0, 1);
        assert_eq!(lanes.take(0), Some(1));
        lanes.push(1, 3);
        assert!(!lanes.lanes[1].begin(true), "there seems to be room");
        lanes.push(0, 3);
        assert_eq!(lanes.take(0), Some(3));
        lanes.push(0, 1);
        assert_eq!(lanes.take(0), Some(1), "it is not taken again");
        assert_eq!(lanes.take(1), Some(3));
    }

    #[test]
    fn nobody_with_a_connection_waits_for_one_who_has_none() {
        let mut lanes = Lanes::new();
        lanes.push(0, 1);
        lanes.push(1, 1);
        assert!(lanes.lanes[0].begin(false));
        assert!(!lanes.lanes[1].begin(false), "one connection is enough");
        let mut lanes = Lanes::new();
        lanes.push(0, 1);
        lanes.push(1, 1);
        assert!(lanes.lanes[0].begin(false));
        assert!(lanes.lanes[1].begin(true));
        // One that failed to connect takes nothing from others.
        assert_eq!(
            lanes.lanes[0].take(LIMITS, false).map(|batch| batch.len()),
            Some(1)
        );
    }

    #[test]
    fn what_does_not_get_through_parts() {
        let mut lanes = Lanes::new();
        lanes.push(0, 1);
        lanes.push(1, 1);
        assert_eq!(lanes.take(0), Some(2));
        lanes.push(1, 1);
        lanes.lanes[0].part();
        assert_eq!(lanes.take(1), Some(1));
    }

    #[tokio::test]
    async fn what_was_left_in_vain_is_taken_back() {
        let mut lanes = Lanes::new();
        lanes.push(0, 1);
        assert_eq!(lanes.take(0), Some(1));
        lanes.push(1, 1);
        assert!(!lanes.lanes[1].begin(true));
        lanes.lanes[1].some().await;
        assert_eq!(lanes.take(1), Some(1));
    }

    #[test]
    fn the_first_of_many_does_not_count_as_few() {
        let mut lanes = Lanes::new();
        lanes.push(1, 30);
        assert_eq!(lanes.take(1), Some(30));
        lanes.rest(1);
        lanes.push(0, 5);
        assert_eq!(lanes.take(0), Some(5));
        lanes.push(1, 1);
        assert_eq!(lanes.take(1), Some(1), "29 more may be about to come");
        lanes.rest(1);
        lanes.push(1, 1);
        assert_eq!(lanes.take(0), Some(1), "they did not");
    }
}
