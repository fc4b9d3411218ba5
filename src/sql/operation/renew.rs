//! Moves the deadline of a lease that has not ended.

use super::{Assignments, released, until};
use crate::mutant::{self, Mutant};
use crate::sql::column::Column;
use crate::sql::list::Row;
use crate::sql::outcome::{Outcome, Verdict};
use crate::sql::reply::{ACTIVE, RowState};
use crate::sql::row::HELD;
use crate::token::Token;

/// Moves the deadline of a lease that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Renew {
    pub(crate) token: Token,
    pub(crate) fence: u64,
    /// Microseconds.
    pub(crate) ttl: i64,
}

impl Renew {
    pub(super) fn write<'l>(&self, row: Row<'l>) -> Row<'l> {
        row.number(Column::Fence, self.fence)
            .number(Column::Ttl, self.ttl)
    }

    /// A lease that has ended is not revived.
    pub(super) fn condition() -> String {
        if mutant::on(Mutant::RenewalAfterRelease) {
            return "t.holder=v.token".into();
        }
        format!("{HELD} AND t.deadline>{{at}}")
    }

    /// Never to an earlier time.
    pub(super) fn assignments() -> Assignments {
        let deadline = format!("GREATEST(t.deadline,{})", until("v.ttl"));
        let mut values = vec![("deadline", deadline)];
        if mutant::on(Mutant::RenewalAfterRelease) {
            values.push(("status", "1".into()));
            values.push(("fence", "v.fence".into()));
        }
        values
    }

    pub(super) fn judge(&self, row: &RowState) -> Verdict {
        let ours = row.mine && row.status == ACTIVE && row.fence == self.fence;
        if ours && row.remaining > 0 {
            // Skipped or not: the deadline that stands in the row is what holds.
            Verdict::Final(Outcome::Leased {
                remaining: row.remaining,
                wanted: row.wanted,
                renewed: false,
            })
        } else if row.mine && row.status != ACTIVE && row.fence <= self.fence {
            // The holder's own transaction released it; a release by force changes the holder.
            Verdict::Final(released(row))
        } else {
            Verdict::Final(Outcome::NotHeld)
        }
    }

    pub(super) fn carried_out(&self, row: &RowState) -> Outcome {
        Outcome::Leased {
            remaining: self.ttl.max(row.remaining),
            wanted: row.wanted,
            renewed: true,
        }
    }
}
