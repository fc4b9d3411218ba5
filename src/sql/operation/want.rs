//! Says in the row that another process waits, or that it does so no more.

use super::{Assignments, until};
use crate::sql::column::Column;
use crate::sql::list::ListRow;
use crate::sql::outcome::{Judgment, Outcome};
use crate::sql::reply::RowState;

/// Says in the row that another process waits.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    /// For how long that is known, in microseconds; 0 takes it back. Others who wait say so again.
    pub(crate) wait: i64,
}

impl Want {
    pub(super) fn write<'l>(&self, row: ListRow<'l>) -> ListRow<'l> {
        row.number(Column::Wait, self.wait)
    }

    /// A wish is never shortened but by an end.
    pub(super) fn assignments() -> Assignments {
        let wish = format!(
            "IF(v.wait>0,GREATEST(t.wanted_until,{}),{{at}})",
            until("v.wait")
        );
        vec![("wanted_until", wish)]
    }

    /// What is to be taken back must be: who comes later would let somebody go first who has gone. A wish that was not written is
    /// repeated after the next look.
    pub(super) fn judge(&self, row: &RowState) -> Judgment {
        if self.wait == 0 && row.wanted > 0 {
            Judgment::Busy
        } else {
            Judgment::Final(Outcome::Done)
        }
    }
}
