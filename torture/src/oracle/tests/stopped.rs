//! A worker that is stopped while its answer is on the way tells of it late.

use std::sync::Arc;

use super::simulated::{TTL, World};
use super::verdict;
use crate::history::{Event, Log, Outcome, Record, Unavailable};
use crate::oracle::finding::Kind;

fn log(worker: u32, events: &[(u64, u64, Event)]) -> Log {
    let name = Arc::<str>::from("lock");
    let record = |(invoked, returned, event): &(u64, u64, Event)| Record {
        worker,
        task: 0,
        name: Arc::clone(&name),
        invoked: *invoked,
        returned: *returned,
        event: event.clone(),
    };
    Log {
        worker,
        records: events.iter().map(record).collect(),
        open: Vec::new(),
        complete: true,
        apart: false,
    }
}

/// The first one's lease has ended before it learns that it had been granted.
#[test]
fn a_grant_that_is_told_when_others_have_held_the_lock_since() {
    let late = TTL * 5;
    let hold = |token, trusted_until| Event::HeldUntil {
        token,
        trusted_until,
    };
    let released = |token, outcome| Event::Released { token, outcome };
    let world = World {
        logs: vec![
            log(
                1,
                &[
                    (1, late, Event::Granted { token: 7, ttl: TTL }),
                    (late + 1, late + 2, hold(7, 0)),
                    (late + 3, late + 4, released(7, Outcome::Lost)),
                ],
            ),
            log(
                2,
                &[
                    (2 * TTL - 1, 2 * TTL, Event::Granted { token: 8, ttl: TTL }),
                    (2 * TTL + 1, 2 * TTL + 2, hold(8, 2 * TTL + 1)),
                    (2 * TTL + 3, 2 * TTL + 4, released(8, Outcome::Done)),
                ],
            ),
        ],
        unavailable: vec![Unavailable {
            worker: Some(1),
            stopped: true,
            silent: false,
            from: 1,
            to: late,
        }],
        ..World::default()
    };
    assert_eq!(verdict(&world).findings, []);
}

/// The first one's transaction has released the lock and committed, which it does not know; then it releases the lock once more, and is told
/// that it was its own until then. Without the transaction there is no order in which the second one had it before.
#[test]
fn a_release_by_a_transaction_of_which_nobody_knows_whether_it_committed() {
    for (outcome, expected) in [(Outcome::Unknown, 0), (Outcome::Failed, 1)] {
        let transfer = Event::Transfer {
            token: 7,
            amount: 1,
            committing: 20,
            outcome,
        };
        let trusted_until = 0;
        let world = World {
            logs: vec![
                log(
                    1,
                    &[
                        (1, 10, Event::Granted { token: 7, ttl: TTL }),
                        (11, 50, transfer),
                        (
                            51,
                            52,
                            Event::HeldUntil {
                                token: 7,
                                trusted_until,
                            },
                        ),
                        (
                            53,
                            70,
                            Event::Released {
                                token: 7,
                                outcome: Outcome::Done,
                            },
                        ),
                    ],
                ),
                log(
                    2,
                    &[
                        (12, 51, Event::Granted { token: 8, ttl: TTL }),
                        (
                            60,
                            61,
                            Event::HeldUntil {
                                token: 8,
                                trusted_until: 60,
                            },
                        ),
                        (
                            62,
                            63,
                            Event::Released {
                                token: 8,
                                outcome: Outcome::Done,
                            },
                        ),
                    ],
                ),
            ],
            ..World::default()
        };
        let verdict = verdict(&world);
        let disorder = verdict
            .findings
            .iter()
            .filter(|found| found.kind == Kind::NotLinearizable);
        assert_eq!(disorder.count(), expected, "{:?}", verdict.findings);
    }
}
