//! Additions that run once for an id of the caller's: the id's row and the counter's change together.
//!
//! Several ids of one counter that ask for the same ([`Once::merges_with`]) are added by one statement, in the order of the batch. Each
//! is added at most once, so from the counter's value `x` on, the `r`-th of them finds `x+(r-1)*delta`: a window function numbers
//! those that are new (<https://mariadb.com/kb/en/row_number/>, <https://dev.mysql.com/doc/refman/8.4/en/window-functions.html>).
//! The values from which may be added are an interval, and each addition goes the same way: the first `a` of them are admitted.

use super::Operation;
use crate::sql::change::length;
use crate::sql::column::Column;
use crate::sql::list::{List, Query};
use crate::sql::outcome::{Judgment, Outcome};
use crate::sql::packet::{Batch, RowOperation};
use crate::sql::reply::{ACTIVE, RowState};
use crate::sql::row::{self, BEGINS, RowKey, VALUE};
use crate::sql::script::Script;
use crate::sql::{FOREVER, NOW};
use crate::token::Token;

/// Adds to a counter once for an id of the caller's: the row is the id's, and keeps the result.
#[derive(Clone, Debug)]
pub(crate) struct Once {
    /// What the id stands for: the counter, the delta, the range.
    pub(crate) token: Token,
    pub(crate) counter: RowKey,
    pub(crate) delta: i64,
    /// The counter's values from which it may be added.
    pub(crate) from: i64,
    pub(crate) to: i64,
    /// Microseconds, 0 for none.
    pub(crate) window: i64,
    /// How long the id is remembered, in microseconds.
    pub(crate) retention: i64,
}

impl Once {
    /// Whether both may be added in one statement: they ask for the same of one counter.
    pub(crate) fn merges_with(&self, other: &Self) -> bool {
        (self.token, self.window) == (other.token, other.window) && self.counter == other.counter
    }

    pub(super) fn judge(&self, row: &RowState) -> Judgment {
        if row.status != ACTIVE || row.remaining <= 0 {
            Judgment::Busy
        } else if !row.mine {
            Judgment::Final(Outcome::Mismatch)
        } else if row.previous == 1 {
            Judgment::Final(Outcome::Counted {
                previous: row.previous,
                value: row.count,
            })
        } else {
            Judgment::Final(Outcome::OutOfBounds { value: row.count })
        }
    }
}

/// MySQL merges a derived table into the `UPDATE` around it, and would lose its `SKIP LOCKED`; but not one with a `LIMIT`. This is more rows
/// than any batch has.
const KEEP_DERIVED_TABLE: &str = " LIMIT 1000000";

const COLUMNS: &[Column] = &[
    Column::Position,
    Column::Name,
    Column::Token,
    Column::Counter,
    Column::Step,
    Column::Low,
    Column::High,
    Column::Window,
    Column::Retention,
    Column::Mark,
];

impl Script<'_> {
    /// Locks, counts and lists the ids that are new, or were forgotten. Adds for them, and writes the result to the id's row: a counter
    /// that is out of bounds is left as it is; that is a result too. Then reads the ids' rows.
    pub(in crate::sql) fn once(&mut self, batch: &Batch<'_>) {
        let rows: Vec<(usize, &RowOperation, &Once)> = batch
            .rows
            .iter()
            .enumerate()
            .filter_map(|(position, row)| match &row.operation {
                Operation::Once(once) => Some((position, row, once)),
                _ => None,
            })
            .collect();
        if rows.is_empty() {
            return;
        }
        let mark = self.mark();
        let list = List::new(COLUMNS, &rows, |entry, (position, row, once)| {
            entry
                .number(
                    Column::Position,
                    u64::try_from(*position).unwrap_or_default(),
                )
                .text(Column::Name, row.key.name.as_str())
                .bytes(Column::Token, once.token.as_bytes())
                .text(Column::Counter, once.counter.name.as_str())
                .number(Column::Step, once.delta)
                .number(Column::Low, once.from)
                .number(Column::High, once.to)
                .number(Column::Window, once.window)
                .number(Column::Retention, once.retention)
                .number(Column::Mark, mark)
        });
        let lock = batch.mode.lock_rows();
        let (value, begins) = (row::now(VALUE), row::now(BEGINS));
        let new = format!("(o.status=0 OR o.deadline<={NOW})");
        let ids = Query {
            table: "t_tag_lock o FORCE INDEX(PRIMARY)",
            key: "o.lock_name=v.name AND o.kind=3 AND o.slot=0",
            joins: " STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY) \
                    ON t.lock_name=v.counter AND t.kind=2 AND t.slot=0",
            ..Query::default()
        };
        // Of one row it is the same, and cheaper.
        let all = if rows.len() == 1 {
            "MAX"
        } else {
            "GROUP_CONCAT"
        };
        let marked = self.marked();
        self.statement(|script| {
            script.varies();
            let query = Query {
                // Their rows, and those of their counters.
                select: &format!(
                    "SELECT {marked},COUNT(*)+COUNT(DISTINCT t.lock_name),{all}(v.position) \
                     INTO @tag_lock_once,@tag_lock_changes,@tag_lock_ids"
                ),
                and: &format!(" AND {new}"),
                tail: lock,
                ..ids
            };
            list.all().query(script, query);
        });
        self.require_mark("@tag_lock_once");
        // What was passed over is not tried again: this packet has rows that come behind it.
        let all = length(rows.iter().map(|(position, ..)| *position));
        let locked = format!(
            " AND (LENGTH(@tag_lock_ids)={all} OR FIND_IN_SET(v.position,@tag_lock_ids)) AND {new}"
        );
        self.change(|script| {
            script.varies();
            script.push(
                "UPDATE (SELECT i.*,i.r<=i.a AS k,IF(i.r<=i.a,i.x+i.r*i.s,i.x+i.a*i.s) AS v FROM (\
                 SELECT j.*,IF(j.x BETWEEN j.l AND j.h,LEAST(j.m,CASE \
                 WHEN j.s>0 THEN LEAST(j.h-j.x,j.m*j.s) DIV j.s+1 \
                 WHEN j.s<0 THEN LEAST(j.x-j.l,-j.m*j.s) DIV -j.s+1 ELSE j.m END),0) AS a FROM (\
                 SELECT q.*,ROW_NUMBER() OVER (PARTITION BY q.c ORDER BY q.i) AS r,\
                 COUNT(*) OVER (PARTITION BY q.c) AS m FROM ("
            );
            list.all().query(
                script,
                Query {
                    select: &format!(
                        "SELECT v.position AS i,o.lock_name AS n,t.lock_name AS c,v.token AS d,{value} AS x,\
                         CAST(v.step AS DECIMAL(30,0)) AS s,CAST(v.low AS DECIMAL(30,0)) AS l,CAST(v.high AS DECIMAL(30,0)) AS h,\
                         IF({begins},\
                         IF(v.length>0,TIMESTAMPADD(MICROSECOND,v.length,{NOW}),{FOREVER}),t.deadline) AS e,\
                         TIMESTAMPADD(MICROSECOND,v.retention,{NOW}) AS y"
                    ),
                    and: &locked,
                    ..ids
                },
            );
            script.push(KEEP_DERIVED_TABLE);
            script.push(lock);
            // Several ids of one counter are several rows here, and the server takes any of them for the counter. So each computes the
            // counter's final value, which the last addition leaves.
            script.push(&format!(
                ") q) j) i) k STRAIGHT_JOIN t_tag_lock o FORCE INDEX(PRIMARY) \
                 ON o.lock_name=k.n AND o.kind=3 AND o.slot=0 \
                 STRAIGHT_JOIN t_tag_lock u FORCE INDEX(PRIMARY) \
                 ON u.lock_name=k.c AND u.kind=2 AND u.slot=0 \
                 SET o.status=1,o.holder=k.d,o.previous=k.k,o.count=k.v,o.deadline=k.y,\
                 o.modify_time={NOW},u.status=1,u.holder=IF(k.a>0,k.d,u.holder),\
                 u.previous=IF(k.a>0,k.x+(k.a-1)*k.s,u.previous),\
                 u.count=IF(k.a>0,k.x+k.a*k.s,u.count),\
                 u.deadline=IF(k.a>0,k.e,u.deadline),u.modify_time={NOW}"
            ));
        });
        self.expect("@tag_lock_changes");
        let rows: Vec<(usize, &RowOperation)> = rows
            .iter()
            .map(|(position, row, _)| (*position, *row))
            .collect();
        self.statement(|script| {
            let into = ",v.mark INTO @tag_lock_rows,@tag_lock_told";
            script.select_states(&rows, "@tag_lock_rows,','", "", into);
        });
        self.require_mark("@tag_lock_told");
    }
}
