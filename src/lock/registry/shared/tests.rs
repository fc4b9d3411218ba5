//! What readers of one process decide, without a server.

use std::sync::Weak;

use tokio::sync::oneshot;

use super::*;
use crate::clock::micros;
use crate::lock::registry::turn::Turn;
use crate::name::Name;
use crate::sql::reply::{ACTIVE, FREE, SHARED};
use crate::sql::row::RowKey;
use crate::sql::wish::GivesWay;
use crate::token::Token;

type Answer = oneshot::Receiver<Result<Option<Turn>, Error>>;

fn terms() -> Terms {
    Terms {
        ttl: Duration::from_secs(3_600),
        auto_renew: true,
        passes: true,
        hold_at_least: Duration::ZERO,
        max_hold: None,
        linger: Duration::ZERO,
        description: Arc::from(""),
        owner: None,
    }
}

fn apart() -> Terms {
    Terms {
        passes: false,
        ..terms()
    }
}

fn waiter(id: u64, terms: Terms, once: bool) -> (Waiter, Answer) {
    let (reply, answer) = oneshot::channel();
    let waiter = Waiter {
        id,
        terms,
        once,
        asks: false,
        until: None,
        reply,
    };
    (waiter, answer)
}

fn lease(slot: u32, terms: Terms) -> Arc<Lease> {
    let found = (Moment::now(), micros(terms.ttl), 0);
    let key = RowKey::shared(Name::new("l").expect("a name"), slot);
    let grant = (Token::random(), 100);
    Arc::new(Lease::new(Weak::new(), key, grant, terms, found, false))
}

fn row(status: u8, remaining: i64) -> RowState {
    RowState {
        at: 1_000_000_000,
        granted: false,
        status,
        mine: false,
        fence: 1,
        remaining,
        previous: 0,
        count: 0,
        wanted: 0,
        client: 0,
    }
}

struct Rig {
    readers: Readers,
    actions: Vec<Action>,
    now: Moment,
}

impl Rig {
    fn new() -> Self {
        Self {
            readers: Readers::new(7),
            actions: Vec::new(),
            now: Moment::now(),
        }
    }

    fn enter(&mut self, id: u64, terms: Terms, once: bool) -> Answer {
        let (waiter, answer) = waiter(id, terms, once);
        self.readers.enter(waiter, self.now, &mut self.actions);
        answer
    }

    /// The slot that is asked for, if one is.
    fn asks(&mut self) -> Option<u32> {
        let mut asks = self.actions.drain(..).filter_map(|action| match action {
            Action::Ask(question) => Some(question.slot),
            _ => None,
        });
        asks.next_back()
    }

    fn granted(&mut self, lease: &Arc<Lease>) {
        let lease = Arc::clone(lease);
        self.readers.granted(lease, self.now, &mut self.actions);
    }

    fn end(&mut self, lease: &Arc<Lease>) -> TurnOver {
        self.readers.end_turn(lease, &mut self.actions)
    }

    fn releases(&mut self) -> usize {
        let actions = self.actions.drain(..);
        actions
            .filter(|action| matches!(action, Action::Release(_)))
            .count()
    }
}

fn has(answer: &mut Answer) -> bool {
    match answer.try_recv() {
        Ok(Ok(Some(turn))) => {
            turn.disarm();
            true
        }
        _ => false,
    }
}

#[test]
fn tasks_join_and_the_last_one_releases() {
    let mut rig = Rig::new();
    let mut first = rig.enter(1, terms(), false);
    assert_eq!(rig.asks(), Some(7));
    let mut second = rig.enter(2, terms(), false);
    assert_eq!(rig.asks(), None, "one question for all");
    let lease = lease(7, terms());
    rig.granted(&lease);
    assert!(has(&mut first) && has(&mut second));
    assert_eq!(lease.current_turn(), lease.fence, "one token");
    let mut third = rig.enter(3, terms(), true);
    assert!(has(&mut third), "it joins without a statement");
    assert_eq!(rig.asks(), None);
    assert_eq!(rig.end(&lease), TurnOver::Shared);
    assert_eq!(rig.end(&lease), TurnOver::Shared);
    assert_eq!((rig.releases(), lease.has_ended()), (0, false));
    assert_eq!(rig.end(&lease), TurnOver::Over);
    assert_eq!((rig.releases(), lease.has_ended()), (1, true));
    // Nobody joins what is being released.
    let mut late = rig.enter(4, terms(), false);
    assert!(!has(&mut late));
    assert_eq!(rig.asks(), Some(8), "the slot is still taken");
    rig.readers.forget(&lease);
    assert!(!rig.readers.is_done());
}

#[test]
fn who_asks_apart_has_a_slot_of_its_own() {
    let mut rig = Rig::new();
    let mut joint = rig.enter(1, terms(), false);
    rig.asks();
    rig.granted(&lease(7, terms()));
    assert!(has(&mut joint));
    let mut alone = rig.enter(2, apart(), false);
    assert_eq!(rig.asks(), Some(8));
    let mut another = rig.enter(3, apart(), false);
    rig.granted(&lease(8, apart()));
    assert!(has(&mut alone) && !has(&mut another));
    assert_eq!(rig.asks(), Some(9));
    rig.readers.slot_is_taken(1_000, rig.now, &mut rig.actions);
    assert_eq!(rig.asks(), Some(1_000));
}

#[test]
fn nobody_joins_while_a_writer_waits() {
    let mut rig = Rig::new();
    let mut first = rig.enter(1, terms(), false);
    let lease = lease(7, terms());
    rig.granted(&lease);
    assert!(has(&mut first));
    rig.readers.drained(&lease);
    rig.asks();
    let mut second = rig.enter(2, terms(), false);
    assert!(!has(&mut second));
    assert!(rig.asks().is_some());
    let wished = RowState {
        count: 1_000_500_000,
        ..row(SHARED, i64::MAX)
    };
    rig.readers
        .refused(Some(&wished), rig.now, &mut rig.actions);
    assert!(rig.readers.next_look().is_some());
    rig.readers.looked(Some(&wished), rig.now, &mut rig.actions);
    assert_eq!(rig.asks(), None);
    // The readers' turn, and the end of the wish.
    let turn = RowState {
        previous: 999_900_000,
        ..wished
    };
    rig.readers.looked(Some(&turn), rig.now, &mut rig.actions);
    assert!(rig.asks().is_some());
}

#[test]
fn a_writer_is_told_once_that_somebody_waits_and_that_nobody_does() {
    let mut rig = Rig::new();
    let _answer = rig.enter(1, terms(), false);
    let held = row(ACTIVE, 5_000_000);
    rig.readers.refused(Some(&held), rig.now, &mut rig.actions);
    rig.readers.looked(Some(&held), rig.now, &mut rig.actions);
    let told = |action: &Action| matches!(action, Action::AskFor(_));
    assert_eq!(rig.actions.iter().filter(|action| told(action)).count(), 1);
    assert!(rig.readers.leave(1, &mut rig.actions));
    assert!(matches!(rig.actions.last(), Some(Action::NoLongerWant)));
    assert!(rig.readers.is_done());
}

/// Otherwise a writer elsewhere lets somebody go first for a minute who has gone.
#[test]
fn who_went_away_while_he_was_asked_for_takes_his_wish_back() {
    let mut rig = Rig::new();
    let answer = rig.enter(1, terms(), false);
    let held = row(ACTIVE, 5_000_000);
    rig.readers.refused(Some(&held), rig.now, &mut rig.actions);
    rig.readers
        .looked(Some(&row(FREE, -1)), rig.now, &mut rig.actions);
    assert!(rig.asks().is_some());
    drop(answer);
    assert!(rig.readers.leave(1, &mut rig.actions));
    rig.readers.slot_is_taken(9, rig.now, &mut rig.actions);
    assert!(matches!(rig.actions.last(), Some(Action::NoLongerWant)));
    assert!(rig.readers.is_done());
}

/// A packet that waits for the door may do so for a second or two.
#[test]
fn nobody_is_kept_by_a_question_that_queues() {
    let patience = |rig: &mut Rig| {
        let mut asked = rig.actions.drain(..).filter_map(|action| match action {
            Action::Ask(question) => Some(question.patience),
            _ => None,
        });
        asked.next().expect("a question")
    };
    let mut rig = Rig::new();
    let _waits = rig.enter(1, terms(), false);
    let question = patience(&mut rig);
    let _timed = rig.enter(2, terms(), false);
    // It does not queue yet: the answer comes soon, and it does not begin to.
    let stays = rig.readers.time_is_over(2, &mut rig.actions);
    assert!(matches!(stays, Leaving::Stays(_)));
    assert!(!question.begin_to_queue());

    let mut rig = Rig::new();
    let _waits = rig.enter(1, terms(), false);
    assert!(patience(&mut rig).begin_to_queue());
    let mut timed = rig.enter(2, terms(), false);
    let left = rig.readers.time_is_over(2, &mut rig.actions);
    assert!(matches!(left, Leaving::Left { seen: true }));
    assert!(timed.try_recv().is_err());
    let mut once = rig.enter(3, terms(), true);
    assert!(
        matches!(once.try_recv(), Ok(Ok(None))),
        "it is told at once"
    );
    let lease = lease(7, terms());
    rig.granted(&lease);
    assert_eq!(lease.current_turn(), lease.fence, "the first one has it");
}

#[test]
fn a_row_that_is_in_use_is_not_asked_for_again_and_again() {
    let (client, other) = (7 + 256 * 12, 7 + 256 * 13);
    assert_eq!((first_slot(client), first_slot(other)), (7, 7));
    let second = other_slot(client, 7);
    assert_eq!(second, other_slot(client, 7), "the same one each time");
    assert_ne!(second, other_slot(other, 7));
    assert!(second >= 256);
}

/// A wish or a turn that is ahead by more than any ever is was written before the server's clock went back.
#[test]
fn what_lies_far_ahead_is_not_believed() {
    let door = row(SHARED, i64::MAX);
    let admits = |count: i64, previous: i64| {
        let at = door.at;
        let row = RowState {
            count: at + count,
            previous: at + previous,
            ..door
        };
        row.admits_shared(GivesWay::TO_NONE)
    };
    let long_ago = -10_000_000;
    assert!(admits(0, long_ago));
    assert!(!admits(900_000, long_ago), "a wish");
    assert!(admits(3_600_000_000, long_ago), "of another time");
    assert!(admits(900_000, -100_000), "the readers' turn");
    assert!(admits(900_000, 100_000), "which has begun meanwhile");
    assert!(!admits(900_000, 3_600_000_000), "of another time");
}

#[test]
fn who_does_not_wait_has_the_next_answer() {
    let mut rig = Rig::new();
    let mut waits = rig.enter(1, terms(), false);
    rig.readers
        .refused(Some(&row(ACTIVE, 5_000_000)), rig.now, &mut rig.actions);
    rig.asks();
    let mut once = rig.enter(2, terms(), true);
    assert!(rig.asks().is_some(), "it asks now");
    rig.readers
        .refused(Some(&row(ACTIVE, 5_000_000)), rig.now, &mut rig.actions);
    assert!(matches!(once.try_recv(), Ok(Ok(None))));
    assert!(waits.try_recv().is_err(), "it waits on");
    rig.readers
        .looked(Some(&row(FREE, -1)), rig.now, &mut rig.actions);
    assert!(rig.asks().is_some());
    // It goes away, and its grant is given back.
    drop(waits);
    let lease = lease(7, terms());
    rig.granted(&lease);
    assert_eq!(rig.releases(), 1);
    assert!(lease.has_ended());
}
