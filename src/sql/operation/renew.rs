//! Moves the deadline of a lease that has not ended.

use super::{Assignments, level, released, until};
use crate::mutant::{self, Mutant};
use crate::sql::column::Column;
use crate::sql::list::ListRow;
use crate::sql::outcome::{Judgment, Outcome};
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
    /// Of an owner's level: until when its holder knows the lease to run, in microseconds since 1970 on the server.
    pub(crate) until: Option<i64>,
}

impl Renew {
    pub(super) fn write<'l>(&self, row: ListRow<'l>) -> ListRow<'l> {
        row.number(Column::Fence, self.fence)
            .number(Column::Ttl, self.ttl)
            .number(Column::Until, self.until.unwrap_or_default())
    }

    /// A lease that has ended is not revived.
    pub(super) fn condition(levels: bool) -> String {
        if levels {
            return level::is_held();
        }
        if mutant::on(Mutant::RenewalAfterRelease) {
            return "t.holder=v.token".into();
        }
        format!("{HELD} AND t.deadline>{{at}}")
    }

    /// Never to an earlier time.
    pub(super) fn assignments(levels: bool) -> Assignments {
        if levels {
            let (fresh, becomes) = (level::fresh(), level::becomes_fresh());
            return vec![
                ("count", level::count()),
                ("fresh_count", format!("{fresh}+{becomes}")),
                ("stale_until", level::stale_until()),
                ("deadline", level::deadline()),
            ];
        }
        let deadline = format!("GREATEST(t.deadline,{})", until("v.ttl"));
        let mut values = vec![("deadline", deadline)];
        if mutant::on(Mutant::RenewalAfterRelease) {
            values.push(("status", "1".into()));
            values.push(("fence", "v.fence".into()));
        }
        values
    }

    pub(super) fn judge(&self, row: &RowState) -> Judgment {
        let ours = row.mine && row.status == ACTIVE && row.fence == self.fence;
        // The deadline that stands there may be another level's.
        let told = |until: i64| row.remaining.min(until.saturating_sub(row.at));
        let remaining = self.until.map_or(row.remaining, told);
        if ours && remaining > 0 {
            // Skipped or not: the deadline that stands in the row is what holds.
            Judgment::Final(Outcome::Leased {
                remaining,
                until: row.at.saturating_add(remaining),
                wanted: row.wanted,
                renewed: false,
            })
        } else if row.mine && row.status != ACTIVE && row.fence <= self.fence {
            // The holder's own transaction released it; a release by force changes the holder.
            Judgment::Final(released(row))
        } else {
            Judgment::Final(Outcome::NotHeld)
        }
    }

    pub(super) fn carried_out(&self, row: &RowState) -> Outcome {
        let remaining = self.ttl.max(row.remaining);
        Outcome::Leased {
            remaining,
            until: row.at.saturating_add(remaining),
            wanted: row.wanted,
            renewed: true,
        }
    }
}
