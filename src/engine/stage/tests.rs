//! All cases, and the ways of requests through the stages.

use std::sync::Arc;

use super::*;
use crate::name::Name;
use crate::sql::operation::{
    Acquire, Count, CounterChange, Delete, ForceRelease, Init, Once, Release, Renew, Touch, Want,
};
use crate::sql::reply::{ACTIVE, FREE, KEPT};
use crate::sql::row::RowKey;
use crate::sql::wish::GivesWay;
use crate::token::Token;

const STAGES: [Stage; 5] = [
    Stage::Try,
    Stage::Create,
    Stage::Stripe { create: false },
    Stage::Stripe { create: true },
    Stage::Row,
];

fn acquire(queues: bool) -> Operation {
    Operation::Acquire(Acquire {
        token: Token::random(),
        ttl: 1,
        block: 1,
        level: None,
        gives_way: GivesWay::TO_ALL,
        idles: false,
        queues,
        description: Arc::from(""),
        held_by: Arc::from(""),
    })
}

fn release(queues: bool) -> Operation {
    Operation::Release(Release {
        token: Token::random(),
        fence: 1,
        used: 1,
        hold: 0,
        level: None,
        until: 0,
        queues,
        finishes: false,
    })
}

fn renew() -> Operation {
    Operation::Renew(Renew {
        token: Token::random(),
        fence: 1,
        ttl: 1,
        until: None,
    })
}

fn count() -> Operation {
    Operation::Count(Count {
        token: Token::random(),
        low: 0,
        high: 9,
        change: CounterChange::Set { value: 0 },
        window: 0,
        restart: false,
    })
}

fn once() -> Operation {
    Operation::Once(Once {
        token: Token::random(),
        counter: RowKey::counter(Name::new("c").expect("a name")),
        delta: 1,
        from: 0,
        to: 9,
        window: 0,
        retention: 1,
    })
}

fn delete() -> Operation {
    Operation::Delete(Delete {
        token: Token::random(),
    })
}

fn operations() -> Vec<Operation> {
    vec![
        acquire(false),
        acquire(true),
        release(false),
        release(true),
        renew(),
        Operation::ForceRelease(ForceRelease {
            token: Token::random(),
            fence: 1,
        }),
        count(),
        once(),
        Operation::Want(Want { wait: 1 }),
        Operation::Want(Want { wait: 0 }),
        Operation::Touch(Touch),
        Operation::Init(Init {
            token: Token::random(),
            value: 1,
            window: 0,
        }),
        delete(),
    ]
}

const ROW: RowState = RowState::HELD;

/// Rows of every kind that a reply may show.
fn rows() -> Vec<Option<RowState>> {
    let mut rows = vec![None];
    for status in [FREE, ACTIVE, KEPT] {
        // The second one is a counter's that was never set: its deadline is what a row is created with.
        for remaining in [-5, 0, 5] {
            for (mine, granted) in [(false, false), (true, false), (true, true), (false, true)] {
                for (fence, wanted) in [(1, 0), (2, 0), (1, 9)] {
                    rows.push(Some(RowState {
                        granted,
                        status,
                        mine,
                        fence,
                        remaining,
                        wanted,
                        ..ROW
                    }));
                }
            }
        }
    }
    rows
}

/// Every case that there is.
fn cases(mut check: impl FnMut(Case<'_>, Next)) {
    for operation in &operations() {
        for stage in STAGES {
            for row in &rows() {
                for how in [How::Packet, How::Glance, How::Look, How::Lost] {
                    let most = most_tries(operation, stage);
                    for (tries, late) in [
                        (0, false),
                        (1, false),
                        (most, false),
                        (0, true),
                        (most, true),
                    ] {
                        let row = row.as_ref();
                        let case = Case {
                            operation,
                            stage,
                            tries,
                            row,
                            how,
                            late,
                            others_create: false,
                        };
                        check(case, next(case));
                        let case = Case {
                            others_create: true,
                            ..case
                        };
                        check(case, next(case));
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_held_waits_for_its_row_or_last_of_all_for_its_stripe() {
    cases(|case, next| {
        // Those that create go through all stages; the others begin at the first.
        if case.operation.creates() || case.stage != Stage::Try {
            return;
        }
        if let Next::Go(stage) = next {
            let never = never_waits_for_its_row(case.operation);
            let in_vain = case.how == How::Look && case.tries == TRIES_BEFORE_THE_LINE;
            let stands = match stage {
                Stage::Try => true,
                Stage::Stripe { create } => never && in_vain && !create,
                Stage::Create => false,
                Stage::Row => !matches!(case.operation, Operation::Renew(_)),
            };
            assert!(stands, "{case:?}: {next:?}");
        }
    });
}

#[test]
fn what_was_passed_over_stays_where_it_is() {
    cases(|case, next| {
        if case.how == How::Glance && case.row.is_none() {
            let looks = case.stage == Stage::Row;
            let expected = if looks {
                Next::Look
            } else {
                Next::Go(case.stage)
            };
            assert_eq!(next, expected, "{case:?}");
        }
    });
}

#[test]
fn nobody_is_told_busy_who_was_not_seen_to_be_locked() {
    cases(|case, next| {
        if next == Next::Answer(Outcome::Busy) {
            assert_eq!(case.how, How::Look, "{case:?}");
            assert!(case.row.is_some() && case.tries == TRIES, "{case:?}");
            assert!(match case.operation {
                Operation::Acquire(acquire) => !acquire.queues,
                Operation::Release(release) => !release.queues,
                _ => false,
            });
        }
    });
}

#[test]
fn what_was_granted_is_told_at_once() {
    cases(|case, next| {
        let decided = matches!(case.how, How::Packet | How::Glance);
        if decided && case.row.is_some_and(|row| row.granted) {
            assert!(matches!(next, Next::Answer(_)), "{case:?}: {next:?}");
        }
    });
}

#[test]
fn a_look_and_a_search_follow_what_they_can_explain() {
    cases(|case, next| match next {
        Next::Look => {
            assert!(matches!(case.how, How::Packet | How::Glance), "{case:?}");
            assert!(case.row.is_none(), "{case:?}");
        }
        Next::FindStripe => assert!(case.how == How::Look && case.row.is_none(), "{case:?}"),
        // Its stripe was taken: how often it is tried is decided before it is looked at.
        Next::Retry if case.stage == Stage::Create => {
            assert!(case.row.is_none(), "{case:?}");
            let seen_missing = case.how == How::Packet && !case.tries.is_multiple_of(LOOK_EVERY);
            assert!(case.how == How::Look || seen_missing, "{case:?}");
        }
        Next::Retry => {
            assert_eq!(case.how, How::Look, "{case:?}");
            assert!(
                case.tries < most_tries(case.operation, case.stage),
                "{case:?}"
            );
        }
        Next::Answer(_) | Next::Go(_) => {}
    });
}

/// A row that somebody has locked does not say that its counter stays unset.
#[test]
fn nobody_is_told_that_a_locked_counter_was_never_set() {
    cases(|case, next| {
        if next == Next::Answer(Outcome::NotSet) {
            assert!(case.how != How::Look || case.row.is_none(), "{case:?}");
        }
    });
}

/// The way of a request that never has its row.
fn way(operation: &Operation, seen: Option<RowState>) -> (Vec<Stage>, Next) {
    way_among(operation, seen, false)
}

/// The same where others create rows, or not.
fn way_among(
    operation: &Operation,
    seen: Option<RowState>,
    others_create: bool,
) -> (Vec<Stage>, Next) {
    let mut stage = Stage::Try;
    let (mut tries, mut way) = (0, vec![stage]);
    loop {
        let packet = Case {
            operation,
            stage,
            tries,
            row: None,
            how: How::Packet,
            late: false,
            others_create,
        };
        let then = match next(packet) {
            Next::Look => next(Case {
                row: seen.as_ref(),
                how: How::Look,
                ..packet
            }),
            then => then,
        };
        match then {
            Next::Retry => tries += 1,
            Next::Go(next) if !way.contains(&next) => (stage, tries) = (next, 0),
            then => return (way, then),
        }
        way.push(stage);
    }
}

#[test]
fn a_request_whose_row_is_locked_comes_to_its_row_in_the_end() {
    let free = Some(RowState {
        remaining: -5,
        ..ROW
    });
    let line = Stage::Stripe { create: true };
    let all = [Stage::Try, Stage::Create, line, line, line, Stage::Row];
    assert_eq!(way(&acquire(true), free).0, all);
    assert_eq!(way(&count(), Some(ROW)).0, all);
    let (stages, end) = way(&acquire(false), free);
    assert_eq!(stages, all[..5]);
    assert_eq!(end, Next::Answer(Outcome::Busy));
    let (stages, end) = way(&acquire(false), Some(ROW));
    assert_eq!(stages, all[..3]);
    assert_eq!(end, Next::Answer(Outcome::Held(ROW)));
    let mine = Some(RowState { mine: true, ..ROW });
    let unset = Some(RowState {
        remaining: 0,
        ..ROW
    });
    for (operation, seen) in [
        (release(true), mine),
        (delete(), unset),
        (delete(), Some(ROW)),
    ] {
        assert_eq!(
            way(&operation, seen).0[..4],
            [Stage::Try, Stage::Try, Stage::Try, Stage::Row]
        );
    }
    assert_eq!(way(&delete(), None).1, Next::Answer(Outcome::NotSet));
    let (stages, end) = way(&renew(), mine);
    let (tried, stood) = stages.split_at(1 + usize::from(TRIES_BEFORE_THE_LINE));
    assert!(tried.iter().all(|stage| *stage == Stage::Try));
    let line = Stage::Stripe { create: false };
    assert_eq!(stood, [line; 1 + TRIES as usize]);
    let leased = Outcome::Leased {
        remaining: 5,
        until: 5,
        wanted: 0,
        renewed: false,
    };
    assert_eq!(end, Next::Answer(leased));
}

#[test]
fn a_missing_stripe_is_looked_for() {
    let (stages, end) = way(&count(), None);
    let (first, tries) = stages.split_at(1);
    assert_eq!(first, [Stage::Try]);
    let (tries, line) = tries.split_at(1 + usize::from(TRIES_TO_CREATE));
    assert!(tries.iter().all(|stage| *stage == Stage::Create));
    assert_eq!(line, [Stage::Stripe { create: true }]);
    assert_eq!(end, Next::FindStripe);
    // Where others create rows it stands in line at once.
    let (stages, end) = way_among(&count(), None, true);
    assert_eq!(stages, [Stage::Try, Stage::Create, line[0]]);
    assert_eq!(end, Next::FindStripe);
}
