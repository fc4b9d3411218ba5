//! Tasks of one client that have a lock in the order in which they asked, and others that do not.

use super::simulated::World;
use super::{APART, found, record, verdict};
use crate::history::{Event, Log, Record, Unavailable};
use crate::oracle::finding::Kind;

/// A grant that was asked for, and came, then; and the end of the hold right after it.
fn hold(token: u64, span: (u64, u64)) -> [Record; 3] {
    let (_, granted) = span;
    let until = granted + 1;
    let ttl = 1_000_000_000;
    let trusted_until = until;
    let outcome = crate::history::Outcome::Done;
    [
        record("lock", span, Event::Granted { token, ttl }),
        record(
            "lock",
            (until, until),
            Event::HeldUntil {
                token,
                trusted_until,
            },
        ),
        record(
            "lock",
            (until, until + 1),
            Event::Released { token, outcome },
        ),
    ]
}

/// Two tasks of worker 1: one waits until then, and the other one asked later, and has the lock sooner.
fn world((first, later): ((u64, u64), (u64, u64)), apart: bool) -> World {
    World {
        logs: vec![Log {
            worker: 1,
            records: [hold(1, later), hold(2, first)].concat(),
            complete: true,
            apart,
            ..Log::default()
        }],
        ..World::default()
    }
}

const ASKED: u64 = 10;
const LATER: u64 = ASKED + APART + 1;
const SERVED: u64 = LATER + 5;

#[test]
fn who_asked_long_before_and_has_the_lock_long_after_is_found() {
    let late = SERVED + APART + 1;
    let world = world(((ASKED, late), (LATER, SERVED)), false);
    assert!(found(&world, Kind::OutOfTurn));
}

#[test]
fn what_is_near_to_each_other_has_no_order() {
    for (first, later) in [
        // They asked at about the same time.
        ((ASKED, SERVED + APART + 1), (LATER - 1, SERVED)),
        // They were told at about the same time.
        ((ASKED, SERVED + APART), (LATER, SERVED)),
        // They had it in order.
        ((ASKED, SERVED), (LATER, SERVED + APART + 9)),
    ] {
        let world = world((first, later), false);
        assert_eq!(verdict(&world).violations.get(&Kind::OutOfTurn), None);
    }
}

#[test]
fn clients_of_their_own_have_no_order() {
    let late = SERVED + APART + 1;
    let world = world(((ASKED, late), (LATER, SERVED)), true);
    assert!(!found(&world, Kind::OutOfTurn));
}

#[test]
fn who_stood_still_meanwhile_says_nothing_of_the_order() {
    let late = SERVED + APART + 1;
    let mut world = world(((ASKED, late), (LATER, SERVED)), false);
    let stop = |worker| Unavailable {
        silent: false,
        from: SERVED,
        to: SERVED + 1,
        worker: Some(worker),
        stopped: true,
    };
    world.unavailable = vec![stop(2)];
    assert!(found(&world, Kind::OutOfTurn));
    world.unavailable = vec![stop(1)];
    assert!(!found(&world, Kind::OutOfTurn));
}
