//! Takes a counter's value away: its row is as it was created, until a purge takes that too.

use super::Assignments;
use crate::sql::NEVER;
use crate::sql::list::ListRow;
use crate::sql::outcome::{Judgment, Outcome};
use crate::sql::reply::RowState;
use crate::sql::row::{UNSET, VALUE};
use crate::token::Token;

/// Deletes a counter that was set.
#[derive(Clone, Debug)]
pub(crate) struct Delete {
    pub(crate) token: Token,
}

impl Delete {
    /// It carries nothing but its token.
    pub(super) fn write<'l>(&self, row: ListRow<'l>) -> ListRow<'l> {
        row
    }

    pub(super) fn condition() -> String {
        format!("NOT({UNSET})")
    }

    /// The value stays in `previous`, for a settlement that comes later.
    pub(super) fn assignments() -> Assignments {
        vec![
            ("previous", VALUE.into()),
            ("count", "0".into()),
            ("deadline", NEVER.into()),
            ("status", "0".into()),
            ("holder", "v.token".into()),
        ]
    }

    pub(super) fn judge(&self, row: &RowState) -> Judgment {
        if row.mine {
            Judgment::Final(deleted(row.previous))
        } else if row.is_unset() {
            Judgment::Final(Outcome::NotSet)
        } else {
            Judgment::Busy
        }
    }

    pub(super) fn carried_out(&self, row: &RowState) -> Outcome {
        deleted(row.value())
    }
}

fn deleted(previous: i64) -> Outcome {
    Outcome::Counted { previous, value: 0 }
}
