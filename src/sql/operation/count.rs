//! Changes a counter if its value lies within bounds.

use super::{Assignments, until};
use crate::mutant::{self, Mutant};
use crate::sql::FOREVER;
use crate::sql::column::Column;
use crate::sql::list::ListRow;
use crate::sql::outcome::{Judgment, Outcome};
use crate::sql::reply::RowState;
use crate::sql::row::{BEGINS, VALUE};
use crate::token::Token;

/// What happens to a counter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CounterChange {
    /// Adds `step` as often as the result stays on this side of `edge`, at most `times` times.
    Add { step: i64, times: u32, edge: i64 },
    /// Replaces the value.
    Set { value: i64 },
}

/// Changes a counter if its value lies within `low..=high`.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    pub(crate) token: Token,
    pub(crate) low: i64,
    pub(crate) high: i64,
    pub(crate) change: CounterChange,
    /// The length of the window in microseconds, 0 for none.
    pub(crate) window: i64,
    /// Begins a new window.
    pub(crate) restart: bool,
}

impl Count {
    pub(super) fn write<'l>(&self, row: ListRow<'l>) -> ListRow<'l> {
        let (keeps, step, times, edge) = match self.change {
            CounterChange::Add { step, times, edge } => (1_u8, step, times, edge),
            CounterChange::Set { value } => (0, value, 1, 0),
        };
        row.number(Column::Low, self.low)
            .number(Column::High, self.high)
            .number(Column::Keeps, keeps)
            .number(Column::Step, step)
            .number(Column::Times, times)
            .number(Column::Edge, edge)
            .number(Column::Window, self.window)
            .number(Column::Restart, u8::from(self.restart))
    }

    pub(super) fn condition() -> String {
        if mutant::on(Mutant::RangeUnchecked) {
            return "t.slot=0".into();
        }
        format!("{VALUE} BETWEEN v.low AND v.high")
    }

    /// The arithmetic is DECIMAL, so that no intermediate value leaves its type (error 1690); that the result fits is what
    /// the bounds say.
    pub(super) fn assignments() -> Assignments {
        let step = "CAST(v.step AS DECIMAL(30,0))";
        let times = format!(
            "IF(v.times=1,1,LEAST(ABS({VALUE}-v.edge),v.times*ABS({step})) DIV ABS({step}))"
        );
        let begins = format!("v.restart=1 OR {}", BEGINS.replace("{forever}", FOREVER));
        let ends = format!("IF(v.length>0,{},{FOREVER})", until("v.length"));
        vec![
            ("previous", VALUE.into()),
            ("count", format!("v.keeps*{VALUE}+{step}*{times}")),
            ("deadline", format!("IF({begins},{ends},t.deadline)")),
            ("status", "1".into()),
            ("holder", "v.token".into()),
        ]
    }

    pub(super) fn judge(&self, row: &RowState) -> Judgment {
        if row.mine {
            Judgment::Final(Outcome::Counted {
                previous: row.previous,
                value: row.count,
            })
        } else if (self.low..=self.high).contains(&row.value()) {
            Judgment::Busy
        } else {
            Judgment::Final(Outcome::OutOfBounds { value: row.value() })
        }
    }
}
