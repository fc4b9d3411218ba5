//! Slots of jobs: a correct history passes, and each kind of damage is found.

use std::sync::Arc;

use crate::history::{Booked, Event, FinalState, Invocation, Log, Operation, Outcome, Record};
use crate::oracle::{Case, Kind, Rules, judge};

/// An attempt: when it was invoked and returned, and what came of it.
fn attempt(times: (u64, u64), token: u64, done: bool, outcome: Outcome) -> Record {
    Record {
        worker: 1,
        task: 1,
        name: Arc::from("jobs@7"),
        invoked: times.0,
        returned: times.1,
        event: Event::Attempt {
            token,
            booked: true,
            done,
            outcome,
        },
    }
}

fn booked(invoked: u64) -> Booked {
    Booked {
        name: Arc::from("jobs@7"),
        worker: 1,
        task: 1,
        invoked,
    }
}

/// What is found, `open` being when an attempt of a worker began that was killed.
fn kinds(records: Vec<Record>, open: Option<u64>, ledger: Vec<Booked>) -> Vec<Kind> {
    let open = open.map(|invoked| Invocation {
        worker: 1,
        task: 1,
        name: Arc::from("jobs@7"),
        invoked,
        operation: Operation::Attempt { booked: true },
    });
    let log = Log {
        worker: 1,
        records,
        open: open.into_iter().collect(),
        complete: true,
        apart: false,
    };
    let last = FinalState {
        booked: ledger,
        ..FinalState::default()
    };
    let verdict = judge(&Case {
        logs: &[log],
        last: &last,
        unavailable: &[],
        rules: Rules::default(),
    });
    verdict.violations.into_keys().collect()
}

fn failed() -> Record {
    attempt((1, 2), 5, false, Outcome::Failed)
}

fn done() -> Record {
    attempt((3, 6), 6, true, Outcome::Done)
}

fn busy() -> Record {
    attempt((4, 5), 0, false, Outcome::Refused)
}

fn already() -> Record {
    attempt((7, 8), 0, true, Outcome::Refused)
}

#[test]
fn what_is_as_it_should_be_passes() {
    assert_eq!(
        kinds(
            vec![failed(), done(), busy(), already()],
            None,
            vec![booked(3)]
        ),
        []
    );
    // A killed worker has done it, or has not.
    assert_eq!(kinds(vec![already()], Some(1), vec![booked(1)]), []);
    assert_eq!(kinds(vec![done()], Some(1), vec![booked(3)]), []);
    // It had begun before anybody could know.
    let late = attempt((5, 20), 5, false, Outcome::Lost);
    assert_eq!(kinds(vec![done(), late], None, vec![booked(3)]), []);
}

#[test]
fn two_ends_are_found() {
    let second = attempt((4, 9), 7, true, Outcome::Done);
    let ledger = vec![booked(3), booked(4)];
    assert_eq!(kinds(vec![done(), second], None, ledger), [Kind::RanTwice]);
    assert_eq!(
        kinds(vec![done()], Some(1), vec![booked(1), booked(3)]),
        [Kind::RanTwice]
    );
}

#[test]
fn work_on_a_done_slot_is_found() {
    let begins = attempt((9, 10), 7, false, Outcome::Failed);
    assert_eq!(
        kinds(vec![done(), begins.clone()], None, vec![booked(3)]),
        [Kind::RanTwice]
    );
    assert_eq!(
        kinds(vec![already(), begins], Some(1), vec![]),
        [Kind::RanTwice]
    );
}

#[test]
fn a_slot_that_nobody_did_is_found() {
    assert_eq!(
        kinds(vec![failed(), already()], None, vec![]),
        [Kind::NeverDone]
    );
    assert_eq!(kinds(vec![already()], Some(9), vec![]), [Kind::NeverDone]);
}

#[test]
fn a_wrong_ledger_is_found() {
    assert_eq!(kinds(vec![done()], None, vec![]), [Kind::WrongLedger]);
    assert_eq!(
        kinds(vec![failed()], None, vec![booked(1)]),
        [Kind::WrongLedger]
    );
    assert_eq!(
        kinds(vec![failed()], None, vec![booked(9)]),
        [Kind::WrongLedger]
    );
}
