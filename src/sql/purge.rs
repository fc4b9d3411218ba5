//! Deleting rows that nobody needs any more, in small steps.
//!
//! A step is a packet like any other: it locks its stripes in ascending order, then rows by their full
//! primary key, skipping those that are locked. Before it deletes, it raises the floor in the stripe
//! rows to the highest fence that goes: the name's next token is still higher than its last. It commits only if the
//! server says that it has raised the floor of each ([`super::script`]).

use std::collections::BTreeMap;

use super::column::Column;
use super::dialect::Dialect;
use super::list::{List, Query};
use super::reply::SHARED;
use super::row::{self, FREE, Kind};
use super::script::{Packet, Script};
use super::{NOW, literal, shut};
use crate::mutant::{self, Mutant};
use crate::name::Name;
use crate::stripe::Stripe;

/// A row that may go, as a page showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Doomed {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) slot: u32,
    pub(crate) stripe: Stripe,
    pub(crate) fence: u64,
}

/// Where nobody needs row `t`, however young it is.
///
/// A lock may go when it is free, the slot of a job when nobody is at it, done (`done`, if there are slots of jobs) or not, an operation's id when its
/// retention has ended, a shared hold when it has, a counter when its deadline has passed: it was never set, was deleted, or its window has ended. Its
/// value is 0 then, with its row or without; but one whose window has ended was set as long as it had its row. Other counters never go: they are data.
fn unneeded(done: &str) -> String {
    format!(
        "t.kind=1 AND ({}) OR t.kind>1 AND t.deadline<={NOW}{done}",
        row::now(FREE)
    )
}

/// Where nothing has changed a row for `age` microseconds. `row` stands before its columns.
fn unchanged(row: &str, age: i64) -> String {
    format!("TIMESTAMPDIFF(MICROSECOND,{row}modify_time,{NOW})>={age}")
}

/// A page of rows behind `(name, kind, slot)`, whether they may go or not: name, kind, fence, whether it may go (1), or is a door that was held
/// shared, whose holds have all ended and which may go when it is [freed](close) (2); and the slot. It locks nothing.
///
/// What a purge takes and what is counted beforehand come from this one text.
pub(crate) fn page(after: Option<&(String, u8, u32)>, age: i64, limit: u32) -> String {
    let mut sql = format!(
        "SELECT t.lock_name,t.kind,t.fence,IF(t.kind=1 AND t.status={SHARED},IF({},0,2),{})*({}),t.slot \
         FROM t_tag_lock t FORCE INDEX(PRIMARY)",
        shut::is_running(),
        unneeded(&row::or_done("t.")),
        unchanged("t.", age)
    );
    if let Some((name, kind, slot)) = after {
        sql.push_str(" WHERE t.lock_name>");
        literal::text(&mut sql, name);
        sql.push_str(" OR (t.lock_name=");
        literal::text(&mut sql, name);
        sql.push_str(" AND (t.kind>");
        literal::number(&mut sql, *kind);
        sql.push_str(" OR t.kind=");
        literal::number(&mut sql, *kind);
        sql.push_str(" AND t.slot>");
        literal::number(&mut sql, *slot);
        sql.push_str("))");
    }
    sql.push_str(" ORDER BY t.lock_name,t.kind,t.slot LIMIT ");
    literal::number(&mut sql, limit);
    sql.push_str(";COMMIT");
    sql
}

/// The packet that deletes rows, if they are still as they were seen. It answers how many.
pub(crate) fn step(rows: &[Doomed], age: i64, dialect: Dialect) -> Packet {
    let mut floors: BTreeMap<Stripe, u64> = BTreeMap::new();
    for row in rows {
        let floor = floors.entry(row.stripe).or_default();
        *floor = (*floor).max(row.fence);
    }
    let floors: Vec<(Stripe, u64)> = floors.into_iter().collect();
    let mut script = Script::transaction(dialect, None, 256 * rows.len() + 4096);
    script.lock_stripes_of(rows.iter().map(|row| row.stripe).collect());
    // The stripes are locked by now, in their order.
    script.change(|script| {
        let list = List::new(
            &[Column::Name, Column::Fence],
            &floors,
            |row, (stripe, floor)| {
                row.text(Column::Name, &stripe.to_string())
                    .number(Column::Fence, *floor)
            },
        );
        let floor = if mutant::on(Mutant::PurgeForgetsFloor) {
            ""
        } else {
            ",t_tag_lock.count=GREATEST(t_tag_lock.count,v.fence)"
        };
        script.push("INSERT INTO t_tag_lock (lock_name,kind,slot) ");
        list.all().query(
            script,
            Query {
                select: "SELECT s.lock_name,0,0",
                table: "t_tag_lock s FORCE INDEX(PRIMARY)",
                key: "s.lock_name=v.name AND s.kind=0 AND s.slot=0",
                tail: &format!(" ON DUPLICATE KEY UPDATE t_tag_lock.modify_time={NOW}{floor}"),
                ..Query::default()
            },
        );
    });
    // Each of them, or nothing is deleted: tokens would go back.
    script.expect(&(2 * floors.len()).to_string());
    let done = if rows.iter().any(|row| row.kind == Kind::Job) {
        row::or_done("t.")
    } else {
        String::new()
    };
    let (slot, also) = if rows.iter().any(|row| row.kind == Kind::Shared) {
        ("v.slot", ",t.slot AS s")
    } else {
        ("0", "")
    };
    let same = if also.is_empty() { "0" } else { "k.s" };
    script.statement(|script| {
        let list = List::new(
            &[Column::Name, Column::Kind, Column::Slot, Column::Fence],
            rows,
            |entry, row| {
                entry
                    .text(Column::Name, &row.name)
                    .number(Column::Kind, row.kind as u8)
                    .number(Column::Slot, row.slot)
                    .number(Column::Fence, row.fence)
            },
        );
        script.push("DELETE u FROM (");
        list.all().query(
            script,
            Query {
                select: &format!("SELECT t.lock_name AS n,t.kind AS k{also}"),
                table: "t_tag_lock t FORCE INDEX(PRIMARY)",
                key: &format!(
                    "t.lock_name=v.name AND t.kind=v.kind AND t.slot={slot} AND t.fence=v.fence"
                ),
                ..Query::default()
            },
        );
        script.push(&format!(
            " AND ({}) AND {} \
             LIMIT 1000000 FOR UPDATE SKIP LOCKED) k \
             STRAIGHT_JOIN t_tag_lock u FORCE INDEX(PRIMARY) \
             ON u.lock_name=k.n AND u.kind=k.k AND u.slot={same}",
            unneeded(&done),
            unchanged("t.", age)
        ));
    });
    answer_deleted(script)
}

/// The packet that frees a door that was held shared, if all shared holds have ended and it is as it was seen. It answers whether it did; then
/// the door may go as any lock that is free.
pub(crate) fn close(name: &Name, fence: u64, age: i64, dialect: Dialect) -> Packet {
    let mut script = Script::transaction(dialect, None, 4096);
    script.reach_shared(name);
    let mut of = String::new();
    literal::text(&mut of, name.as_str());
    // With the count, the mark: no count of an earlier packet decides.
    let mark = script.mark();
    script.statement(|script| {
        script.push(&format!(
            "SELECT {mark},COUNT(*) INTO @tag_lock_closing,@tag_lock_closes FROM t_tag_lock t WHERE t.lock_name={of} AND t.kind=1 AND t.slot=0 \
             AND t.status={SHARED} AND t.fence={fence} AND {} AND {}",
            unchanged("t.", age),
            shut::ended()
        ));
    });
    script.require_mark("@tag_lock_closing");
    script.change(|script| {
        script.push(&format!(
            "INSERT INTO t_tag_lock (lock_name,kind,slot) SELECT {of},1,0 FROM DUAL WHERE @tag_lock_closes=1 \
             ON DUPLICATE KEY UPDATE t_tag_lock.status=0,t_tag_lock.count=0,t_tag_lock.deadline=t_tag_lock.modify_time"
        ));
    });
    script.expect("2*@tag_lock_closes");
    script.free_shared(name, "@tag_lock_closes=1");
    script.commit("@tag_lock_closes")
}

/// The lanes that nobody has used for `age` microseconds.
pub(crate) fn idle_lanes(age: i64, limit: u32) -> String {
    format!(
        "SELECT HEX(id) FROM t_tag_lock_lane WHERE {} LIMIT {limit};COMMIT",
        unchanged("", age)
    )
}

/// How many lanes nobody has used for `age` microseconds. It locks nothing.
pub(crate) fn count_idle_lanes(age: i64) -> String {
    format!(
        "SELECT CAST(COUNT(*) AS CHAR) FROM t_tag_lock_lane WHERE {};COMMIT",
        unchanged("", age)
    )
}

/// The packet that deletes one lane if it is still unused. It answers how many that were.
pub(crate) fn delete_lane(id: &[u8], age: i64, dialect: Dialect) -> Packet {
    let mut hex = String::new();
    literal::bytes(&mut hex, id);
    let mut script = Script::transaction(dialect, None, 1024);
    script.statement(|script| {
        script.push(&format!(
            "DELETE u FROM (SELECT id FROM t_tag_lock_lane WHERE id={hex} \
             AND {} LIMIT 1 FOR UPDATE SKIP LOCKED) k \
             STRAIGHT_JOIN t_tag_lock_lane u FORCE INDEX(PRIMARY) ON u.id=k.id",
            unchanged("", age)
        ));
    });
    answer_deleted(script)
}

/// Commits, and answers how many rows the last statement deleted.
fn answer_deleted(mut script: Script<'_>) -> Packet {
    let mark = script.mark();
    script.statement(|script| {
        script.push(&format!(
            "SELECT {mark},ROW_COUNT() INTO @tag_lock_purged,@tag_lock_deleted"
        ));
    });
    script.require_mark("@tag_lock_purged");
    script.commit("@tag_lock_deleted")
}
