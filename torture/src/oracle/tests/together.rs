//! Several locks at once: a correct history passes, and each kind of damage is found.

use super::{Kinds, SLACK, record};
use crate::history::{Committed, Event, FinalState, Outcome, Record};
use crate::oracle::Kind;

const TTL: u64 = 100_000_000;
const A: &str = "together:0";
const B: &str = "together:1";

/// What a call for both said of each: its tokens, of which 0 is none.
fn call(times: (u64, u64), tokens: [u64; 2]) -> Vec<Record> {
    let told = |token| Event::Together {
        token,
        ttl: TTL,
        outcome: if token > 0 {
            Outcome::Done
        } else {
            Outcome::Refused
        },
    };
    vec![
        record(A, times, told(tokens[0])),
        record(B, times, told(tokens[1])),
    ]
}

fn held(tokens: [u64; 2], trusted_until: u64) -> Vec<Record> {
    let times = (trusted_until, trusted_until);
    let held = |token| Event::HeldUntil {
        token,
        trusted_until,
    };
    vec![
        record(A, times, held(tokens[0])),
        record(B, times, held(tokens[1])),
    ]
}

fn single(name: &str, times: (u64, u64), token: u64, trusted_until: u64) -> Vec<Record> {
    let over = (trusted_until, trusted_until);
    let held = Event::HeldUntil {
        token,
        trusted_until,
    };
    vec![
        record(name, times, Event::Granted { token, ttl: TTL }),
        record(name, over, held),
    ]
}

/// A transfer of this amount to the first account, by the call at this instant; and the rows of it in the ledger.
fn transfer(invoked: u64, tokens: [u64; 2], amount: i64) -> (Vec<Record>, [Committed; 2]) {
    let names = [(A, tokens[0], amount), (B, tokens[1], -amount)];
    let records = names.map(|(name, token, amount)| {
        let event = Event::Transfer {
            token,
            amount,
            committing: invoked + 1,
            outcome: Outcome::Unknown,
        };
        record(name, (invoked, invoked + 2), event)
    });
    let rows = names.map(|(name, token, amount)| Committed {
        name: name.into(),
        worker: 1,
        task: 1,
        invoked,
        token,
        amount,
    });
    (records.to_vec(), rows)
}

fn kinds(records: &[Vec<Record>], ledger: &[Committed]) -> Kinds {
    let moved = |name: &str| {
        let rows = ledger.iter().filter(|row| &*row.name == name);
        rows.map(|row| row.amount).sum::<i64>()
    };
    let accounts = [A, B].map(|name| (name.into(), [-moved(name), moved(name)]));
    let last = FinalState {
        transfers: ledger.to_vec(),
        accounts: accounts.to_vec(),
        ..FinalState::default()
    };
    super::kinds_of(&records.concat(), &[], &last)
}

#[test]
fn what_is_as_it_should_be_passes() {
    let (moves, ledger) = transfer(7, [10, 10], 5);
    let history = [
        call((1, 5), [10, 10]),
        moves,
        held([10, 10], 20),
        call((6, 9), [0, 0]),
        single(A, (8, 21), 11, 30),
        // It may have had the second lock while it waited for the first.
        call((10, 31), [12, 11]),
        held([12, 11], 40),
    ];
    assert_eq!(kinds(&history, &ledger), []);
    // Nobody knows whether it was committed.
    assert_eq!(kinds(&history, &[]), []);
}

/// Single requests wait for a lock that a group may have, which waits for another one; the group itself is not judged as if it waited for
/// one lock.
#[test]
fn who_waits_beside_a_group_may_wait_as_long_as_that() {
    let long = 2 * (TTL + SLACK);
    let history = [
        single(A, (1, 2), 1, 3),
        single(B, (1, 2), 1, long),
        call((4, long + 1), [2, 2]),
        held([2, 2], long + 2),
        single(A, (5, long + 3), 3, long + 4),
    ];
    assert_eq!(kinds(&history, &[]), []);
    let without = [&history[..2], &history[4..]].concat();
    assert_eq!(kinds(&without, &[]), [Kind::NotServed]);
}

#[test]
fn a_part_of_a_group_is_found() {
    let history = [call((1, 5), [10, 0]), held([10, 0], 20)];
    assert_eq!(kinds(&history, &[]), [Kind::GrantedInPart]);
}

#[test]
fn who_holds_a_lock_of_a_group_is_found() {
    let history = [
        call((1, 5), [10, 10]),
        held([10, 10], 20),
        single(B, (6, 7), 11, 15),
    ];
    let overlap = [Kind::HoldsOverlap, Kind::NotLinearizable];
    assert_eq!(kinds(&history, &[]), overlap);
}

#[test]
fn a_part_of_a_transfer_is_found() {
    let (moves, ledger) = transfer(7, [10, 10], 5);
    let history = [call((1, 5), [10, 10]), moves, held([10, 10], 20)];
    let found = kinds(&history, &ledger[..1]);
    assert_eq!(found, [Kind::WrongBalance, Kind::WrongLedger]);
}
