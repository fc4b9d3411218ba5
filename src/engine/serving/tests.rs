use super::*;
use crate::engine::manner::PacketWait;
use crate::engine::request::Request;
use crate::engine::stage::LaneKind;
use crate::name::Name;

const LIMITS: Limits = Limits {
    rows: 1_000,
    bytes: 1 << 20,
    wait: PacketWait::Nothing,
};

struct Lanes {
    queues: Vec<Arc<LaneQueue>>,
    lanes: Vec<Serving>,
    limits: Limits,
    names: usize,
}

impl Lanes {
    fn new() -> Self {
        let queue = |_| Arc::new(LaneQueue::new(LaneKind::NeverWaits, Arc::default()));
        let queues: Vec<_> = (0..2).map(queue).collect();
        let states = QueueStates::new(2);
        let lane = |own| Serving::one_of(&states, &queues, own);
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
        let waiting = lane.filling().rows;
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
        lanes.lanes[1].filling().rows,
        0,
        "it waits, and does not go round"
    );
    assert_eq!(lanes.lanes[0].filling().rows, 1);
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
