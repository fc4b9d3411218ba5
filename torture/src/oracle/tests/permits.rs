//! Semaphores: a correct history passes, and each kind of damage is found.

use std::sync::Arc;

use super::{Kinds, SLACK, record};
use crate::history::{Event, Invocation, Operation, Outcome, Record};
use crate::oracle::Kind;

const TTL: u64 = 100_000_000;

/// A permit of a semaphore of two: when it was asked for and granted, its slot and token, and until when it was trusted.
fn permit(times: (u64, u64), slot: u32, token: u64, trusted_until: u64) -> Vec<Record> {
    one_of(1, times, slot, token, trusted_until)
}

/// The same of one of so many that were asked for at once.
fn one_of(count: u32, times: (u64, u64), slot: u32, token: u64, trusted_until: u64) -> Vec<Record> {
    let granted = Event::Permit {
        permits: 2,
        count,
        slot,
        token,
        ttl: TTL,
    };
    let held = Event::HeldUntil {
        token,
        trusted_until,
    };
    let name = format!("permits:0#{slot}");
    let over = times.1.max(trusted_until);
    vec![
        record("permits:0", times, granted),
        record(&name, (over, over), held),
    ]
}

fn refused(times: (u64, u64), outcome: Outcome) -> Vec<Record> {
    vec![record("permits:0", times, Event::NotGranted { outcome })]
}

fn kinds(records: &[Vec<Record>]) -> Kinds {
    super::kinds(&records.concat(), &[])
}

#[test]
fn what_is_as_it_should_be_passes() {
    let history = [
        permit((1, 5), 0, 10, 20),
        permit((2, 6), 1, 10, 7),
        // The slot of the first, when that has ended; tokens of two slots say nothing of each other.
        permit((7, 21), 0, 11, 40),
        // Never trusted, and granted late: another one has the slot.
        permit((8, 22), 1, 12, 0),
        refused((9, 12), Outcome::Refused),
        permit((31, 32), 1, 13, 50),
    ];
    assert_eq!(kinds(&history), []);
}

#[test]
fn two_holders_of_a_slot_are_found() {
    let history = [permit((1, 5), 0, 10, 20), permit((2, 6), 0, 11, 30)];
    let overlap = [Kind::HoldsOverlap, Kind::NotLinearizable];
    assert_eq!(kinds(&history), overlap);
    let history = [permit((1, 5), 0, 10, 20), permit((20, 21), 0, 10, 30)];
    let repeated = [Kind::TokenRepeated, Kind::NotLinearizable];
    assert_eq!(kinds(&history), repeated);
    let history = [permit((1, 5), 0, 10, 20), permit((21, 22), 0, 9, 30)];
    let found = kinds(&history);
    assert!(found.contains(&Kind::TokenFell), "{found:?}");
}

#[test]
fn a_permit_too_many_is_found() {
    let history = [
        permit((1, 5), 0, 10, 20),
        permit((2, 6), 1, 10, 30),
        permit((3, 7), 2, 10, 30),
    ];
    let expected = [Kind::SlotOutside, Kind::TooManyPermits];
    assert_eq!(kinds(&history), expected);
    // One that came when another one had ended is outside, and not too many.
    let history = [permit((1, 5), 0, 10, 20), permit((30, 31), 2, 10, 40)];
    assert_eq!(kinds(&history), [Kind::SlotOutside]);
}

#[test]
fn who_has_a_part_of_several_permits_is_found() {
    let both = [one_of(2, (1, 5), 0, 10, 20), one_of(2, (1, 5), 1, 7, 20)];
    assert_eq!(kinds(&both), []);
    let one = [one_of(2, (1, 5), 0, 10, 20)];
    assert_eq!(kinds(&one), [Kind::GrantedInPart]);
}

/// It has the first, and nobody can see that, while it waits for the second.
#[test]
fn what_who_waits_for_several_may_have_is_not_free() {
    let long = 2 * (TTL + SLACK);
    let held = permit((1, 5), 1, 10, 2 * long);
    let several = || {
        let times = (20, 2 * long + 1);
        let second = one_of(2, times, 1, 11, 2 * long + 2);
        [one_of(2, times, 0, 10, 2 * long + 2), second].concat()
    };
    let waits = refused((30, long), Outcome::Refused);
    assert_eq!(kinds(&[held.clone(), several(), waits.clone()]), []);
    let before = permit((1, 5), 0, 9, 6);
    assert_eq!(kinds(&[held, before, waits]), [Kind::NotServed]);
}

/// One slot is taken all the time, and the other one is not.
#[test]
fn who_waits_beside_a_free_slot_was_not_served() {
    let long = 2 * (TTL + SLACK);
    let taken = permit((1, 5), 0, 10, 2 * long);
    let before = permit((2, 6), 1, 10, 20);
    let waits = refused((30, long), Outcome::Refused);
    let not_served = [Kind::NotServed];
    assert_eq!(kinds(&[taken.clone(), before.clone(), waits]), not_served);
    // Of the slot that it waited for it is granted the one that was not free.
    let other = permit((30, 2 * long + 2), 0, 11, 2 * long + 3);
    assert_eq!(kinds(&[taken.clone(), before.clone(), other]), not_served);
    // A dead worker's candidacy may have had it, as long as that lasts, and for a ttl.
    let dead = Invocation {
        worker: 2,
        task: 1,
        name: Arc::from("permits:0"),
        invoked: 25,
        operation: Operation::Acquire,
    };
    let soon = refused((30, TTL), Outcome::Refused);
    let records = [taken, before, soon].concat();
    assert_eq!(super::kinds(&records, &[dead]), []);
}
