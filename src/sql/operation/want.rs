//! Says in the row that another process waits.

use super::{Assignments, until};
use crate::sql::column::Column;
use crate::sql::list::Row;

/// Says in the row that another process waits.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    /// For how long that is known, in microseconds.
    pub(crate) wait: i64,
}

impl Want {
    pub(super) fn write<'l>(&self, row: Row<'l>) -> Row<'l> {
        row.number(Column::Wait, self.wait)
    }

    /// A wish is never shortened.
    pub(super) fn assignments() -> Assignments {
        let wish = format!("GREATEST(t.wanted_until,{})", until("v.wait"));
        vec![("wanted_until", wish)]
    }
}
