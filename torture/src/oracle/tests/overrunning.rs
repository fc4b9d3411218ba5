//! A call that takes longer than it said, and one whose worker stood still meanwhile.

use super::simulated::World;
use super::{ENDS_WITHIN, record, verdict};
use crate::history::{Event, Log, Unavailable};
use crate::oracle::finding::Kind;

const LIMIT: u64 = 1_000;

/// A call of worker 1 that ran until then, in a world in which the worker could not be served in a span.
fn world(returned: u64, (stopped, from, to): (bool, u64, u64)) -> World {
    let record = record("lock", (10, returned), Event::Overran { limit: LIMIT });
    World {
        logs: vec![Log {
            worker: 1,
            records: vec![record],
            ..Log::default()
        }],
        unavailable: vec![Unavailable {
            worker: Some(1),
            stopped,
            silent: false,
            from,
            to,
        }],
        ..World::default()
    }
}

#[test]
fn a_call_may_take_a_little_longer() {
    let verdict = verdict(&world(10 + LIMIT + ENDS_WITHIN, (true, 0, 1)));
    assert_eq!(verdict.findings, []);
    assert_eq!(verdict.most_overrun, ENDS_WITHIN);
}

#[test]
fn a_call_that_ends_late_is_found() {
    let late = 10 + LIMIT + ENDS_WITHIN + 1;
    // Its worker could not reach the server: the call was to end all the same.
    let verdict = verdict(&world(late, (false, 20, late)));
    let kinds: Vec<Kind> = verdict.findings.iter().map(|found| found.kind).collect();
    assert_eq!(kinds, [Kind::EndedLate]);
}

#[test]
fn a_worker_that_stands_still_ends_no_calls() {
    let late = 10 + LIMIT + ENDS_WITHIN + 5_000;
    assert_eq!(verdict(&world(late, (true, 20, 5_020))).findings, []);
}
