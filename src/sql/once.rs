//! Additions that run once for an id of the caller's: the id's row and the counter's change together.
//!
//! Several ids of one counter that ask for the same ([`Once::merges_with`]) are added by one statement, in the order of the batch. Each
//! is added at most once, so from the counter's value `x` on, the `r`-th of them finds `x+(r-1)*delta`: a window function numbers
//! those that are new (<https://mariadb.com/kb/en/row_number/>, <https://dev.mysql.com/doc/refman/8.4/en/window-functions.html>).
//! The values from which may be added are an interval, and each addition goes the same way: the first `a` of them are admitted.

use super::list::{List, Query};
use super::operation::{Once, Operation};
use super::packet::{Batch, NO_LIMIT, RowOperation};
use super::script::Script;
use super::{FOREVER, NOW};

/// The counter's value, 0 where its window has ended; as a number that cannot overflow.
const VALUE: &str = "CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0))";

impl Script<'_> {
    /// Locks and counts the ids that are new, or were forgotten. Adds for them, and writes the result to the id's row: a counter
    /// that is out of bounds is left as it is; that is a result too. Then reads the ids' rows.
    pub(super) fn once(&mut self, batch: &Batch<'_>) {
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
        let list = List::new("indcslhwyj", &rows, |entry, (position, row, once)| {
            entry
                .number('i', u64::try_from(*position).unwrap_or_default())
                .text('n', row.key.name.as_str())
                .bytes('d', once.token.as_bytes())
                .text('c', once.counter.name.as_str())
                .number('s', once.delta)
                .number('l', once.from)
                .number('h', once.to)
                .number('w', once.window)
                .number('y', once.retention)
                .number('j', mark)
        });
        let lock = batch.mode.lock_rows();
        let ids = Query {
            table: "t_tag_lock o FORCE INDEX(PRIMARY)",
            key: "o.lock_name=v.n AND o.kind=3 AND o.slot=0",
            joins: " STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY) \
                    ON t.lock_name=v.c AND t.kind=2 AND t.slot=0",
            and: &format!(" AND (o.status=0 OR o.deadline<={NOW})"),
            ..Query::default()
        };
        let marked = self.marked();
        self.statement(|script| {
            script.varies();
            let query = Query {
                // Their rows, and those of their counters.
                select: &format!(
                    "SELECT {marked},COUNT(*)+COUNT(DISTINCT t.lock_name) INTO @tag_lock_once,@tag_lock_ids"
                ),
                tail: lock,
                ..ids
            };
            list.all().query(script, query);
        });
        self.require_mark("@tag_lock_once");
        // A counter may have been locked when the ids were counted, and be free now: then there are more.
        self.change_at_least("LEAST(ROW_COUNT(),@tag_lock_ids)", |script| {
            script.varies();
            script.push(&format!(
                "UPDATE (SELECT i.*,i.r<=i.a AS k,IF(i.r<=i.a,i.x+i.r*i.s,i.x+i.a*i.s) AS v FROM (\
                 SELECT j.*,IF(j.x BETWEEN j.l AND j.h,LEAST(j.m,CASE \
                 WHEN j.s>0 THEN LEAST(j.h-j.x,j.m*j.s) DIV j.s+1 \
                 WHEN j.s<0 THEN LEAST(j.x-j.l,-j.m*j.s) DIV -j.s+1 ELSE j.m END),0) AS a FROM (\
                 SELECT q.*,ROW_NUMBER() OVER (PARTITION BY q.c ORDER BY q.i) AS r,\
                 COUNT(*) OVER (PARTITION BY q.c) AS m FROM ("
            ));
            list.all().query(
                script,
                Query {
                    select: &format!(
                        "SELECT v.i AS i,o.lock_name AS n,t.lock_name AS c,v.d AS d,{VALUE} AS x,\
                         CAST(v.s AS DECIMAL(30,0)) AS s,CAST(v.l AS DECIMAL(30,0)) AS l,CAST(v.h AS DECIMAL(30,0)) AS h,\
                         IF(t.deadline<={NOW} OR (v.w>0 AND t.deadline={FOREVER}),\
                         IF(v.w>0,TIMESTAMPADD(MICROSECOND,v.w,{NOW}),{FOREVER}),t.deadline) AS e,\
                         TIMESTAMPADD(MICROSECOND,v.y,{NOW}) AS y"
                    ),
                    ..ids
                },
            );
            script.push(NO_LIMIT);
            script.push(lock);
            // What the last of them leaves becomes of the counter, whichever of its rows the server takes.
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
        self.expect("@tag_lock_ids");
        let rows: Vec<(usize, &RowOperation)> = rows
            .iter()
            .map(|(position, row, _)| (*position, *row))
            .collect();
        self.statement(|script| {
            let into = ",v.j INTO @tag_lock_rows,@tag_lock_told";
            script.select_states(&rows, "@tag_lock_rows,','", "", into);
        });
        self.require_mark("@tag_lock_told");
    }
}
