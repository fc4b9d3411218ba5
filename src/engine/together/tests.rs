//! What a request for several locks is told by its rows, and how it goes on.

use super::course::{TRIES, TRIES_TO_CREATE};
use super::*;
use crate::name::Name;
use crate::sql::operation::{Acquire, Close, Open, Share};
use crate::sql::packet::StripeUse;
use crate::sql::reply::{ACTIVE, FREE, KEPT, SHARED};
use crate::sql::wish::GivesWay;
use crate::token::Token;

const HELD: RowState = RowState {
    at: 5_000_000,
    granted: false,
    status: ACTIVE,
    mine: false,
    fence: 100,
    remaining: 1_000_000,
    previous: 0,
    count: 1,
    wanted: 0,
    client: 0,
};
const IS_FREE: RowState = RowState {
    status: FREE,
    remaining: -10_000_000,
    ..HELD
};
const GRANTED: RowState = RowState {
    granted: true,
    ..IS_FREE
};
const MINE: RowState = RowState { mine: true, ..HELD };

fn rows(count: usize, gives_way: GivesWay) -> Vec<(RowKey, Operation)> {
    let acquire = Acquire {
        token: Token::random(),
        ttl: 30_000_000,
        block: 1,
        level: None,
        gives_way,
        idles: false,
        queues: false,
        description: Arc::from(""),
        held_by: Arc::from(""),
    };
    let key = |number| RowKey::lock(Name::new(&format!("{number}")).expect("a name"));
    let row = |number| (key(number), Operation::Acquire(acquire.clone()));
    (0..count).map(row).collect()
}

fn seen(states: &[Option<RowState>]) -> Seen {
    judge(&rows(states.len(), GivesWay::TO_ALL), states)
}

#[test]
fn all_are_granted_or_none_is() {
    let Seen::Granted(grants) = seen(&[Some(GRANTED), Some(GRANTED)]) else {
        panic!("granted");
    };
    for grant in grants {
        let Outcome::Granted {
            fence, remaining, ..
        } = grant
        else {
            panic!("{grant:?}");
        };
        assert_eq!((fence, remaining), (5_000_001, 30_000_000));
    }
    assert_eq!(seen(&[Some(IS_FREE), Some(HELD)]), Seen::Held);
    assert_eq!(seen(&[None, Some(HELD)]), Seen::Held);
    let kept = RowState {
        status: KEPT,
        ..HELD
    };
    assert_eq!(seen(&[Some(kept), Some(IS_FREE)]), Seen::Held);
}

#[test]
fn what_was_not_had_runs_again() {
    assert_eq!(seen(&[None, Some(IS_FREE), None]), Seen::Open(vec![0, 2]));
    assert_eq!(seen(&[Some(IS_FREE), Some(IS_FREE)]), Seen::Open(vec![]));
    let ended = RowState {
        remaining: 0,
        ..HELD
    };
    assert_eq!(seen(&[Some(ended), Some(IS_FREE)]), Seen::Open(vec![]));
}

/// The reply of a packet was lost that had been granted: the rows tell.
#[test]
fn the_token_tells_what_was_granted() {
    let Seen::Granted(grants) = seen(&[Some(MINE), Some(MINE)]) else {
        panic!("granted");
    };
    assert!(matches!(grants[0], Outcome::Granted { fence: 100, .. }));
    // One was freed by force since: by itself the rest is worth nothing.
    for other in [Some(HELD), Some(IS_FREE), None] {
        assert_eq!(seen(&[other, Some(MINE)]), Seen::Part(vec![(1, 100)]));
    }
    // What has ended since is nobody's.
    let ended = RowState {
        remaining: 0,
        ..MINE
    };
    assert_eq!(seen(&[Some(ended), Some(ended)]), Seen::Open(vec![]));
}

#[test]
fn who_has_not_waited_lets_those_go_first_who_have() {
    let promised = RowState {
        remaining: -1,
        wanted: 1_000_000,
        ..IS_FREE
    };
    let states = [Some(IS_FREE), Some(promised)];
    assert_eq!(judge(&rows(2, GivesWay::TO_ALL), &states), Seen::Held);
    assert_eq!(
        judge(&rows(2, GivesWay::TO_NONE), &states),
        Seen::Open(vec![])
    );
}

#[test]
fn what_is_missing_is_created_by_the_next_packet() {
    let rows = rows(3, GivesWay::TO_ALL);
    let mut course = TogetherCourse::default();
    let none = |row: &RowOperation| !row.create && row.stripes == StripeUse::None;
    assert!(course.rows(&rows, false).iter().all(none));
    assert!(course.guess(vec![1]));
    let created = course.rows(&rows, false);
    assert!(none(&created[0]) && none(&created[2]));
    assert!(created[1].create && created[1].stripes == StripeUse::Try);
    // Others have its stripe again and again: it stands in line there.
    for _ in 0..TRIES_TO_CREATE {
        assert!(course.again(vec![1]));
    }
    let waits = course.rows(&rows, false);
    assert!(none(&waits[0]) && none(&waits[2]));
    assert!(waits[1].create && waits[1].stripes == StripeUse::Wait);
    // However long that takes.
    assert!((0..1_000).all(|_| course.again(vec![1])));
}

#[test]
fn who_passes_over_what_is_free_gives_up_in_the_end() {
    let mut course = TogetherCourse::default();
    assert!(!course.guess(vec![]), "all rows were had");
    assert!((1..TRIES).all(|_| course.again(vec![])));
    assert!(!course.again(vec![]));
}

#[test]
fn each_takes_its_stripe_where_that_is_asked_for() {
    let rows = rows(2, GivesWay::TO_ALL);
    let all = TogetherCourse::default().rows(&rows, true);
    assert!(all.iter().all(|row| row.stripes == StripeUse::Wait));
}

#[test]
fn what_a_packet_had_counts_and_the_rest_was_seen() {
    let found = [Some(IS_FREE), None, None];
    let seen = [Some(HELD), Some(HELD), None];
    assert_eq!(merged(&found, &seen), [Some(IS_FREE), Some(HELD), None]);
    assert_eq!(merged(&found, &[]), found);
}

/// A shared hold and its door: what was granted is told by the shared row, whenever that is read.
#[test]
fn a_shared_row_tells_what_became_of_its_door() {
    let share = Share {
        token: Token::random(),
        ttl: 30_000_000,
        description: Arc::from(""),
        held_by: Arc::from(""),
    };
    let name = || Name::new("l").expect("a name");
    let open = Operation::Open(Open {
        gives_way: GivesWay::TO_ALL,
    });
    let rows = [
        (RowKey::lock(name()), open),
        (RowKey::shared(name(), 7), Operation::Share(share)),
    ];
    let door = RowState {
        status: SHARED,
        remaining: i64::MAX,
        ..HELD
    };
    let free = IS_FREE;
    let told = |fence, remaining, until| Outcome::Granted {
        fence,
        remaining,
        until,
        wanted: 0,
    };
    // By the packet: one token above all before, of the door's and of the row's.
    let ahead = RowState {
        granted: true,
        fence: 9_000_000,
        ..door
    };
    let granted = [Some(ahead), Some(GRANTED)];
    let grant = told(9_000_001, 30_000_000, 35_000_000);
    assert_eq!(judge(&rows, &granted), Seen::Granted(vec![grant]));
    // Read later, when others have come through the door, or a writer wishes.
    let wished = RowState {
        count: 6_000_000,
        ..door
    };
    let grant = told(100, 1_000_000, 6_000_000);
    assert_eq!(
        judge(&rows, &[Some(wished), Some(MINE)]),
        Seen::Granted(vec![grant])
    );
    for (door, row) in [(wished, free), (HELD, free), (door, HELD)] {
        assert_eq!(judge(&rows, &[Some(door), Some(row)]), Seen::Held);
    }
    assert_eq!(judge(&rows, &[Some(door), None]), Seen::Open(vec![1]));
    assert_eq!(judge(&rows, &[Some(door), Some(free)]), Seen::Open(vec![]));
}

#[test]
fn a_door_that_is_held_shared_no_more_was_closed() {
    let close = Operation::Close(Close { forced: false });
    let rows = [(RowKey::lock(Name::new("l").expect("a name")), close)];
    let door = RowState {
        status: SHARED,
        remaining: i64::MAX,
        ..HELD
    };
    assert_eq!(judge(&rows, &[Some(door)]), Seen::Held);
    for row in [
        IS_FREE,
        HELD,
        RowState {
            granted: true,
            ..door
        },
    ] {
        assert!(matches!(judge(&rows, &[Some(row)]), Seen::Granted(_)));
    }
    // Who frees it by force is told whether it was this packet.
    let force = Operation::Close(Close { forced: true });
    let rows = [(RowKey::lock(Name::new("l").expect("a name")), force)];
    for row in [door, IS_FREE, HELD] {
        assert_eq!(judge(&rows, &[Some(row)]), Seen::Held);
    }
    let freed = RowState {
        granted: true,
        ..door
    };
    assert!(matches!(judge(&rows, &[Some(freed)]), Seen::Granted(_)));
}

#[test]
fn who_was_passed_over_may_queue_and_who_creates_may_not() {
    let mut course = TogetherCourse::default();
    assert!(!course.was_passed_over());
    course.guess(vec![0]);
    assert!(
        !course.was_passed_over(),
        "nobody knows whether it is missing"
    );
    course.again(vec![0]);
    assert!(!course.was_passed_over(), "it is created");
    course.again(vec![]);
    assert!(course.was_passed_over());
    course.again(vec![1]);
    assert!(!course.was_passed_over(), "another one is created");
}
