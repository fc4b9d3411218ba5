//! The door of a lock that is held shared: waiting for it, and shutting it.
//!
//! To shut it, in this order, each in a statement of its own: lock the door, so that no shared row becomes active; lock the rows that are, passing over
//! those that somebody has locked (a renewal may be under way, which no reader of rows sees); and then count, without a lock, those that are
//! active. Only if both counts agree were all of them had, and only what was locked tells truly whether it has ended.
//! `tests/models/shared_model` shows what comes of each of these steps left out.

use super::NOW;
use super::column::Column;
use super::list::{List, Query};
use super::packet::Mode;
use super::row::Kind;
use super::script::Script;
use crate::mutant::{self, Mutant};
use crate::name::Name;

/// The marks of the packet that has locked the door, locked the rows, and counted them.
const MARKS: [&str; 3] = ["@tag_lock_shut", "@tag_lock_reached", "@tag_lock_counted"];

/// The door was had first, and then all shared rows.
pub(super) fn all() -> &'static str {
    if mutant::on(Mutant::LockedShareUnseen) {
        "@tag_lock_door=1"
    } else {
        "@tag_lock_door=1 AND @tag_lock_had=@tag_lock_shared"
    }
}

/// The same, and all of them have ended.
pub(super) fn ended() -> &'static str {
    if mutant::on(Mutant::LiveShareUnseen) {
        all()
    } else if mutant::on(Mutant::LockedShareUnseen) {
        "@tag_lock_door=1 AND @tag_lock_running=0"
    } else {
        "@tag_lock_door=1 AND @tag_lock_had=@tag_lock_shared AND @tag_lock_running=0"
    }
}

/// Whether a shared hold of the door that is row `t` runs, as readers see it: nothing is locked, and who shuts the door looks again.
pub(super) fn is_running() -> String {
    let shared = Kind::Shared as u8;
    format!(
        "EXISTS(SELECT 1 FROM t_tag_lock s FORCE INDEX(PRIMARY) WHERE s.lock_name=t.lock_name AND s.kind={shared} \
         AND s.status<>0 AND s.deadline>{NOW})"
    )
}

impl Script<'_> {
    /// Waits for the door, which transactions and other packets have in their turn.
    pub(super) fn wait_at_the_door(&mut self, name: &Name) {
        const MARK: &str = "@tag_lock_shut";
        let door = Kind::Lock as u8;
        let marked = self.marked();
        self.reach(
            name,
            MARK,
            &format!("SELECT {marked},COUNT(*) INTO {MARK},@tag_lock_door"),
            &format!("t.lock_name=v.name AND t.kind={door} AND t.slot=0"),
            Mode::Wait.lock_rows(),
        );
    }

    /// Locks the door and its shared rows, and leaves what [`all`] and [`ended`] say.
    pub(super) fn reach_shared(&mut self, name: &Name) {
        let door = Kind::Lock as u8;
        let shared = Kind::Shared as u8;
        let [shut, reached, counted] = MARKS;
        let skip = Mode::Skip.lock_rows();
        let marked = self.marked();
        self.reach(
            name,
            shut,
            &format!("SELECT {marked},COUNT(*) INTO {shut},@tag_lock_door"),
            &format!("t.lock_name=v.name AND t.kind={door} AND t.slot=0"),
            skip,
        );
        let rows = format!("t.lock_name=v.name AND t.kind={shared} AND t.status<>0");
        self.reach(
            name,
            reached,
            &format!(
                "SELECT v.mark,COUNT(*),COALESCE(SUM(t.deadline>{NOW}),0) \
                 INTO {reached},@tag_lock_had,@tag_lock_running"
            ),
            &rows,
            skip,
        );
        self.reach(
            name,
            counted,
            &format!("SELECT v.mark,COUNT(*) INTO {counted},@tag_lock_shared"),
            &rows,
            "",
        );
    }

    /// One of these statements. `name` is of one row.
    fn reach(&mut self, name: &Name, mark: &str, select: &str, key: &str, lock: &str) {
        let list = self.name_list(name);
        self.statement(|script| {
            list.all().query(
                script,
                Query {
                    select,
                    table: "t_tag_lock t FORCE INDEX(PRIMARY)",
                    key,
                    tail: lock,
                    ..Query::default()
                },
            );
        });
        self.require_mark(mark);
    }

    fn name_list(&self, name: &Name) -> List {
        let mark = self.mark();
        List::new(&[Column::Name, Column::Mark], &[name], |row, name| {
            row.text(Column::Name, name.as_str())
                .number(Column::Mark, mark)
        })
    }

    /// Frees the shared rows of a door if that was granted to somebody, or freed. Whoever held one finds that its row has another
    /// holder: no transaction of its own revives it.
    pub(super) fn free_shared(&mut self, name: &Name, granted: &str) {
        // It would wait for those whose rows are locked.
        if mutant::on(Mutant::LockedShareUnseen) {
            return;
        }
        let all = all();
        let list = self.name_list(name);
        let shared = Kind::Shared as u8;
        self.change(|script| {
            script.push("INSERT INTO t_tag_lock (lock_name,kind,slot) ");
            list.all().query(
                script,
                Query {
                    select: "SELECT s.lock_name,s.kind,s.slot",
                    table: "t_tag_lock s FORCE INDEX(PRIMARY)",
                    key: "s.lock_name=v.name",
                    and: &format!(" AND s.kind={shared} AND s.status<>0 AND {granted} AND {all}"),
                    tail: " ON DUPLICATE KEY UPDATE t_tag_lock.status=0,t_tag_lock.holder=''",
                    ..Query::default()
                },
            );
        });
        self.expect(&format!("2*@tag_lock_had*({granted} AND {all})"));
    }
}
