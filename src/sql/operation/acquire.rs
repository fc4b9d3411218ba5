//! Takes a lock that is free, expired, or held by the same owner.

use std::sync::Arc;

use super::{Assignments, level, until};
use crate::mutant::{self, Mutant};
use crate::sql::column::Column;
use crate::sql::list::ListRow;
use crate::sql::outcome::{Judgment, Outcome};
use crate::sql::reply::{ACTIVE, IDLES, RowState};
use crate::sql::row::FREE;
use crate::sql::wish::{GivesWay, unwanted};
use crate::token::Token;

/// Takes a lock.
#[derive(Clone, Debug)]
pub(crate) struct Acquire {
    pub(crate) token: Token,
    /// Microseconds.
    pub(crate) ttl: i64,
    /// How many fencing tokens the grant reserves, for turns in memory.
    pub(crate) block: u32,
    /// The token is an owner's: one that holds already goes one level deeper. The number marks this
    /// operation among those of the same owner.
    pub(crate) level: Option<i64>,
    /// It lets those go first for a moment after each release.
    pub(crate) gives_way: GivesWay,
    /// The lease may idle: who wants it rings.
    pub(crate) idles: bool,
    /// It waits at the row, when a transaction of the application holds that.
    pub(crate) queues: bool,
    pub(crate) description: Arc<str>,
    pub(crate) held_by: Arc<str>,
}

/// The same owner holds it.
const MINE: &str = "(t.holder=v.token AND t.status=1 AND t.deadline>{at})";

impl Acquire {
    /// What the row is marked with.
    fn mark(&self) -> i64 {
        self.level.unwrap_or(if self.idles { IDLES } else { 0 })
    }

    pub(super) fn write<'l>(&self, row: ListRow<'l>, not_after: i64) -> ListRow<'l> {
        row.number(Column::NotAfter, not_after)
            .number(Column::GivesWay, self.gives_way.seconds())
            .number(Column::Ttl, self.ttl)
            .number(Column::Block, self.block)
            .number(Column::Level, self.mark())
            .text(Column::Description, &self.description)
            .text(Column::HeldBy, &self.held_by)
    }

    /// Free, expired, or held by the same owner; and not somebody else's next who waits.
    pub(super) fn condition(levels: bool) -> String {
        let free = if mutant::on(Mutant::DeadlineReversed) {
            "t.status=0 OR t.deadline>{at}"
        } else {
            FREE
        };
        let unwanted = unwanted();
        let or_mine = if levels {
            format!(" OR {MINE}")
        } else {
            String::new()
        };
        format!("{{micros}}<=v.not_after AND (({free}) AND ({unwanted}){or_mine})")
    }

    pub(super) fn assignments(levels: bool) -> Assignments {
        let fence = if mutant::on(Mutant::FenceNotRaised) {
            "GREATEST(t.fence,v.block)"
        } else {
            "GREATEST(t.fence,{micros})+v.block"
        };
        // A grant answers the wish; whoever waits on repeats it. So nobody lets somebody go first who has gone.
        let described = |column: &str| {
            if levels {
                // Who entered first may be the last to leave.
                format!("IF({MINE},t.{column},v.{column})")
            } else {
                format!("v.{column}")
            }
        };
        let mut values = if levels {
            let (count, fresh) = (level::count(), level::fresh());
            let first = u8::from(!mutant::on(Mutant::LevelForgotten));
            vec![
                ("fence", format!("IF({MINE},t.fence,{fence})")),
                ("count", format!("IF({MINE},{count}+1,1)")),
                (
                    "fresh_count",
                    format!("IF({MINE},{fresh}+{},{first})", level::is_new_fresh()),
                ),
                (
                    "stale_until",
                    format!("IF({MINE},{},{{at}})", level::stale_until()),
                ),
                ("wanted_until", format!("IF({MINE},t.wanted_until,{{at}})")),
            ]
        } else {
            vec![
                ("fence", fence.into()),
                ("count", "1".into()),
                ("wanted_until", "{at}".into()),
            ]
        };
        let deadline = if levels {
            // One level deeper never shortens the lease.
            format!("IF({MINE},{},{})", level::deadline(), until("v.ttl"))
        } else {
            until("v.ttl")
        };
        values.extend([
            ("description", described("description")),
            ("held_by", described("held_by")),
            ("deadline", deadline),
            ("status", "1".into()),
            ("previous", "v.level".into()),
            ("holder", "v.token".into()),
        ]);
        values
    }

    pub(super) fn judge(&self, row: &RowState) -> Judgment {
        let ours = row.mine && row.status == ACTIVE;
        if ours && self.level.is_none() {
            Judgment::Final(Outcome::Granted {
                fence: row.fence,
                remaining: row.remaining,
                until: row.deadline(),
                wanted: row.wanted,
            })
        } else if row.is_free() || ours {
            Judgment::Busy
        } else {
            Judgment::Final(Outcome::Held(*row))
        }
    }

    pub(super) fn carried_out(&self, row: &RowState) -> Outcome {
        let mine = row.mine && row.status == ACTIVE && row.remaining > 0;
        let deeper = self.level.is_some() && mine;
        let block = u64::from(self.block);
        // One level deeper never shortens the lease.
        let remaining = if deeper {
            self.ttl.max(row.remaining)
        } else {
            self.ttl
        };
        Outcome::Granted {
            fence: if deeper {
                row.fence
            } else if mutant::on(Mutant::FenceNotRaised) {
                row.fence.max(block)
            } else {
                let floor = u64::try_from(row.at).unwrap_or_default();
                row.fence.max(floor).saturating_add(block)
            },
            remaining,
            until: row.at.saturating_add(remaining),
            wanted: row.wanted,
        }
    }
}
