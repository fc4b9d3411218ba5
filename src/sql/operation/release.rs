//! Gives a lock back, or one level of it; or the slot of a job, which is done then.

use super::{Assignments, level, released, until};
use crate::mutant::{self, Mutant};
use crate::sql::FOREVER;
use crate::sql::column::Column;
use crate::sql::list::ListRow;
use crate::sql::outcome::{Judgment, Outcome};
use crate::sql::reply::{ACTIVE, DONE, RowState};
use crate::sql::row::HELD;
use crate::token::Token;

/// Gives a lock back, or one level of it.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub(crate) token: Token,
    /// The end of the grant's block: which grant this is.
    pub(crate) fence: u64,
    /// The last fencing token that was used; the rest of the block is given back.
    pub(crate) used: u64,
    /// The lock stays taken for this much longer, in microseconds.
    pub(crate) hold: i64,
    /// The token is an owner's: it may have more levels. The number marks this operation.
    pub(crate) level: Option<i64>,
    /// Of an owner's level: until when its holder knows the lease to run, in microseconds since 1970 on the server.
    pub(crate) until: i64,
    /// It waits at the row, when a transaction of the application holds that.
    pub(crate) queues: bool,
    /// It is the slot of a job, which is done.
    pub(crate) finishes: bool,
}

impl Release {
    pub(super) fn write<'l>(&self, row: ListRow<'l>) -> ListRow<'l> {
        row.number(Column::Fence, self.fence)
            .number(Column::Used, self.used)
            .number(Column::Hold, self.hold)
            .number(Column::Level, self.level.unwrap_or_default())
            .number(Column::Until, self.until)
    }

    pub(super) fn condition(levels: bool) -> String {
        if mutant::on(Mutant::ReleaseOfOthers) {
            return "t.status=1".into();
        }
        if levels {
            // One whose lease has ended may be left out already.
            return level::is_held();
        }
        HELD.into()
    }

    /// The last level frees the lock; with a minimum hold it stays taken.
    pub(super) fn assignments(levels: bool) -> Assignments {
        let (count, fresh) = (level::count(), level::fresh_without_it());
        let last = |otherwise: &str, value: String| {
            if levels {
                format!("IF({count}>1,{otherwise},{value})")
            } else {
                value
            }
        };
        // Where stale levels alone are left, their leases are.
        let deadline = format!("IF({fresh}>0,t.deadline,t.stale_until)");
        let mut values = vec![
            ("fence", last("t.fence", "v.used".into())),
            ("deadline", last(&deadline, until("v.hold"))),
            ("status", last("1", "IF(v.hold>0,2,0)".into())),
        ];
        if levels {
            values.extend([
                // It may have been fresh without knowing.
                ("fresh_count", format!("LEAST({fresh},t.count-1)")),
                ("count", "t.count-1".into()),
            ]);
        } else {
            values.push(("count", "0".into()));
        }
        values.push(("previous", "v.level".into()));
        values
    }

    /// The slot of a job is done, and taken for ever.
    pub(super) fn finished() -> Assignments {
        let deadline = if mutant::on(Mutant::DoneEnds) {
            "t.deadline"
        } else {
            FOREVER
        };
        vec![
            ("fence", "v.used".into()),
            ("deadline", deadline.into()),
            ("status", DONE.to_string()),
            ("count", "0".into()),
            ("previous", "v.level".into()),
        ]
    }

    pub(super) fn judge(&self, row: &RowState) -> Judgment {
        // Released by this operation, or before by the holder's own transaction.
        let over = if self.finishes {
            row.is_done()
        } else {
            row.status != ACTIVE
        };
        let before = over && row.fence == self.used;
        let marked = self.level.is_some_and(|mark| row.previous == mark);
        if row.mine && (marked || before) {
            Judgment::Final(released(row))
        } else if row.mine && row.status == ACTIVE && row.fence == self.fence {
            Judgment::Busy
        } else {
            Judgment::Final(Outcome::NotHeld)
        }
    }

    pub(super) fn carried_out(&self, row: &RowState) -> Outcome {
        let more = self.level.is_some() && row.count > 1;
        Outcome::Released {
            fence: if more { row.fence } else { self.used },
            wanted: row.wanted,
            done: self.finishes,
        }
    }
}
