//! What became of an operation: as its batch decided, or judged from its row as it was read later.
//!
//! A row that was skipped because another transaction held it is read later. It looks like one that was refused,
//! except that nothing in it speaks against the operation: that is how "busy" is told from "no".

use crate::clock::Moment;
use crate::mutant::{self, Mutant};
use crate::sql::operation::Operation;
use crate::sql::reply::{ACTIVE, RowState};

/// What an operation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The lock is ours; the tokens of the block end at `fence`. Microseconds until the deadline.
    Granted {
        fence: u64,
        remaining: i64,
        wanted: i64,
    },
    /// The lock is somebody else's.
    Held(RowState),
    /// The row stayed locked: by a transaction of an application, as a rule.
    Busy,
    /// Microseconds for which another process says that it waits.
    Released {
        fence: u64,
        wanted: i64,
    },
    /// The lock was not ours any more.
    NotHeld,
    /// The lease is ours for this long.
    Leased {
        remaining: i64,
        wanted: i64,
    },
    /// A counter moved.
    Counted {
        previous: i64,
        value: i64,
    },
    /// A counter's value did not lie within the bounds.
    OutOfBounds {
        value: i64,
    },
    /// The operation's id stands for another operation.
    Mismatch,
    Done,
}

/// An outcome, and when the packet that brought it about was sent.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) outcome: Outcome,
    pub(crate) sent: Moment,
    /// The reply was lost, and the outcome was read from the row later: others may have changed it since.
    pub(crate) settled: bool,
}

/// What to do about one operation of a batch that ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Final(Outcome),
    /// There is no row: run it again, and create one.
    Missing,
    /// The row was skipped.
    Busy,
}

impl Verdict {
    /// Whether what was not carried out may be when it runs again, since nothing in the row speaks against it: the row was locked.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Busy | Self::Final(Outcome::Leased { .. }))
    }
}

/// Judges `operation` by its row: as the batch found it and decided, or as it was read later.
pub(crate) fn judge(operation: &Operation, row: Option<&RowState>) -> Verdict {
    let Some(row) = row else {
        return match operation {
            operation if operation.creates() => Verdict::Missing,
            Operation::Renew(_) | Operation::Release(_) | Operation::ForceRelease(_) => {
                Verdict::Final(Outcome::NotHeld)
            }
            _ => Verdict::Final(Outcome::Done),
        };
    };
    if let Some(at) = row.granted {
        return Verdict::Final(carried_out(operation, row, at));
    }
    match operation {
        Operation::Acquire(acquire) => {
            let marked = acquire.level.is_none_or(|mark| row.previous == mark);
            if row.mine && row.status == ACTIVE && marked {
                Verdict::Final(Outcome::Granted {
                    fence: row.fence,
                    remaining: row.remaining,
                    wanted: row.wanted,
                })
            } else if row.is_free() || (acquire.level.is_some() && row.mine && row.status == ACTIVE)
            {
                Verdict::Busy
            } else {
                Verdict::Final(Outcome::Held(*row))
            }
        }
        Operation::Release(release) => {
            // Released by this operation, or before by the holder's own transaction.
            let before = row.status != ACTIVE && row.fence == release.used;
            let marked = release.level.is_some_and(|mark| row.previous == mark);
            if row.mine && (marked || before) {
                Verdict::Final(released(row))
            } else if row.mine && row.status == ACTIVE && row.fence == release.fence {
                Verdict::Busy
            } else {
                Verdict::Final(Outcome::NotHeld)
            }
        }
        Operation::Renew(renew) => {
            let ours = row.mine && row.status == ACTIVE && row.fence == renew.fence;
            if ours && row.remaining > 0 {
                // Skipped or not: the deadline that stands in the row is what holds.
                Verdict::Final(Outcome::Leased {
                    remaining: row.remaining,
                    wanted: row.wanted,
                })
            } else if row.mine && row.status != ACTIVE && row.fence <= renew.fence {
                // The holder's own transaction released it; a release by force changes the holder.
                Verdict::Final(released(row))
            } else {
                Verdict::Final(Outcome::NotHeld)
            }
        }
        Operation::ForceRelease(force) => {
            if row.mine {
                Verdict::Final(released(row))
            } else if row.status != crate::sql::reply::FREE && row.fence == force.fence {
                Verdict::Busy
            } else {
                Verdict::Final(Outcome::NotHeld)
            }
        }
        Operation::Count(count) => {
            if row.mine {
                Verdict::Final(Outcome::Counted {
                    previous: row.previous,
                    value: row.count,
                })
            } else if (count.low..=count.high).contains(&row.value()) {
                Verdict::Busy
            } else {
                Verdict::Final(Outcome::OutOfBounds { value: row.value() })
            }
        }
        Operation::Once(_) => {
            if row.status != ACTIVE || row.remaining <= 0 {
                Verdict::Busy
            } else if !row.mine {
                Verdict::Final(Outcome::Mismatch)
            } else if row.previous == 1 {
                Verdict::Final(Outcome::Counted {
                    previous: row.previous,
                    value: row.count,
                })
            } else {
                Verdict::Final(Outcome::OutOfBounds { value: row.count })
            }
        }
        Operation::Want(_) | Operation::Touch(_) => Verdict::Final(Outcome::Done),
    }
}

/// What an operation came to that was granted `at` that time, from the row before it; see [`crate::sql::reply`].
fn carried_out(operation: &Operation, row: &RowState, at: i64) -> Outcome {
    match operation {
        Operation::Acquire(acquire) => {
            let mine = row.mine && row.status == ACTIVE && row.remaining > 0;
            let deeper = acquire.level.is_some() && mine;
            let block = u64::from(acquire.block);
            Outcome::Granted {
                fence: if deeper {
                    row.fence
                } else if mutant::on(Mutant::FenceNotRaised) {
                    row.fence.max(block)
                } else {
                    let floor = u64::try_from(at).unwrap_or_default();
                    row.fence.max(floor).saturating_add(block)
                },
                // One level deeper never shortens the lease.
                remaining: if deeper {
                    acquire.ttl.max(row.remaining)
                } else {
                    acquire.ttl
                },
                wanted: row.wanted,
            }
        }
        Operation::Release(release) => {
            let more = release.level.is_some() && row.count > 1;
            Outcome::Released {
                fence: if more { row.fence } else { release.used },
                wanted: row.wanted,
            }
        }
        Operation::Renew(renew) => Outcome::Leased {
            remaining: renew.ttl.max(row.remaining),
            wanted: row.wanted,
        },
        Operation::ForceRelease(_) => released(row),
        Operation::Count(_) | Operation::Once(_) => Outcome::Counted {
            previous: row.previous,
            value: row.count,
        },
        Operation::Want(_) | Operation::Touch(_) => Outcome::Done,
    }
}

fn released(row: &RowState) -> Outcome {
    Outcome::Released {
        fence: row.fence,
        wanted: row.wanted,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sql::operation::{Acquire, Change, Count, Release, Renew};
    use crate::sql::reply::{FREE, KEPT};
    use crate::token::Token;

    const HELD: RowState = RowState {
        granted: None,
        status: ACTIVE,
        mine: false,
        fence: 100,
        remaining: 1_000,
        previous: 7,
        count: 1,
        wanted: 0,
        client: 0,
    };

    fn acquire(reentrant: bool) -> Operation {
        Operation::Acquire(Acquire {
            token: Token::random(),
            ttl: 1,
            block: 1,
            level: reentrant.then_some(7),
            gives_way: true,
            queues: false,
            description: Arc::from(""),
            held_by: Arc::from(""),
        })
    }

    fn count(low: i64, high: i64) -> Operation {
        Operation::Count(Count {
            token: Token::random(),
            low,
            high,
            change: Change::Set { value: 0 },
            window: 0,
            restart: false,
        })
    }

    #[test]
    fn an_acquire_is_told_by_its_token() {
        let mine = RowState { mine: true, ..HELD };
        let granted = Outcome::Granted {
            fence: 100,
            remaining: 1_000,
            wanted: 0,
        };
        assert_eq!(
            judge(&acquire(false), Some(&mine)),
            Verdict::Final(granted.clone())
        );
        assert_eq!(judge(&acquire(true), Some(&mine)), Verdict::Final(granted));
        assert_eq!(
            judge(&acquire(false), Some(&HELD)),
            Verdict::Final(Outcome::Held(HELD))
        );
        assert_eq!(judge(&acquire(false), None), Verdict::Missing);
    }

    #[test]
    fn an_acquire_that_nothing_speaks_against_was_skipped() {
        let expired = RowState {
            remaining: 0,
            ..HELD
        };
        let free = RowState {
            status: FREE,
            ..HELD
        };
        let other_level = RowState {
            mine: true,
            previous: 8,
            ..HELD
        };
        assert_eq!(judge(&acquire(false), Some(&expired)), Verdict::Busy);
        assert_eq!(judge(&acquire(false), Some(&free)), Verdict::Busy);
        assert_eq!(judge(&acquire(true), Some(&other_level)), Verdict::Busy);
    }

    #[test]
    fn a_minimum_hold_refuses() {
        let kept = RowState {
            status: KEPT,
            ..HELD
        };
        assert_eq!(
            judge(&acquire(false), Some(&kept)),
            Verdict::Final(Outcome::Held(kept))
        );
    }

    #[test]
    fn a_release_is_told_by_what_it_left() {
        let release = Operation::Release(Release {
            token: Token::random(),
            fence: 100,
            used: 98,
            hold: 0,
            level: None,
        });
        let free = RowState {
            mine: true,
            status: FREE,
            fence: 98,
            ..HELD
        };
        assert_eq!(
            judge(&release, Some(&free)),
            Verdict::Final(released(&free))
        );
        let skipped = RowState {
            mine: true,
            previous: 1,
            ..HELD
        };
        assert_eq!(judge(&release, Some(&skipped)), Verdict::Busy);
        assert_eq!(
            judge(&release, Some(&HELD)),
            Verdict::Final(Outcome::NotHeld)
        );
        assert_eq!(judge(&release, None), Verdict::Final(Outcome::NotHeld));
    }

    #[test]
    fn a_renewal_trusts_what_stands_in_the_row() {
        let renew = Operation::Renew(Renew {
            token: Token::random(),
            fence: 100,
            ttl: 5,
        });
        let mine = RowState { mine: true, ..HELD };
        assert_eq!(
            judge(&renew, Some(&mine)),
            Verdict::Final(Outcome::Leased {
                remaining: 1_000,
                wanted: 0
            })
        );
        for lost in [
            HELD,
            RowState {
                mine: true,
                remaining: 0,
                ..HELD
            },
            RowState {
                mine: true,
                fence: 101,
                ..HELD
            },
        ] {
            assert_eq!(judge(&renew, Some(&lost)), Verdict::Final(Outcome::NotHeld));
        }
    }

    #[test]
    fn a_counter_within_its_bounds_was_skipped() {
        let row = RowState { count: 5, ..HELD };
        assert_eq!(judge(&count(0, 10), Some(&row)), Verdict::Busy);
        assert_eq!(
            judge(&count(6, 10), Some(&row)),
            Verdict::Final(Outcome::OutOfBounds { value: 5 })
        );
        let ended = RowState {
            remaining: -1,
            ..row
        };
        assert_eq!(
            judge(&count(6, 10), Some(&ended)),
            Verdict::Final(Outcome::OutOfBounds { value: 0 })
        );
        let mine = RowState { mine: true, ..row };
        assert_eq!(
            judge(&count(6, 10), Some(&mine)),
            Verdict::Final(Outcome::Counted {
                previous: 7,
                value: 5
            })
        );
    }

    #[test]
    fn what_is_granted_follows_from_the_row_before() {
        let granted = RowState {
            granted: Some(5_000),
            remaining: -1,
            wanted: 3,
            ..HELD
        };
        let outcome = |operation: &Operation, row: RowState| match judge(operation, Some(&row)) {
            Verdict::Final(outcome) => outcome,
            other => panic!("{other:?}"),
        };
        let grant = |fence, remaining| Outcome::Granted {
            fence,
            remaining,
            wanted: 3,
        };
        // One above the time or the row's fence, by the server's arithmetic; the ttl from now on.
        assert_eq!(outcome(&acquire(false), granted), grant(5_001, 1));
        let ahead = RowState {
            fence: 9_000,
            ..granted
        };
        assert_eq!(outcome(&acquire(true), ahead), grant(9_001, 1));
        // One level deeper keeps the grant, and never shortens the lease.
        let deeper = RowState {
            mine: true,
            remaining: 700,
            ..granted
        };
        assert_eq!(outcome(&acquire(true), deeper), grant(100, 700));
        let ended = RowState {
            mine: true,
            ..granted
        };
        assert_eq!(outcome(&acquire(true), ended), grant(5_001, 1));
        let release = |level| {
            Operation::Release(Release {
                token: Token::random(),
                fence: 100,
                used: 98,
                hold: 0,
                level,
            })
        };
        let released = |fence| Outcome::Released { fence, wanted: 3 };
        let twice = RowState {
            count: 2,
            ..granted
        };
        assert_eq!(outcome(&release(None), granted), released(98));
        assert_eq!(outcome(&release(Some(1)), granted), released(98));
        assert_eq!(outcome(&release(Some(1)), twice), released(100));
        let renew = Operation::Renew(Renew {
            token: Token::random(),
            fence: 100,
            ttl: 5,
        });
        for (remaining, then) in [(2, 5), (9, 9)] {
            let leased = Outcome::Leased {
                remaining: then,
                wanted: 3,
            };
            let row = RowState {
                remaining,
                ..granted
            };
            assert_eq!(outcome(&renew, row), leased);
        }
        let counted = Outcome::Counted {
            previous: 7,
            value: 1,
        };
        assert_eq!(outcome(&count(0, 10), granted), counted);
    }
}
