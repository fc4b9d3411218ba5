//! What a request waits for, and what happens to it next: decisions only.
//!
//! ```text
//!              not had               not had                  row locked
//!  Stage::Try ─────────▶ Create ───────────────▶ Stripe ─────────────────▶ Row
//!  row is there         created, if its stripe   waits for its stripe      waits for its row
//!                       is free
//!  └──────────── lanes that never wait ────┘     └ lanes of stripes ┘      └ lanes of rows ┘
//! ```
//!
//! A request goes to the right only when a packet did not have what it needs, so that it never delays one that can
//! be answered at once. Releases do not wait for stripes, and renewals do not wait for their rows: those that find their row
//! locked again and again go from `Try` to `Stripe`, since it is a crowd of acquires that stands there.

use super::outcome::{Outcome, Verdict};
use crate::sql::operation::Operation;
use crate::sql::reply::RowState;

/// What the packets of a lane may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    Never,
    /// For the stripes of one request.
    ForStripe,
    /// For the row of one request.
    ForRow,
}

/// What a request needs, in the order in which it comes to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Its row is taken to be there.
    Try,
    /// Its row may be missing: it is created, if its stripe is free.
    Create,
    /// Others want its stripe: it stands in line there.
    Stripe {
        /// Its row may be missing.
        create: bool,
    },
    /// Its row is there, and somebody holds it.
    Row,
}

impl Stage {
    /// The kind of lane that serves it.
    pub(crate) fn waits(self) -> Waits {
        match self {
            Self::Try | Self::Create => Waits::Never,
            Self::Stripe { .. } => Waits::ForStripe,
            Self::Row => Waits::ForRow,
        }
    }

    /// Whether its packet creates the row if that is missing.
    pub(crate) fn creates(self) -> bool {
        matches!(self, Self::Create | Self::Stripe { create: true })
    }
}

/// How it is known what a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Its packet is committed, which took it or waited for it as its stage says.
    Packet,
    /// Its packet is committed, and passed over all that it would have had to wait for.
    Glance,
    /// Its packet did not have it, and then it was read without a lock.
    Look,
    /// The packet's reply was lost, and the row was read later.
    Lost,
}

/// What is known of one request after its packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'c> {
    pub(crate) operation: &'c Operation,
    pub(crate) stage: Stage,
    /// How often it was tried again since its row was seen to be locked.
    pub(crate) tries: u8,
    pub(crate) row: Option<&'c RowState>,
    pub(crate) how: How,
    /// The packet ran when its time for grants was over.
    pub(crate) late: bool,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Answer(Outcome),
    /// It has changed nothing, and goes to this stage.
    Go(Stage),
    /// Its row was locked, as a rule for a moment: it runs once more where it is.
    Retry,
    /// Read its row: the packet says only that it did not have it.
    Look,
    /// Its row is still missing after a packet that creates it: its stripe is missing too, or a purge took it just now.
    FindStripe,
}

/// A row that is locked although its request stood in line is held by a transaction of the application, or by a packet that did not
/// stand there: that one is over in a moment. So often it is tried again.
const TRIES: u8 = 2;
/// A renewal stands in line last of all: not behind a stripe that somebody holds, if it can do without.
const TRIES_OF_RENEWALS: u8 = 8;

fn most_tries(operation: &Operation, stage: Stage) -> u8 {
    match (operation, stage) {
        (Operation::Renew(_), Stage::Try) => TRIES_OF_RENEWALS,
        _ => TRIES,
    }
}

/// What happens to a request next.
pub(crate) fn next(case: Case<'_>) -> Next {
    match (case.how, case.row) {
        (How::Packet | How::Glance, None) => not_had(case),
        (How::Packet | How::Glance, Some(row)) => decided(case, row),
        (How::Look, _) => seen_locked(case),
        (How::Lost, _) => lost(case),
    }
}

/// The packet did not have its row.
fn not_had(case: Case<'_>) -> Next {
    if case.how == How::Glance {
        // Where connections are shared, rows are only glanced at: one that is gone must be told from one that is locked.
        return match case.stage {
            Stage::Row => Next::Look,
            stage => Next::Go(stage),
        };
    }
    if !case.operation.creates() {
        return Next::Look;
    }
    match case.stage {
        Stage::Try => Next::Go(Stage::Create),
        Stage::Create | Stage::Stripe { create: false } => Next::Go(Stage::Stripe { create: true }),
        // It would have been created: it is there, and locked.
        Stage::Stripe { create: true } => Next::Look,
        // It was there.
        Stage::Row => Next::Go(Stage::Create),
    }
}

/// The packet had its row, and decided.
fn decided(case: Case<'_>, row: &RowState) -> Next {
    match case.operation.judge(Some(row)) {
        Verdict::Final(outcome) => Next::Answer(outcome),
        // Refused by a clock that has been corrected since.
        _ if case.late => Next::Go(case.stage),
        _ => match case.operation {
            // It gives way to somebody who waits.
            Operation::Acquire(_) => Next::Answer(Outcome::Held(*row)),
            // Its counter was not had.
            Operation::Once(_) if case.how == How::Glance => Next::Go(case.stage),
            Operation::Once(_) => match case.stage {
                Stage::Try => Next::Go(Stage::Create),
                Stage::Create | Stage::Stripe { create: false } => {
                    Next::Go(Stage::Stripe { create: true })
                }
                Stage::Stripe { create: true } => Next::Go(Stage::Row),
                // It may be what is missing.
                Stage::Row => Next::Go(Stage::Create),
            },
            _ => Next::Go(Stage::Row),
        },
    }
}

/// The packet passed over its row, which was read then.
fn seen_locked(case: Case<'_>) -> Next {
    if case.row.is_none() && case.operation.creates() {
        return Next::FindStripe;
    }
    let verdict = case.operation.judge(case.row);
    let open = verdict.is_open();
    if open && case.tries < most_tries(case.operation, case.stage) && case.row.is_some() {
        return Next::Retry;
    }
    match (verdict, case.operation) {
        // Where many ask in vain for a lock, they stand in line for its stripe, and its row is locked most of the time.
        (_, Operation::Renew(_)) if open && case.stage == Stage::Try => {
            Next::Go(Stage::Stripe { create: false })
        }
        (Verdict::Final(outcome), _) => Next::Answer(outcome),
        // Whoever waits for a lock asks again; it needs no connection for that.
        (_, Operation::Acquire(acquire)) if !acquire.queues => Next::Answer(Outcome::Busy),
        // Whoever releases is told that a transaction is in the way, and releases again.
        (_, Operation::Release(release)) if !release.queues => Next::Answer(Outcome::Busy),
        _ => Next::Go(Stage::Row),
    }
}

/// The row as it is some time after the packet, which was committed.
fn lost(case: Case<'_>) -> Next {
    match case.operation.judge(case.row) {
        Verdict::Final(outcome) => Next::Answer(outcome),
        Verdict::Missing => Next::Go(Stage::Create),
        Verdict::Busy => Next::Go(case.stage),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::name::Name;
    use crate::sql::operation::{
        Acquire, Change, Count, ForceRelease, Once, Release, Renew, Touch, Want,
    };
    use crate::sql::reply::{ACTIVE, FREE, KEPT};
    use crate::sql::row::RowKey;
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
            gives_way: true,
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
            queues,
        })
    }

    fn renew() -> Operation {
        Operation::Renew(Renew {
            token: Token::random(),
            fence: 1,
            ttl: 1,
        })
    }

    fn count() -> Operation {
        Operation::Count(Count {
            token: Token::random(),
            low: 0,
            high: 9,
            change: Change::Set { value: 0 },
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
            Operation::Touch(Touch),
        ]
    }

    const ROW: RowState = RowState {
        granted: None,
        status: ACTIVE,
        mine: false,
        fence: 1,
        remaining: 5,
        previous: 0,
        count: 1,
        wanted: 0,
        client: 0,
    };

    /// Rows of every kind that a reply may show.
    fn rows() -> Vec<Option<RowState>> {
        let mut rows = vec![None];
        for status in [FREE, ACTIVE, KEPT] {
            for remaining in [-5, 5] {
                for (mine, granted) in [
                    (false, None),
                    (true, None),
                    (true, Some(1)),
                    (false, Some(1)),
                ] {
                    for fence in [1, 2] {
                        rows.push(Some(RowState {
                            granted,
                            status,
                            mine,
                            fence,
                            remaining,
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
                        for (tries, late) in [(0, false), (most, false), (0, true), (most, true)] {
                            let row = row.as_ref();
                            let case = Case {
                                operation,
                                stage,
                                tries,
                                row,
                                how,
                                late,
                            };
                            check(case, next(case));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn releases_never_wait_for_a_stripe_and_renewals_not_for_a_row() {
        cases(|case, next| {
            // Those that create go through all stages; the others begin at the first.
            if case.operation.creates() || case.stage != Stage::Try {
                return;
            }
            if let Next::Go(stage) = next {
                let renews = matches!(case.operation, Operation::Renew(_));
                let in_vain = case.how == How::Look && case.tries == TRIES_OF_RENEWALS;
                let stands = match stage {
                    Stage::Try => true,
                    Stage::Stripe { create } => renews && in_vain && !create,
                    Stage::Create => false,
                    Stage::Row => !renews,
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
            if decided && case.row.is_some_and(|row| row.granted.is_some()) {
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

    /// The way of a request that never has its row.
    fn way(operation: &Operation, seen: Option<RowState>) -> (Vec<Stage>, Next) {
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
        let (stages, _) = way(&release(true), mine);
        assert_eq!(
            stages[..4],
            [Stage::Try, Stage::Try, Stage::Try, Stage::Row]
        );
        let (stages, end) = way(&renew(), mine);
        let (tried, stood) = stages.split_at(1 + usize::from(TRIES_OF_RENEWALS));
        assert!(tried.iter().all(|stage| *stage == Stage::Try));
        let line = Stage::Stripe { create: false };
        assert_eq!(stood, [line; 1 + TRIES as usize]);
        let leased = Outcome::Leased {
            remaining: 5,
            wanted: 0,
            renewed: false,
        };
        assert_eq!(end, Next::Answer(leased));
    }

    #[test]
    fn a_missing_stripe_is_looked_for() {
        let (stages, end) = way(&count(), None);
        let line = Stage::Stripe { create: true };
        assert_eq!(stages, [Stage::Try, Stage::Create, line]);
        assert_eq!(end, Next::FindStripe);
    }
}
