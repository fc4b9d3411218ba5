//! What a batch does to its rows: one statement for each kind of operation in it.
//!
//! Each reads its rows through a list of literals, one by one by their full primary key, locks them
//! (or skips those that are locked), computes from the rows as they were what is to be, and writes that.
//! The writing is an `INSERT … SELECT … ON DUPLICATE KEY UPDATE` of rows that exist and are locked: it never
//! inserts. A joined `UPDATE` would do the same, but MariaDB creates a temporary table on disk for each
//! (half of its time for 256 rows), and assigns in no defined order.

use super::list::{List, Row};
use super::operation::{
    Acquire, Change, Count, ForceRelease, Kind, Once, Operation, Release, Renew, Touch, Want,
};
use super::packet::{Batch, NO_LIMIT, RowOperation};
use super::script::Script;
use super::{FOREVER, NOW, NOW_MICROS};
use crate::mutant::{self, Mutant};

impl Script<'_> {
    /// Changes the rows of a batch.
    pub(super) fn change_rows(&mut self, batch: &Batch<'_>) {
        self.acquire(batch);
        self.release(batch);
        self.renew(batch);
        self.force_release(batch);
        self.want(batch);
        self.count(batch);
        self.once(batch);
        self.touch(batch);
    }

    /// Grants to those whose row is free, expired, or held by the same owner.
    fn acquire(&mut self, batch: &Batch<'_>) {
        let reentrant = batch
            .rows
            .iter()
            .any(|row| matches!(&row.operation, Operation::Acquire(o) if o.level.is_some()));
        // Owners are rare: a batch without one does not evaluate for each row whether it is held by one.
        let mine = "(v.r=1 AND t.holder=v.d AND t.status=1 AND t.deadline>UTC_TIMESTAMP(6))";
        let fence = if mutant::on(Mutant::FenceNotRaised) {
            "GREATEST(t.fence,v.b)".to_owned()
        } else {
            format!("GREATEST(t.fence,{NOW_MICROS})+v.b")
        };
        let deadline = format!("TIMESTAMPADD(MICROSECOND,v.w,{NOW})");
        let ended = if mutant::on(Mutant::DeadlineReversed) {
            ">"
        } else {
            "<="
        };
        let free = format!("{NOW_MICROS}<=v.t AND (t.status=0 OR t.deadline{ended}{NOW}");
        let (count, fence, deadline, condition) = if reentrant {
            (
                format!("IF({mine},t.count+1,1)"),
                format!("IF({mine},t.fence,{fence})"),
                format!("IF({mine},GREATEST(t.deadline,{deadline}),{deadline})"),
                format!("{free} OR {mine})"),
            )
        } else {
            ("1".to_owned(), fence, deadline, format!("{free})"))
        };
        self.change(
            batch,
            Kind::Lock,
            |operation| match operation {
                Operation::Acquire(acquire) => Some(acquire),
                _ => None,
            },
            "ndwbrqxat",
            |columns, o: &Acquire| {
                columns
                    .bytes(o.token.as_bytes())
                    .number(o.ttl)
                    .number(o.block)
                    .number(u8::from(o.level.is_some()))
                    .number(o.level.unwrap_or_default())
                    .text(&o.description)
                    .text(&o.held_by)
                    .number(batch.not_after)
            },
            &[
                ("holder", "v.d"),
                ("status", "1"),
                ("count", &count),
                ("previous", "v.q"),
                ("fence", &fence),
                ("deadline", &deadline),
                ("description", "v.x"),
                ("held_by", "v.a"),
            ],
            &condition,
        );
    }

    /// Frees the rows whose grant is still the releaser's, or takes one level off.
    fn release(&mut self, batch: &Batch<'_>) {
        self.change(
            batch,
            Kind::Lock,
            |operation| match operation {
                Operation::Release(release) => Some(release),
                _ => None,
            },
            "ndfghq",
            |columns, o: &Release| {
                columns
                    .bytes(o.token.as_bytes())
                    .number(o.fence)
                    .number(o.used)
                    .number(o.hold)
                    .number(o.level.unwrap_or_default())
            },
            &[
                ("status", "IF(t.count>1,1,IF(v.h>0,2,0))"),
                ("count", "IF(t.count>1,t.count-1,0)"),
                ("previous", "v.q"),
                ("fence", "IF(t.count>1,t.fence,v.g)"),
                (
                    "deadline",
                    &format!("IF(t.count>1,t.deadline,TIMESTAMPADD(MICROSECOND,v.h,{NOW}))"),
                ),
            ],
            if mutant::on(Mutant::ReleaseOfOthers) {
                "t.status=1"
            } else {
                "t.holder=v.d AND t.status=1 AND t.fence=v.f"
            },
        );
    }

    /// Moves deadlines of leases that have not ended; never to an earlier time.
    fn renew(&mut self, batch: &Batch<'_>) {
        let deadline = format!("GREATEST(t.deadline,TIMESTAMPADD(MICROSECOND,v.w,{NOW}))");
        let mut values = &[("deadline", deadline.as_str())][..];
        let ours = format!("t.holder=v.d AND t.status=1 AND t.fence=v.f AND t.deadline>{NOW}");
        let mut condition = ours.as_str();
        let revived = [
            ("deadline", deadline.as_str()),
            ("status", "1"),
            ("fence", "v.f"),
        ];
        if mutant::on(Mutant::RenewalAfterRelease) {
            (values, condition) = (&revived, "t.holder=v.d");
        }
        self.change(
            batch,
            Kind::Lock,
            |operation| match operation {
                Operation::Renew(renew) => Some(renew),
                _ => None,
            },
            "ndfw",
            |columns, o: &Renew| {
                columns
                    .bytes(o.token.as_bytes())
                    .number(o.fence)
                    .number(o.ttl)
            },
            values,
            condition,
        );
    }

    /// Frees rows whose grant is the one that was seen. The holder's token is replaced: a later
    /// release of the old guard finds that the lock is not its own.
    fn force_release(&mut self, batch: &Batch<'_>) {
        self.change(
            batch,
            Kind::Lock,
            |operation| match operation {
                Operation::ForceRelease(force) => Some(force),
                _ => None,
            },
            "ndf",
            |columns, o: &ForceRelease| columns.bytes(o.token.as_bytes()).number(o.fence),
            &[
                ("holder", "v.d"),
                ("status", "0"),
                ("count", "0"),
                ("deadline", NOW),
            ],
            "t.status<>0 AND t.fence=v.f",
        );
    }

    fn want(&mut self, batch: &Batch<'_>) {
        self.change(
            batch,
            Kind::Lock,
            |operation| match operation {
                Operation::Want(want) => Some(want),
                _ => None,
            },
            "nw",
            |columns, o: &Want| columns.number(o.wait),
            &[(
                "wanted_until",
                &format!("GREATEST(t.wanted_until,TIMESTAMPADD(MICROSECOND,v.w,{NOW}))"),
            )],
            "1",
        );
    }

    /// Changes counters whose value, or 0 where their window has ended, lies within the bounds.
    ///
    /// The arithmetic is DECIMAL, so that no intermediate value leaves its type (error 1690); that
    /// the result fits is what the bounds say.
    fn count(&mut self, batch: &Batch<'_>) {
        const VALUE: &str = "CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0))";
        const STEP: &str = "CAST(v.s AS DECIMAL(30,0))";
        self.change(
            batch,
            Kind::Counter,
            |operation| match operation {
                Operation::Count(count) => Some(count),
                _ => None,
            },
            "ndlhasmewz",
            |columns, o: &Count| {
                let (keeps, step, times, edge) = match o.change {
                    Change::Add { step, times, edge } => (1_u8, step, times, edge),
                    Change::Set { value } => (0, value, 1, 0),
                };
                columns
                    .bytes(o.token.as_bytes())
                    .number(o.low)
                    .number(o.high)
                    .number(keeps)
                    .number(step)
                    .number(times)
                    .number(edge)
                    .number(o.window)
                    .number(u8::from(o.restart))
            },
            &[
                ("holder", "v.d"),
                ("status", "1"),
                ("previous", VALUE),
                (
                    "count",
                    &format!(
                        "v.a*{VALUE}+{STEP}*IF(v.m=1,1,\
                         LEAST(ABS({VALUE}-v.e),v.m*ABS({STEP})) DIV ABS({STEP}))"
                    ),
                ),
                (
                    "deadline",
                    &format!(
                        "IF(v.z=1 OR t.deadline<={NOW} OR (v.w>0 AND t.deadline={FOREVER}),\
                         IF(v.w>0,TIMESTAMPADD(MICROSECOND,v.w,{NOW}),{FOREVER}),t.deadline)"
                    ),
                ),
            ],
            &if mutant::on(Mutant::RangeUnchecked) {
                "1".to_owned()
            } else {
                format!("{VALUE} BETWEEN v.l AND v.h")
            },
        );
    }

    /// Adds for ids that are new, or were forgotten, and writes the result to the id's row. A counter
    /// that is out of bounds is left as it is; that is a result too.
    fn once(&mut self, batch: &Batch<'_>) {
        const VALUE: &str = "CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0))";
        let rows: Vec<(&RowOperation, &Once)> = batch
            .rows
            .iter()
            .filter_map(|row| match &row.operation {
                Operation::Once(once) => Some((row, once)),
                _ => None,
            })
            .collect();
        if rows.is_empty() {
            return;
        }
        self.statement(|script| {
            script.varies();
            let list = List::new("ndcslhwy", &rows, |entry, (row, once)| {
                entry
                    .text(row.key.name.as_str())
                    .bytes(once.token.as_bytes())
                    .text(once.counter.name.as_str())
                    .number(once.delta)
                    .number(once.from)
                    .number(once.to)
                    .number(once.window)
                    .number(once.retention)
            });
            script.push("UPDATE (");
            script.query(
                &list,
                &format!(
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
                (
                    "t_tag_lock o FORCE INDEX(PRIMARY)",
                    "o.lock_name=v.n AND o.kind=3 AND o.slot=0",
                    " STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY) \
                     ON t.lock_name=v.c AND t.kind=2 AND t.slot=0",
                ),
            );
            script.push(&format!(" AND (o.status=0 OR o.deadline<={NOW})"));
            script.push(NO_LIMIT);
            script.push(batch.mode.lock_rows());
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
    }

    fn touch(&mut self, batch: &Batch<'_>) {
        for kind in [Kind::Lock, Kind::Counter] {
            self.change(
                batch,
                kind,
                |operation| match operation {
                    Operation::Touch(touch) => Some(touch),
                    _ => None,
                },
                "n",
                |columns, _: &Touch| columns,
                &[],
                "1",
            );
        }
    }

    /// The statement of one kind of operation, if the batch has any: `columns` writes an entry of the
    /// list whose columns are `letters` (`n` is the name), `values` says what each column becomes, from the entry (`v`) and the row (`t`).
    #[expect(clippy::too_many_arguments, reason = "the parts of one statement")]
    fn change<'b, T>(
        &mut self,
        batch: &'b Batch<'_>,
        kind: Kind,
        select: fn(&'b Operation) -> Option<&'b T>,
        letters: &'static str,
        columns: impl for<'l> Fn(Row<'l>, &T) -> Row<'l>,
        values: &[(&str, &str)],
        condition: &str,
    ) {
        let rows: Vec<(&RowOperation, &T)> = batch
            .rows
            .iter()
            .filter(|row| row.key.kind == kind)
            .filter_map(|row| select(&row.operation).map(|operation| (row, operation)))
            .collect();
        if rows.is_empty() {
            return;
        }
        self.statement(|script| {
            script.push("INSERT INTO t_tag_lock (lock_name,kind,slot,modify_time");
            for (column, _) in values {
                script.push(",");
                script.push(column);
            }
            script.push(") ");
            let list = List::new(letters, &rows, |entry, (row, operation)| {
                columns(entry.text(row.key.name.as_str()), operation)
            });
            let mut select = format!("SELECT t.lock_name,t.kind,t.slot,{NOW}");
            for (_, value) in values {
                select.push(',');
                select.push_str(value);
            }
            script.query(
                &list,
                &select,
                (
                    "t_tag_lock t FORCE INDEX(PRIMARY)",
                    &format!("t.lock_name=v.n AND t.kind={} AND t.slot=0", kind as u8),
                    "",
                ),
            );
            script.push(" AND (");
            list.fill(script, condition);
            script.push(")");
            script.push(NO_LIMIT);
            script.push(batch.mode.lock_rows());
            script.push(" ON DUPLICATE KEY UPDATE modify_time=VALUES(modify_time)");
            for (column, _) in values {
                script.push(",");
                script.push(column);
                script.push("=VALUES(");
                script.push(column);
                script.push(")");
            }
        });
    }
}
