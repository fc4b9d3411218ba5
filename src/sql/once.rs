//! Additions that run once for an id of the caller's: the id's row and the counter's change together.

use super::list::{List, Query};
use super::operation::{Once, Operation};
use super::packet::{Batch, NO_LIMIT, RowOperation};
use super::script::Script;
use super::{FOREVER, NOW};

impl Script<'_> {
    /// Locks and counts the ids that are new, or were forgotten. Adds for them, and writes the result to the id's row: a counter
    /// that is out of bounds is left as it is; that is a result too. Then reads the ids' rows.
    pub(super) fn once(&mut self, batch: &Batch<'_>) {
        const VALUE: &str = "CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0))";
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
        let list = List::new("ndcslhwyj", &rows, |entry, (_, row, once)| {
            entry
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
                select: &format!("SELECT {marked},COUNT(*) INTO @tag_lock_once,@tag_lock_ids"),
                tail: lock,
                ..ids
            };
            list.all().query(script, query);
        });
        self.require_mark("@tag_lock_once");
        // A counter may have been locked when the ids were counted, and be free now: then there are more.
        self.change_at_least("LEAST(ROW_COUNT(),2*@tag_lock_ids)", |script| {
            script.varies();
            script.push("UPDATE (");
            list.all().query(
                script,
                Query {
                    select: &format!(
                        "SELECT o.lock_name AS n,t.lock_name AS c,v.d AS d,{VALUE} BETWEEN v.l AND v.h AS k,\
                         IF({VALUE} BETWEEN v.l AND v.h,{VALUE}+v.s,{VALUE}) AS x,\
                         IF({VALUE} BETWEEN v.l AND v.h,{VALUE}+v.s,t.count) AS y,\
                         IF({VALUE} BETWEEN v.l AND v.h,{VALUE},t.previous) AS p,\
                         IF({VALUE} BETWEEN v.l AND v.h,v.d,t.holder) AS h,\
                         IF({VALUE} BETWEEN v.l AND v.h,\
                         IF(t.deadline<={NOW} OR (v.w>0 AND t.deadline={FOREVER}),\
                         IF(v.w>0,TIMESTAMPADD(MICROSECOND,v.w,{NOW}),{FOREVER}),t.deadline),t.deadline) AS e,\
                         TIMESTAMPADD(MICROSECOND,v.y,{NOW}) AS r"
                    ),
                    ..ids
                },
            );
            script.push(NO_LIMIT);
            script.push(lock);
            script.push(&format!(
                ") k STRAIGHT_JOIN t_tag_lock o FORCE INDEX(PRIMARY) \
                 ON o.lock_name=k.n AND o.kind=3 AND o.slot=0 \
                 STRAIGHT_JOIN t_tag_lock u FORCE INDEX(PRIMARY) \
                 ON u.lock_name=k.c AND u.kind=2 AND u.slot=0 \
                 SET o.status=1,o.holder=k.d,o.previous=k.k,o.count=k.x,o.deadline=k.r,\
                 o.modify_time={NOW},u.status=1,u.holder=k.h,u.previous=k.p,u.count=k.y,\
                 u.deadline=k.e,u.modify_time={NOW}"
            ));
        });
        // The id's row and the counter's.
        self.expect("2*@tag_lock_ids");
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
