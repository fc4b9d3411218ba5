//! Frees a lock that is taken, whoever holds it, if the grant is still the one that was seen.

use super::{Assignments, released};
use crate::sql::NOW;
use crate::sql::column::Column;
use crate::sql::list::ListRow;
use crate::sql::outcome::{Judgment, Outcome};
use crate::sql::reply::RowState;
use crate::token::Token;

/// Frees a lock, whoever holds it.
#[derive(Clone, Debug)]
pub(crate) struct ForceRelease {
    pub(crate) token: Token,
    pub(crate) fence: u64,
}

impl ForceRelease {
    pub(super) fn write<'l>(&self, row: ListRow<'l>) -> ListRow<'l> {
        row.number(Column::Fence, self.fence)
    }

    pub(super) fn condition() -> String {
        "t.status<>0 AND t.deadline>{at} AND t.fence=v.fence".into()
    }

    /// The holder's token is replaced: a later release of the old guard finds that the lock is not its own.
    pub(super) fn assignments() -> Assignments {
        vec![
            ("holder", "v.token".into()),
            ("status", "0".into()),
            ("count", "0".into()),
            ("deadline", NOW.into()),
        ]
    }

    pub(super) fn judge(&self, row: &RowState) -> Judgment {
        if row.mine {
            Judgment::Final(released(row))
        } else if !row.is_free() && row.fence == self.fence {
            Judgment::Busy
        } else {
            Judgment::Final(Outcome::NotHeld)
        }
    }
}
