//! Shared holds of a lock: the lock's own row is the door, and each process that holds it has a row of its own.
//!
//! A door with the status [`SHARED`] says "ask the shared rows". A shared row becomes active in a packet that has locked the door
//! ([`Open`] or [`Downgrade`], and [`Share`], all or none). Its renewals and its release touch that row only.

use std::sync::Arc;

use super::{Assignments, released, until};
use crate::mutant::{self, Mutant};
use crate::sql::FOREVER;
use crate::sql::column::Column;
use crate::sql::list::ListRow;
use crate::sql::outcome::{Judgment, Outcome};
use crate::sql::reply::{ACTIVE, RowState, SHARED};
use crate::sql::row::{FREE, HELD};
use crate::sql::shut;
use crate::sql::wish::{GivesWay, unwanted};
use crate::timing::{DRAIN, GIVE_WAY, LONGEST_WISH, READERS_TURN};
use crate::token::Token;

/// Above all tokens of the door and of the shared row; both become it.
const FENCE: &str = "GREATEST(t.fence,@tag_lock_fence,{micros})+1";

/// Opens a door for shared holds, or finds it open. The packet makes a shared row active, or does neither.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// It lets those go first that wait already.
    pub(crate) gives_way: GivesWay,
}

impl Open {
    pub(super) fn write<'l>(&self, row: ListRow<'l>, not_after: i64) -> ListRow<'l> {
        row.number(Column::NotAfter, not_after)
            .number(Column::GivesWay, self.gives_way.seconds())
    }

    /// Held shared, and no writer wishes that nobody enters, or this is the readers' turn; or free, and not [freed](Close) just now for a writer.
    /// A wish, or a turn, that is further ahead than any ever is, is of a clock that has gone back since.
    pub(super) fn condition() -> String {
        let unwanted = unwanted();
        let turn = READERS_TURN.as_micros();
        let (ahead, late) = (LONGEST_WISH.as_micros(), DRAIN.as_micros());
        let (enters, opens) = if mutant::on(Mutant::WishUnheard) {
            (String::new(), String::new())
        } else {
            let unheard = format!("(t.count<={{micros}} OR t.count>{{micros}}+{ahead})");
            let turn = format!("t.previous>{{micros}}-{turn} AND t.previous<={{micros}}+{late}");
            (
                format!(" AND ({unheard} OR {turn})"),
                format!(" AND {unheard}"),
            )
        };
        let held = if mutant::on(Mutant::DoorOpensHeld) {
            " OR t.status=1"
        } else {
            ""
        };
        format!(
            "{{micros}}<=v.not_after AND (t.status={SHARED}{enters} \
             OR ({FREE}) AND ({unwanted}){opens}{held})"
        )
    }

    pub(super) fn assignments() -> Assignments {
        let opens = |column: &str, value: &str| format!("IF(t.status={SHARED},t.{column},{value})");
        let mut values = vec![
            ("fence", FENCE.into()),
            ("count", opens("count", "0")),
            ("previous", opens("previous", "{micros}")),
            // It answers the wish; whoever waits on repeats it.
            ("wanted_until", opens("wanted_until", "{at}")),
        ];
        values.extend(open_door(SHARED));
        values
    }

    /// Its row has nobody's token: whether it was carried out later on, the shared row tells.
    pub(super) fn judge(&self, row: &RowState) -> Judgment {
        if self.is_refused_by(row) {
            Judgment::Final(Outcome::Held(*row))
        } else {
            Judgment::Busy
        }
    }

    pub(super) fn is_refused_by(&self, row: &RowState) -> bool {
        !row.admits_shared(self.gives_way)
    }
}

/// What a door is like that is held shared: nobody's, for ever.
fn open_door(status: u8) -> Assignments {
    vec![
        ("description", "''".into()),
        ("held_by", "''".into()),
        ("deadline", FOREVER.into()),
        ("holder", "''".into()),
        ("status", status.to_string()),
    ]
}

/// Makes an exclusive hold a shared one, with a shared row that becomes active in the same packet.
#[derive(Clone, Debug)]
pub(crate) struct Downgrade {
    pub(crate) token: Token,
    pub(crate) fence: u64,
}

impl Downgrade {
    pub(super) fn write<'l>(&self, row: ListRow<'l>, not_after: i64) -> ListRow<'l> {
        row.number(Column::NotAfter, not_after)
            .number(Column::Fence, self.fence)
    }

    pub(super) fn condition() -> String {
        format!("{{micros}}<=v.not_after AND {HELD} AND t.deadline>{{at}}")
    }

    pub(super) fn assignments() -> Assignments {
        let mut values = vec![
            ("fence", FENCE.into()),
            ("count", "0".into()),
            ("previous", "{micros}".into()),
        ];
        values.extend(open_door(if mutant::on(Mutant::DowngradeFrees) {
            0
        } else {
            SHARED
        }));
        values
    }

    pub(super) fn judge(&self, row: &RowState) -> Judgment {
        if self.is_refused_by(row) {
            Judgment::Final(Outcome::NotHeld)
        } else {
            Judgment::Busy
        }
    }

    pub(super) fn is_refused_by(&self, row: &RowState) -> bool {
        let ours = row.mine && row.status == ACTIVE && row.fence == self.fence;
        !ours || row.remaining <= 0
    }
}

/// Makes a shared row active, in a packet that has locked the door.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) token: Token,
    /// Microseconds.
    pub(crate) ttl: i64,
    pub(crate) description: Arc<str>,
    pub(crate) held_by: Arc<str>,
}

impl Share {
    pub(super) fn write<'l>(&self, row: ListRow<'l>) -> ListRow<'l> {
        row.number(Column::Ttl, self.ttl)
            .text(Column::Description, &self.description)
            .text(Column::HeldBy, &self.held_by)
    }

    pub(super) fn condition() -> String {
        FREE.into()
    }

    pub(super) fn assignments() -> Assignments {
        vec![
            ("fence", FENCE.into()),
            ("count", "1".into()),
            ("description", "v.description".into()),
            ("held_by", "v.held_by".into()),
            ("deadline", until("v.ttl")),
            ("status", "1".into()),
            ("previous", "0".into()),
            ("holder", "v.token".into()),
        ]
    }

    pub(super) fn judge(&self, row: &RowState) -> Judgment {
        if row.mine && row.status == ACTIVE {
            Judgment::Final(Outcome::Granted {
                fence: row.fence,
                remaining: row.remaining,
                until: row.deadline(),
                wanted: 0,
            })
        } else if row.is_free() {
            Judgment::Busy
        } else {
            Judgment::Final(Outcome::Held(*row))
        }
    }

    /// `highest`: the highest fence of the packet's rows.
    pub(crate) fn granted(&self, row: &RowState, highest: u64) -> Outcome {
        let floor = u64::try_from(row.at).unwrap_or_default();
        Outcome::Granted {
            fence: highest.max(floor).saturating_add(1),
            remaining: self.ttl,
            until: row.at.saturating_add(self.ttl),
            wanted: 0,
        }
    }
}

/// Frees a door that was held shared, with its shared rows: if all of them have ended, or whoever holds it.
#[derive(Clone, Debug)]
pub(crate) struct Close {
    pub(crate) forced: bool,
}

impl Close {
    pub(super) fn condition(forced: bool) -> String {
        let all = if forced { shut::all() } else { shut::ended() };
        format!("t.status={SHARED} AND {all}")
    }

    /// Who frees it takes it next, by another packet or in a transaction: until then nobody is to read.
    pub(super) fn assignments(forced: bool) -> Assignments {
        let for_a_writer = || format!("{{micros}}+{}", GIVE_WAY.as_micros());
        vec![
            ("count", if forced { "0".into() } else { for_a_writer() }),
            ("deadline", "{at}".into()),
            ("status", "0".into()),
        ]
    }

    pub(super) fn judge(&self, row: &RowState) -> Judgment {
        if self.is_refused_by(row) {
            Judgment::Final(Outcome::Held(*row))
        } else {
            // By this, or before.
            Judgment::Final(released(row))
        }
    }
}

impl Close {
    /// Whoever frees it by force is told whether there was something to be freed.
    pub(super) fn is_refused_by(&self, row: &RowState) -> bool {
        row.is_shared() || self.forced
    }
}

/// Takes the door of a lock for itself: also one that was held shared, if all shared holds have ended.
pub(super) fn shuts() -> String {
    let unwanted = unwanted();
    format!(
        "{{micros}}<=v.not_after AND (({FREE}) AND ({unwanted}) OR t.status={SHARED} AND {})",
        shut::ended()
    )
}

/// Says in the door that a writer waits: no shared hold is to begin.
#[derive(Clone, Debug)]
pub(crate) struct Drain {
    /// For how long that is known, in microseconds.
    pub(crate) wait: i64,
}

impl Drain {
    pub(super) fn write<'l>(&self, row: ListRow<'l>) -> ListRow<'l> {
        row.number(Column::Wait, self.wait)
    }

    pub(super) fn condition() -> String {
        format!("t.status={SHARED}")
    }

    /// A wish that was not written, since somebody had the row, is to be.
    pub(super) fn judge(&self, row: &RowState) -> Judgment {
        if row.is_shared() && row.drained_for() < self.wait / 2 {
            Judgment::Busy
        } else {
            Judgment::Final(Outcome::Done)
        }
    }

    pub(super) fn assignments() -> Assignments {
        let ahead = LONGEST_WISH.as_micros();
        let wish = format!(
            "IF(t.count>{{micros}}+{ahead},{{micros}}+v.wait,GREATEST(t.count,{{micros}}+v.wait))"
        );
        vec![("count", wish)]
    }
}
