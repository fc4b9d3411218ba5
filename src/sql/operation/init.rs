//! Gives a counter its first value.

use super::{Assignments, until};
use crate::sql::FOREVER;
use crate::sql::column::Column;
use crate::sql::list::ListRow;
use crate::sql::outcome::{Judgment, Outcome};
use crate::sql::reply::RowState;
use crate::sql::row::UNSET;
use crate::token::Token;

/// Sets a counter that was never set.
#[derive(Clone, Debug)]
pub(crate) struct Init {
    pub(crate) token: Token,
    pub(crate) value: i64,
    /// The length of the window in microseconds, 0 for none.
    pub(crate) window: i64,
}

impl Init {
    pub(super) fn write<'l>(&self, row: ListRow<'l>) -> ListRow<'l> {
        row.number(Column::Step, self.value)
            .number(Column::Window, self.window)
    }

    pub(super) fn condition() -> String {
        UNSET.into()
    }

    pub(super) fn assignments() -> Assignments {
        vec![
            ("previous", "0".into()),
            ("count", "v.step".into()),
            (
                "deadline",
                format!("IF(v.length>0,{},{FOREVER})", until("v.length")),
            ),
            ("status", "1".into()),
            ("holder", "v.token".into()),
        ]
    }

    pub(super) fn judge(&self, row: &RowState) -> Judgment {
        if row.mine {
            Judgment::Final(self.carried_out())
        } else if row.is_unset() {
            Judgment::Busy
        } else {
            Judgment::Final(Outcome::OutOfBounds { value: row.value() })
        }
    }

    pub(super) fn carried_out(&self) -> Outcome {
        Outcome::Counted {
            previous: 0,
            value: self.value,
        }
    }
}
