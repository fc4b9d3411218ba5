//! Locks that are held shared: a correct history passes, and each kind of damage is found.

use std::slice;

use super::{Kinds, PASSED_OVER, SLACK, record};
use crate::history::{Committed, Event, FinalState, Log, Outcome, Record, Unavailable};
use crate::oracle::shared::BESIDE_A_WRITER;
use crate::oracle::{Case, Kind, Rules, judge};

const TTL: u64 = 100_000_000;
const LOCK: &str = "shared:0";

fn held(task: u32, token: u64, trusted_until: u64) -> Record {
    let event = Event::HeldUntil {
        token,
        trusted_until,
    };
    let over = (trusted_until, trusted_until);
    by(task, record(LOCK, over, event))
}

fn by(task: u32, record: Record) -> Record {
    Record { task, ..record }
}

/// Task 1 has the lock for itself: when it was asked for and granted, its token, and until when it was trusted.
fn writes(times: (u64, u64), token: u64, trusted_until: u64) -> Vec<Record> {
    let granted = record(LOCK, times, Event::Granted { token, ttl: TTL });
    vec![granted, held(1, token, trusted_until)]
}

/// A task has it shared, made of the exclusive hold with the token `from`.
fn made(task: u32, times: (u64, u64), token: u64, trusted_until: u64, from: u64) -> Vec<Record> {
    let ttl = TTL;
    let event = Event::Shared { token, ttl, from };
    let granted = by(task, record(LOCK, times, event));
    vec![granted, held(task, token, trusted_until)]
}

fn reads(task: u32, times: (u64, u64), token: u64, trusted_until: u64) -> Vec<Record> {
    made(task, times, token, trusted_until, 0)
}

fn wrote(token: u64, times: (u64, u64), read: u64, wrote: u64) -> Record {
    record(LOCK, times, Event::Section { token, read, wrote })
}

fn looked(task: u32, token: u64, times: (u64, u64), found: u64, again: u64) -> Record {
    let event = Event::Looked {
        token,
        found,
        again,
    };
    by(task, record(LOCK, times, event))
}

fn kinds(records: &[Vec<Record>]) -> Kinds {
    super::kinds(&records.concat(), &[])
}

#[test]
fn what_is_as_it_should_be_passes() {
    let history = [
        reads(2, (1, 5), 10, 40),
        // It joins the lease, with the same token.
        reads(3, (10, 11), 10, 45),
        // Another client's.
        reads(4, (10, 12), 11, 30),
        writes((20, 50), 20, 60),
        vec![wrote(20, (52, 54), 0, 7)],
        made(1, (60, 65), 21, 80, 20),
        vec![looked(1, 21, (66, 70), 7, 7)],
        reads(2, (61, 66), 22, 90),
        // Never trusted, and granted late: another one writes.
        reads(3, (62, 101), 23, 0),
        writes((85, 100), 30, 120),
    ];
    assert_eq!(kinds(&history), []);
}

#[test]
fn an_exclusive_hold_beside_a_shared_one_is_found() {
    // Whichever began first.
    let history = [reads(2, (1, 5), 10, 40), writes((6, 30), 20, 50)];
    assert_eq!(kinds(&history), [Kind::HoldsOverlap]);
    let history = [writes((1, 5), 10, 40), reads(2, (6, 30), 20, 50)];
    assert_eq!(kinds(&history), [Kind::HoldsOverlap]);
    // Of several that read the one that goes on.
    let history = [
        reads(2, (1, 5), 10, 40),
        reads(3, (6, 7), 10, 20),
        writes((8, 30), 20, 50),
    ];
    assert_eq!(kinds(&history), [Kind::HoldsOverlap]);
}

#[test]
fn tokens_that_do_not_tell_the_order_are_found() {
    let history = [reads(2, (1, 5), 10, 20), writes((21, 25), 9, 30)];
    assert_eq!(kinds(&history), [Kind::TokenFell]);
    let history = [writes((1, 5), 10, 20), reads(2, (21, 25), 9, 30)];
    assert_eq!(kinds(&history), [Kind::TokenFell]);
    let history = [writes((1, 5), 10, 20), reads(2, (21, 25), 10, 30)];
    assert_eq!(kinds(&history), [Kind::TokenRepeated]);
    let last = FinalState {
        fences: vec![(LOCK.into(), 9)],
        ..FinalState::default()
    };
    let records = reads(2, (1, 5), 10, 20);
    assert_eq!(super::kinds_of(&records, &[], &last), [Kind::TokenFell]);
}

#[test]
fn a_downgrade_with_a_gap_is_found() {
    let history = [
        writes((1, 5), 10, 20),
        writes((6, 25), 15, 30),
        made(1, (21, 35), 20, 40, 10),
    ];
    assert_eq!(kinds(&history), [Kind::DowngradeGap]);
}

#[test]
fn a_value_that_changes_while_it_is_read_is_found() {
    let written = || {
        [
            writes((1, 5), 10, 20),
            vec![wrote(10, (6, 8), 0, 7)],
            reads(2, (21, 25), 11, 40),
        ]
        .concat()
    };
    let kinds_with = |reading: Record| kinds(&[written(), vec![reading]]);
    assert_eq!(kinds_with(looked(2, 11, (26, 30), 7, 7)), []);
    let wrong = [Kind::WrongRead];
    assert_eq!(kinds_with(looked(2, 11, (26, 30), 0, 7)), wrong);
    assert_eq!(kinds_with(looked(2, 11, (26, 30), 7, 9)), wrong);
    // It was not trusted any more.
    assert_eq!(kinds_with(looked(2, 11, (26, 41), 7, 9)), []);
    // A section that was not trusted may have written just now.
    let stray = wrote(5, (27, 28), 0, 9);
    let reading = looked(2, 11, (26, 30), 7, 9);
    assert_eq!(kinds(&[written(), vec![stray, reading]]), []);
}

/// A transaction under a shared hold with the token 20, beside two transfers.
fn vouched(found: u64, again: u64, committing: u64, outcome: Outcome) -> Record {
    let event = Event::Vouched {
        token: 20,
        found,
        again,
        committing,
        outcome,
    };
    by(2, record(LOCK, (26, 35), event))
}

#[test]
fn a_transaction_that_commits_beside_a_writer_is_found() {
    let row = |token: u64| Committed {
        name: LOCK.into(),
        worker: 1,
        task: 1,
        invoked: token,
        token,
        amount: 0,
    };
    let transfer = |token: u64| {
        let event = Event::Transfer {
            token,
            amount: 0,
            committing: token + 1,
            outcome: Outcome::Done,
        };
        record(LOCK, (token, token + 2), event)
    };
    let last = FinalState {
        transfers: vec![row(10), row(50)],
        accounts: vec![(LOCK.into(), [0, 0])],
        ..FinalState::default()
    };
    let kinds_with = |reading: Record| {
        let records = [
            writes((1, 5), 10, 20),
            vec![transfer(10), transfer(50)],
            reads(2, (21, 25), 20, 28),
            vec![reading],
            writes((26, 32), 50, 60),
        ];
        super::kinds_of(&records.concat(), &[], &last)
    };
    assert_eq!(kinds_with(vouched(1, 1, 31, Outcome::Done)), []);
    let stale = [Kind::StaleCommit];
    assert_eq!(kinds_with(vouched(1, 1, 33, Outcome::Done)), stale);
    assert_eq!(kinds_with(vouched(1, 1, 33, Outcome::Unknown)), []);
    let wrong = [Kind::WrongRead];
    for (found, again) in [(1, 2), (0, 0), (2, 2)] {
        assert_eq!(kinds_with(vouched(found, again, 31, Outcome::Done)), wrong);
    }
}

fn not_granted(times: (u64, u64)) -> Record {
    let outcome = Outcome::Refused;
    record(LOCK, times, Event::NotGranted { outcome })
}

#[test]
fn a_writer_that_readers_keep_out_is_found() {
    let bound = BESIDE_A_WRITER;
    // One reads, and then another one, all the time.
    let one_by_one = |last: u64| {
        let begins = (0..last).step_by(10_000_000);
        let reads = begins.map(|at| reads(2, (at + 1, at + 2), at + 2, at + 10_000_003));
        reads.collect::<Vec<_>>().concat()
    };
    let waits = |to| vec![not_granted((10, to))];
    // Then nobody reads, and it is not yet late for it.
    assert_eq!(kinds(&[one_by_one(bound), waits(bound + SLACK)]), []);
    let overtaken = [Kind::Overtaken];
    let found = kinds(&[one_by_one(2 * bound), waits(2 * bound)]);
    assert_eq!(found, overtaken);
    // Another one writes in between: it is a matter of the writers, and each waits for that long.
    let between = writes((bound - 10, bound), bound, bound + 1);
    let mut readers = one_by_one(2 * bound);
    readers.retain(|record| record.invoked < bound - 20_000_000 || record.invoked > bound + 1);
    assert_eq!(kinds(&[readers, between, waits(2 * bound)]), []);
}

/// `n` turns of another worker, one after the other, while a task waits to read.
#[test]
fn a_reader_that_writers_keep_out_is_found() {
    let kinds_with = |n: u64, unavailable: &[Unavailable]| {
        let turns: Vec<Record> = (1..=n)
            .flat_map(|turn| writes((turn * 10, turn * 10 + 1), turn * 10, turn * 10 + 5))
            .collect();
        let end = n * 10 + 10;
        let reader = reads(2, (5, end), end, end + 5);
        let log = |worker: u32, records: Vec<Record>| Log {
            worker,
            records: records
                .into_iter()
                .map(|record| Record { worker, ..record })
                .collect(),
            open: Vec::new(),
            complete: true,
            apart: false,
        };
        let verdict = judge(&Case {
            logs: &[log(1, turns), log(2, reader)],
            last: &FinalState::default(),
            unavailable,
            rules: Rules {
                passed_over: Some(PASSED_OVER),
                ..Rules::default()
            },
        });
        verdict.violations.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(kinds_with(PASSED_OVER, &[]), []);
    assert_eq!(kinds_with(PASSED_OVER + 1, &[]), [Kind::Overtaken]);
    // Meanwhile one server of a cluster was away.
    let away = Unavailable {
        worker: None,
        stopped: false,
        silent: false,
        from: 20,
        to: 40,
    };
    assert_eq!(kinds_with(PASSED_OVER + 1, slice::from_ref(&away)), []);
    let again = 2 * PASSED_OVER;
    assert_eq!(kinds_with(again, &[away]), [Kind::Overtaken]);
    // One of its own connections was silent; one of the other worker's was.
    let silent = |worker| Unavailable {
        worker: Some(worker),
        silent: true,
        ..away
    };
    assert_eq!(kinds_with(PASSED_OVER + 1, &[silent(2)]), []);
    assert_eq!(kinds_with(PASSED_OVER + 1, &[silent(1)]), [Kind::Overtaken]);
    assert_eq!(kinds_with(again, &[silent(2)]), [Kind::Overtaken]);
}

#[test]
fn who_waits_beside_a_lock_that_nobody_holds_was_not_served() {
    let long = 2 * (TTL + SLACK);
    let not_served = [Kind::NotServed];
    let before = reads(2, (1, 5), 10, 20);
    let to_write = vec![not_granted((30, long))];
    assert_eq!(kinds(&[before.clone(), to_write]), not_served);
    let outcome = Outcome::Refused;
    let to_read = by(3, record(LOCK, (30, long), Event::NotShared { outcome }));
    assert_eq!(kinds(&[before.clone(), vec![to_read.clone()]]), not_served);
    // Whoever waits to write keeps others from reading.
    let goes_on = reads(2, (1, 5), 10, 2 * long);
    let wish = not_granted((25, long));
    assert_eq!(kinds(&[goes_on, vec![to_read, wish]]), []);
}
