//! The packet: a whole striped transaction as one text, `COMMIT` included.
//!
//! # Why there is no deadlock
//!
//! Every session locks in one order: the row of its own lane, which nobody else wants but the one
//! who settles that lane; the stripes in ascending order; the rows of the batch. A packet waits for
//! stripes only, and then it holds nothing but its lane's row and lower stripes. It never waits for
//! a row: one that is held by a transaction of the application is skipped (`SKIP LOCKED`), and its
//! operation is seen, when the rows are read back, not to have happened. Every insert into the table
//! happens under the stripe of its name. So no cycle of waiting can close.
//!
//! A packet that waits for a row ([`Mode::Wait`]) takes no stripe and inserts nothing: it holds its
//! lane's row and waits for one row that exists.
//!
//! # Why the lists look as they do
//!
//! - A derived table joined with `STRAIGHT_JOIN` on the full primary key reads one row at a time, in
//!   the order of the list. An `IN` list may become a scan that waits for rows which it does not name,
//!   and `ORDER BY` on the table's own column sorts after locking.
//! - `LIMIT` keeps MySQL from merging the derived table into the `UPDATE`, which would lose the
//!   `SKIP LOCKED`.
//! - What is decided is decided in the derived table, from the rows as they were; the assignments read
//!   its columns only, because a joined `UPDATE` assigns in no defined order.

use super::dialect::Dialect;
use super::operation::{
    Acquire, Change, Count, ForceRelease, Kind, Once, Operation, Release, Renew, RowKey, Touch,
    Want,
};
use super::{FOREVER, NOW, NOW_MICROS, literal};
use crate::stripe::Stripe;
use crate::token::Token;

/// More rows than any batch has: see the module's documentation.
const NO_LIMIT: &str = " LIMIT 1000000";

/// What a packet does about rows that are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Waits for stripes, skips rows.
    Skip,
    /// Takes no stripe, waits for the rows.
    Wait,
}

impl Mode {
    fn lock_rows(self) -> &'static str {
        match self {
            Self::Skip => " FOR UPDATE SKIP LOCKED",
            Self::Wait => " FOR UPDATE",
        }
    }
}

/// One row of a batch.
#[derive(Clone, Debug)]
pub(crate) struct RowOperation {
    pub(crate) key: RowKey,
    pub(crate) operation: Operation,
    /// The row may be missing: create it.
    pub(crate) create: bool,
}

impl RowOperation {
    /// The rows that it changes.
    fn keys(&self) -> impl Iterator<Item = &RowKey> {
        std::iter::once(&self.key).chain(self.operation.second())
    }

    /// An upper bound of the bytes that it adds to a packet.
    pub(crate) fn weight(&self) -> usize {
        let texts = match &self.operation {
            Operation::Acquire(acquire) => acquire.description.len() + acquire.held_by.len(),
            _ => 0,
        };
        let second = self
            .operation
            .second()
            .map_or(0, |key| key.name.as_str().len());
        512 + 6 * (self.key.name.as_str().len() + second) + 2 * texts
    }
}

/// A batch: at most one operation per row.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    pub(crate) lane: Token,
    pub(crate) number: u64,
    pub(crate) rows: &'a [RowOperation],
    pub(crate) mode: Mode,
    /// Microseconds since 1970 on the server, after which no lock is granted any more.
    pub(crate) not_after: i64,
}

impl Batch<'_> {
    fn is_recorded(&self) -> bool {
        self.rows.iter().any(|row| row.operation.needs_record())
    }
}

/// A text to send, and which of its statements is the `COMMIT`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) sql: String,
    pub(crate) commit: usize,
}

/// Writes the packet of a batch.
pub(crate) fn write(batch: &Batch<'_>, dialect: Dialect) -> Packet {
    let weight: usize = batch.rows.iter().map(RowOperation::weight).sum();
    let mut script = Script::new(dialect, weight + 1024);
    script.begin_transaction();
    script.number_batch(batch);
    if batch.mode == Mode::Skip {
        script.lock_stripes(batch.rows);
        script.create_rows(batch.rows);
    }
    script.change_rows(batch);
    if batch.is_recorded() {
        script.record(batch);
    } else {
        script.statement(|script| script.select_states(batch.rows));
    }
    let (sql, commit) = script.commit();
    Packet { sql, commit }
}

/// Writes a query that reads the batch's rows as they are, without a lock.
pub(crate) fn read(rows: &[RowOperation], dialect: Dialect) -> String {
    let weight: usize = rows.iter().map(RowOperation::weight).sum();
    let mut script = Script::new(dialect, weight);
    script.statement(|script| script.select_states(rows));
    script.sql
}

/// Writes the registration of a lane, before its first batch.
pub(crate) fn register_lane(lane: Token) -> String {
    let mut sql = String::from("INSERT INTO t_tag_lock_lane (id,seq,modify_time) VALUES (");
    literal::bytes(&mut sql, lane.as_bytes());
    sql.push_str(",0,");
    sql.push_str(NOW);
    sql.push_str(");COMMIT");
    sql
}

/// What `results` says when batch `number` never ran and never can.
pub(crate) const FENCED: &str = "fenced";

/// Writes the settlement of a lane whose batch `number` has an unknown outcome. It answers `=` and the
/// results, or no row if the lane's row is gone.
///
/// It waits for the packet that may still run, since that holds the lane's row. A single-table
/// `UPDATE` assigns from left to right, so `results` is decided by the `seq` that it found. Running it
/// again changes nothing.
pub(crate) fn settle_lane(lane: Token, number: u64) -> String {
    use std::fmt::Write;
    let mut id = String::new();
    literal::bytes(&mut id, lane.as_bytes());
    let mut sql = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        sql,
        "UPDATE t_tag_lock_lane SET results=IF(seq<{number},'{FENCED}',results),\
         seq=GREATEST(seq,{number}),modify_time={NOW} WHERE id={id};\
         SELECT CONCAT('=',COALESCE(results,'')) FROM t_tag_lock_lane WHERE id={id};\
         COMMIT"
    );
    sql
}

/// Writes the fencing of a lane whose row is gone: a failover lost it, or a purge took it.
pub(crate) fn fence_lane(lane: Token, number: u64) -> String {
    let mut sql = String::from("INSERT INTO t_tag_lock_lane (id,seq,results,modify_time) VALUES (");
    literal::bytes(&mut sql, lane.as_bytes());
    sql.push(',');
    literal::number(&mut sql, number);
    sql.push_str(",'");
    sql.push_str(FENCED);
    sql.push_str("',");
    sql.push_str(NOW);
    sql.push_str(");COMMIT");
    sql
}

/// Writes the columns of one entry of a list, each behind a comma.
struct Columns<'s>(&'s mut String);

impl Columns<'_> {
    fn bytes(self, value: &[u8]) -> Self {
        self.0.push(',');
        literal::bytes(self.0, value);
        self
    }

    fn text(self, value: &str) -> Self {
        self.0.push(',');
        literal::text(self.0, value);
        self
    }

    fn number(self, value: impl Into<i128>) -> Self {
        self.0.push(',');
        literal::number(self.0, value);
        self
    }
}

/// A text of several statements while it is written.
pub(super) struct Script {
    dialect: Dialect,
    sql: String,
    statements: usize,
}

impl Script {
    pub(super) fn new(dialect: Dialect, capacity: usize) -> Self {
        Self {
            dialect,
            sql: String::with_capacity(capacity),
            statements: 0,
        }
    }

    pub(super) fn push(&mut self, text: &str) {
        self.sql.push_str(text);
    }

    pub(super) fn statement(&mut self, write: impl FnOnce(&mut Self)) {
        if self.statements > 0 {
            self.push(";");
        }
        self.statements += 1;
        write(self);
    }

    /// If the client stops between here and the end, the server ends the transaction in a second.
    /// `autocommit` is off: the first statement that touches a table begins the transaction.
    pub(super) fn begin_transaction(&mut self) {
        if !self.dialect.bounds_idle_transactions() {
            self.statement(|script| script.push("SET wait_timeout=1"));
        }
    }

    /// Ends the transaction; the text, and which of its statements is the `COMMIT`.
    pub(super) fn commit(mut self) -> (String, usize) {
        let commit = self.statements;
        self.statement(|script| script.push("COMMIT"));
        self.end_transaction();
        (self.sql, commit)
    }

    fn end_transaction(&mut self) {
        if !self.dialect.bounds_idle_transactions() {
            self.statement(|script| script.push("SET wait_timeout=28800"));
        }
    }

    /// Locks the lane's row. Batch N runs once: if the number before it is anything but N-1, the
    /// assignment is NULL, strict mode answers 1048, and the packet stops before it did anything.
    fn number_batch(&mut self, batch: &Batch<'_>) {
        self.statement(|script| {
            let number = batch.number;
            script.push("UPDATE t_tag_lock_lane SET seq=IF(seq=");
            literal::number(&mut script.sql, number - 1);
            script.push(",");
            literal::number(&mut script.sql, number);
            script.push(",NULL),modify_time=");
            script.push(NOW);
            script.push(" WHERE id=");
            literal::bytes(&mut script.sql, batch.lane.as_bytes());
        });
    }

    /// Locks the batch's stripes.
    fn lock_stripes(&mut self, rows: &[RowOperation]) {
        self.lock_stripes_of(rows.iter().flat_map(RowOperation::keys).map(RowKey::stripe));
    }

    /// Locks stripes in ascending order, and waits for them.
    pub(super) fn lock_stripes_of(&mut self, stripes: impl Iterator<Item = Stripe>) {
        let mut wanted = [false; crate::stripe::STRIPES as usize];
        for stripe in stripes {
            wanted[stripe.index()] = true;
        }
        self.statement(|script| {
            let mut stripes = Stripe::all().filter(|stripe| wanted[stripe.index()]);
            let (first, second) = (stripes.next(), stripes.next());
            if let (Some(only), None) = (first, second) {
                script.push("SELECT COUNT(*) FROM t_tag_lock WHERE lock_name=");
                literal::text(&mut script.sql, &only.to_string());
                script.push(" AND kind=0 AND slot=0 FOR UPDATE");
                return;
            }
            let stripes: Vec<Stripe> = first.into_iter().chain(second).chain(stripes).collect();
            script.list("v(n)", &stripes, |sql, stripe| {
                literal::text(sql, &stripe.to_string());
            });
            script.push(
                "SELECT COUNT(*) FROM v STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY) \
                 ON t.lock_name=v.n AND t.kind=0 AND t.slot=0 FOR UPDATE",
            );
        });
    }

    /// Inserts the rows that are missing, as free rows, under their stripes. A new row begins at the
    /// floor that a purge left in its stripe, so that fencing tokens never go back.
    fn create_rows(&mut self, rows: &[RowOperation]) {
        let missing: Vec<&RowKey> = rows
            .iter()
            .filter(|row| row.create)
            .flat_map(RowOperation::keys)
            .collect();
        if missing.is_empty() {
            return;
        }
        self.statement(|script| {
            script.push(
                "INSERT INTO t_tag_lock (lock_name,kind,slot,fence,create_time,modify_time) ",
            );
            script.list("v(n,k,s)", &missing, |sql, key| {
                literal::text(sql, key.name.as_str());
                sql.push(',');
                literal::number(sql, key.kind as u8);
                sql.push(',');
                literal::text(sql, &key.stripe().to_string());
            });
            script.push("SELECT v.n,v.k,0,s.count,");
            script.push(NOW);
            script.push(",");
            script.push(NOW);
            script.push(
                " FROM v STRAIGHT_JOIN t_tag_lock s FORCE INDEX(PRIMARY) \
                 ON s.lock_name=v.s AND s.kind=0 AND s.slot=0 \
                 LEFT JOIN t_tag_lock t FORCE INDEX(PRIMARY) \
                 ON t.lock_name=v.n AND t.kind=v.k AND t.slot=0 WHERE t.lock_name IS NULL",
            );
        });
    }

    /// One joined update for each kind of operation in the batch.
    fn change_rows(&mut self, batch: &Batch<'_>) {
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
        const MINE: &str =
            "(v.r=1 AND t.holder=v.d AND t.status=1 AND t.deadline>UTC_TIMESTAMP(6))";
        self.update(
            batch,
            Kind::Lock,
            |operation| match operation {
                Operation::Acquire(acquire) => Some(acquire),
                _ => None,
            },
            "v(n,d,w,b,r,q,x,a)",
            |columns, o: &Acquire| {
                columns
                    .bytes(o.token.as_bytes())
                    .number(o.ttl)
                    .number(o.block)
                    .number(u8::from(o.reentrant))
                    .number(o.mark)
                    .text(&o.description)
                    .text(&o.held_by)
            },
            &format!(
                "v.d AS d,v.q AS q,v.x AS x,v.a AS a,\
                 IF({MINE},t.count+1,1) AS c,\
                 IF({MINE},t.fence,GREATEST(t.fence,{NOW_MICROS})+v.b) AS f,\
                 IF({MINE},GREATEST(t.deadline,TIMESTAMPADD(MICROSECOND,v.w,{NOW})),\
                 TIMESTAMPADD(MICROSECOND,v.w,{NOW})) AS e"
            ),
            &format!(
                "{NOW_MICROS}<={} AND (t.status=0 OR t.deadline<={NOW} OR {MINE})",
                batch.not_after
            ),
            &[
                "holder=k.d",
                "status=1",
                "count=k.c",
                "previous=k.q",
                "fence=k.f",
                "deadline=k.e",
                "description=k.x",
                "held_by=k.a",
            ],
        );
    }

    /// Frees the rows whose grant is still the releaser's, or takes one level off.
    fn release(&mut self, batch: &Batch<'_>) {
        self.update(
            batch,
            Kind::Lock,
            |operation| match operation {
                Operation::Release(release) => Some(release),
                _ => None,
            },
            "v(n,d,f,g,h,q)",
            |columns, o: &Release| {
                columns
                    .bytes(o.token.as_bytes())
                    .number(o.fence)
                    .number(o.used)
                    .number(o.hold)
                    .number(o.mark)
            },
            &format!(
                "v.q AS q,IF(t.count>1,t.count-1,0) AS c,\
                 IF(t.count>1,1,IF(v.h>0,2,0)) AS s,\
                 IF(t.count>1,t.fence,v.g) AS f,\
                 IF(t.count>1,t.deadline,TIMESTAMPADD(MICROSECOND,v.h,{NOW})) AS e"
            ),
            "t.holder=v.d AND t.status=1 AND t.fence=v.f",
            &[
                "status=k.s",
                "count=k.c",
                "previous=k.q",
                "fence=k.f",
                "deadline=k.e",
            ],
        );
    }

    /// Moves deadlines of leases that have not ended; never to an earlier time.
    fn renew(&mut self, batch: &Batch<'_>) {
        self.update(
            batch,
            Kind::Lock,
            |operation| match operation {
                Operation::Renew(renew) => Some(renew),
                _ => None,
            },
            "v(n,d,f,w)",
            |columns, o: &Renew| {
                columns
                    .bytes(o.token.as_bytes())
                    .number(o.fence)
                    .number(o.ttl)
            },
            &format!("GREATEST(t.deadline,TIMESTAMPADD(MICROSECOND,v.w,{NOW})) AS e"),
            &format!("t.holder=v.d AND t.status=1 AND t.fence=v.f AND t.deadline>{NOW}"),
            &["deadline=k.e"],
        );
    }

    /// Frees rows whose grant is the one that was seen. The holder's token is replaced: a later
    /// release of the old guard finds that the lock is not its own.
    fn force_release(&mut self, batch: &Batch<'_>) {
        self.update(
            batch,
            Kind::Lock,
            |operation| match operation {
                Operation::ForceRelease(force) => Some(force),
                _ => None,
            },
            "v(n,d,f)",
            |columns, o: &ForceRelease| columns.bytes(o.token.as_bytes()).number(o.fence),
            "v.d AS d",
            "t.status<>0 AND t.fence=v.f",
            &[
                "holder=k.d",
                "status=0",
                "count=0",
                "deadline=UTC_TIMESTAMP(6)",
            ],
        );
    }

    fn want(&mut self, batch: &Batch<'_>) {
        self.update(
            batch,
            Kind::Lock,
            |operation| match operation {
                Operation::Want(want) => Some(want),
                _ => None,
            },
            "v(n,w)",
            |columns, o: &Want| columns.number(o.wait),
            &format!("GREATEST(t.wanted_until,TIMESTAMPADD(MICROSECOND,v.w,{NOW})) AS e"),
            "1",
            &["wanted_until=k.e"],
        );
    }

    /// Changes counters whose value, or 0 where their window has ended, lies within the bounds.
    ///
    /// The arithmetic is DECIMAL, so that no intermediate value leaves its type (error 1690); that
    /// the result fits is what the bounds say.
    fn count(&mut self, batch: &Batch<'_>) {
        const VALUE: &str = "CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0))";
        self.update(
            batch,
            Kind::Counter,
            |operation| match operation {
                Operation::Count(count) => Some(count),
                _ => None,
            },
            "v(n,d,l,h,a,s,m,e,w,z)",
            |columns, o: &Count| {
                columns
                    .bytes(o.token.as_bytes())
                    .number(o.low)
                    .number(o.high)
                    .number(u8::from(matches!(o.change, Change::Add { .. })))
                    .number(step(o))
                    .number(times(o))
                    .number(edge(o))
                    .number(o.window)
                    .number(u8::from(o.restart))
            },
            &format!(
                "v.d AS d,{VALUE} AS p,\
                 v.a*{VALUE}+CAST(v.s AS DECIMAL(30,0))*IF(v.m=1,1,\
                 LEAST(ABS({VALUE}-v.e),v.m*ABS(CAST(v.s AS DECIMAL(30,0)))) \
                 DIV ABS(CAST(v.s AS DECIMAL(30,0)))) AS c,\
                 IF(v.z=1 OR t.deadline<={NOW} OR (v.w>0 AND t.deadline={FOREVER}),\
                 IF(v.w>0,TIMESTAMPADD(MICROSECOND,v.w,{NOW}),{FOREVER}),t.deadline) AS e"
            ),
            &format!("{VALUE} BETWEEN v.l AND v.h"),
            &[
                "holder=k.d",
                "status=1",
                "previous=k.p",
                "count=k.c",
                "deadline=k.e",
            ],
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
            script.push("UPDATE (");
            script.list("v(n,d,c,s,l,h,w,y)", &rows, |sql, (row, once)| {
                literal::text(sql, row.key.name.as_str());
                Columns(sql)
                    .bytes(once.token.as_bytes())
                    .text(once.counter.name.as_str())
                    .number(once.delta)
                    .number(once.from)
                    .number(once.to)
                    .number(once.window)
                    .number(once.retention);
            });
            script.push(&format!(
                "SELECT v.n AS n,v.c AS c,v.d AS d,{VALUE} BETWEEN v.l AND v.h AS k,\
                 IF({VALUE} BETWEEN v.l AND v.h,{VALUE}+v.s,{VALUE}) AS x,\
                 IF({VALUE} BETWEEN v.l AND v.h,{VALUE}+v.s,t.count) AS y,\
                 IF({VALUE} BETWEEN v.l AND v.h,{VALUE},t.previous) AS p,\
                 IF({VALUE} BETWEEN v.l AND v.h,v.d,t.holder) AS h,\
                 IF({VALUE} BETWEEN v.l AND v.h,\
                 IF(t.deadline<={NOW} OR (v.w>0 AND t.deadline={FOREVER}),\
                 IF(v.w>0,TIMESTAMPADD(MICROSECOND,v.w,{NOW}),{FOREVER}),t.deadline),t.deadline) AS e,\
                 TIMESTAMPADD(MICROSECOND,v.y,{NOW}) AS r FROM v \
                 STRAIGHT_JOIN t_tag_lock o FORCE INDEX(PRIMARY) \
                 ON o.lock_name=v.n AND o.kind=3 AND o.slot=0 \
                 STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY) \
                 ON t.lock_name=v.c AND t.kind=2 AND t.slot=0 \
                 WHERE o.status=0 OR o.deadline<={NOW}"
            ));
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
            self.update(
                batch,
                kind,
                |operation| match operation {
                    Operation::Touch(touch) => Some(touch),
                    _ => None,
                },
                "v(n)",
                |columns, _: &Touch| columns,
                "1 AS x",
                "1",
                &[],
            );
        }
    }

    /// The joined update of one kind of operation, if the batch has any.
    #[expect(
        clippy::too_many_arguments,
        reason = "the seven parts of one statement"
    )]
    fn update<'b, T>(
        &mut self,
        batch: &'b Batch<'_>,
        kind: Kind,
        select: fn(&'b Operation) -> Option<&'b T>,
        header: &str,
        columns: for<'s> fn(Columns<'s>, &T) -> Columns<'s>,
        values: &str,
        condition: &str,
        assignments: &[&str],
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
            script.push("UPDATE (");
            script.list(header, &rows, |sql, (row, operation)| {
                literal::text(sql, row.key.name.as_str());
                columns(Columns(sql), operation);
            });
            // The rows as they were, locked; what is to be, computed there.
            script.push("SELECT t.lock_name AS n,");
            script.push(values);
            script.push(" FROM v STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY) ON ");
            script.on_row("t", "v", kind);
            script.push(" WHERE ");
            script.push(condition);
            script.push(NO_LIMIT);
            script.push(batch.mode.lock_rows());
            // The assignments.
            script.push(") k STRAIGHT_JOIN t_tag_lock u FORCE INDEX(PRIMARY) ON ");
            script.on_row("u", "k", kind);
            script.push(" SET u.modify_time=");
            script.push(NOW);
            for assignment in assignments {
                script.push(",u.");
                script.push(assignment);
            }
        });
    }

    /// The full primary key of the row that the list's entry names.
    fn on_row(&mut self, table: &str, list: &str, kind: Kind) {
        self.push(table);
        self.push(".lock_name=");
        self.push(list);
        self.push(".n AND ");
        self.push(table);
        self.push(".kind=");
        literal::number(&mut self.sql, kind as u8);
        self.push(" AND ");
        self.push(table);
        self.push(".slot=0");
    }

    /// Writes down the outcomes with the batch, and sends the same text to the client.
    fn record(&mut self, batch: &Batch<'_>) {
        let mut id = String::new();
        literal::bytes(&mut id, batch.lane.as_bytes());
        self.statement(|script| {
            script.push("UPDATE t_tag_lock_lane SET results=(");
            script.select_states(batch.rows);
            script.push(") WHERE id=");
            script.push(&id);
        });
        self.statement(|script| {
            script.push("SELECT results FROM t_tag_lock_lane WHERE id=");
            script.push(&id);
        });
    }

    /// Reads the batch's rows without a lock, as the text that [`super::reply::Reply`] decodes.
    fn select_states(&mut self, rows: &[RowOperation]) {
        let mut position = 0_usize;
        self.list("v(i,n,k,d)", rows, |sql, row| {
            literal::number(sql, u64::try_from(position).unwrap_or_default());
            position += 1;
            sql.push(',');
            literal::text(sql, row.key.name.as_str());
            sql.push(',');
            literal::number(sql, row.key.kind as u8);
            sql.push(',');
            literal::bytes(sql, row.operation.token().as_bytes());
        });
        self.push("SELECT CONCAT(");
        self.push(NOW_MICROS);
        self.push(
            ",';',COALESCE(GROUP_CONCAT(CONCAT_WS(' ',v.i,t.status,t.holder=v.d,t.fence,\
             TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.deadline),t.previous,t.count,\
             GREATEST(0,TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.wanted_until)))),'')) \
             FROM v STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY) \
             ON t.lock_name=v.n AND t.kind=v.k AND t.slot=0",
        );
    }

    /// `WITH v(…) AS (VALUES …)`: rows of literals, in their order.
    pub(super) fn list<T>(
        &mut self,
        header: &str,
        rows: &[T],
        mut write: impl FnMut(&mut String, &T),
    ) {
        self.push("WITH ");
        self.push(header);
        self.push(" AS (VALUES ");
        for (position, row) in rows.iter().enumerate() {
            if position > 0 {
                self.push(",");
            }
            self.push(self.dialect.row());
            write(&mut self.sql, row);
            self.push(")");
        }
        self.push(") ");
    }
}

/// A counter's change as the list's columns.
fn step(count: &Count) -> i64 {
    match count.change {
        Change::Add { step, .. } => step,
        Change::Set { value } => value,
    }
}

fn times(count: &Count) -> u32 {
    match count.change {
        Change::Add { times, .. } => times,
        Change::Set { .. } => 1,
    }
}

fn edge(count: &Count) -> i64 {
    match count.change {
        Change::Add { edge, .. } => edge,
        Change::Set { .. } => 0,
    }
}
