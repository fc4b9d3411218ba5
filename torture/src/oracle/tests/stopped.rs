//! A worker that is stopped while its answer is on the way tells of it late.

use std::sync::Arc;

use super::simulated::{TTL, World};
use super::verdict;
use crate::history::{Event, Log, Outcome, Record, Unavailable};

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
            from: 1,
            to: late,
        }],
        ..World::default()
    };
    assert_eq!(verdict(&world).findings, []);
}
