//! The packet: a whole striped transaction as one text, `COMMIT` included.
//!
//! # In what order it locks
//!
//! First the lane's row, then stripes in ascending order, then rows by name (`Group::order`). That no packets deadlock is proved in
//! docs/design.md, P1 to P10.
//!
//! # Why the lists look as they do
//!
//! - A derived table joined with `STRAIGHT_JOIN` on the full primary key reads one row at a time, in
//!   the order of the list. An `IN` list may become a scan that waits for rows which it does not name,
//!   and `ORDER BY` on the table's own column sorts after locking.
//! - What is decided is decided by one `SELECT`, from the rows as they were; see [`super::change`].

use std::collections::HashSet;

use super::column::Column;
use super::dialect::Dialect;
use super::list::{List, Query};
use super::operation::Operation;
use super::prepared::Prepared;
use super::row::{RowKey, address};
use super::script::{Packet, Script};
use super::stripes::GOT;
use super::{NOW, NOW_MICROS, literal};
use crate::mutant::{self, Mutant};
use crate::stripe::{Stripe, StripeSet};
use crate::token::Token;

/// What `ROW_COUNT()` says of an `INSERT` that inserted a row.
const ONE_INSERTED: &str = "1";
/// What it says of an `INSERT … ON DUPLICATE KEY UPDATE` that changed a row: that one counts twice.
const ONE_CHANGED: &str = "2";

/// What a packet does about rows that are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Passes over them.
    Skip,
    /// Waits for them. Takes no stripe, and creates nothing.
    Wait,
    /// Passes over them, and carries out all operations of a [group](RowOperation::group) or none.
    Together,
    /// Waits for the first row, which is a lock's own, before it does anything; then goes on as [`Mode::Together`] with the rows of that
    /// name. Takes no stripe, and creates nothing.
    Queue,
    /// Passes over them, and decides about one door when it has had its shared rows: [`super::shut`].
    Shut,
}

impl Mode {
    /// Whether it carries out all operations or none.
    pub(super) fn is_together(self) -> bool {
        matches!(self, Self::Together | Self::Queue)
    }

    pub(super) fn lock_rows(self) -> &'static str {
        match self {
            Self::Wait => " FOR UPDATE",
            _ if mutant::on(Mutant::RowWait) => " FOR UPDATE",
            _ => " FOR UPDATE SKIP LOCKED",
        }
    }
}

/// How a packet takes the stripes of an operation's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StripeUse {
    /// It does not need them.
    None,
    /// If nobody else has them.
    Try,
    /// It waits for them.
    Wait,
}

/// One row of a batch.
#[derive(Clone, Debug)]
pub(crate) struct RowOperation {
    pub(crate) key: RowKey,
    pub(crate) operation: Operation,
    /// The row may be missing: create it, if its stripe can be had.
    pub(crate) create: bool,
    pub(crate) stripes: StripeUse,
    /// Those of one number are carried out as a whole or not at all, in [`Mode::Together`].
    pub(crate) group: u32,
}

impl RowOperation {
    /// The rows that it changes.
    fn keys(&self) -> impl Iterator<Item = &RowKey> {
        std::iter::once(&self.key).chain(self.operation.second())
    }

    /// An upper bound of the bytes that it adds to a packet.
    pub(crate) fn weight(&self) -> usize {
        weight(&self.key, &self.operation)
    }
}

/// An upper bound of the bytes that an operation adds to a packet.
pub(crate) fn weight(key: &RowKey, operation: &Operation) -> usize {
    let texts = match operation {
        Operation::Acquire(acquire) | Operation::Shut(acquire) => {
            acquire.description.len() + acquire.held_by.len()
        }
        Operation::Share(share) => share.description.len() + share.held_by.len(),
        _ => 0,
    };
    let second = operation.second().map_or(0, |key| key.name.as_str().len());
    512 + 6 * (key.name.as_str().len() + second) + 2 * texts
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

/// Writes the packet of a batch, for a session that has `prepared` what it has.
pub(crate) fn write(batch: &Batch<'_>, dialect: Dialect, prepared: &mut Prepared) -> Packet {
    let weight: usize = batch.rows.iter().map(RowOperation::weight).sum();
    let mut script = Script::transaction(dialect, Some(prepared), weight + 1024);
    script.unchecked_if(Mutant::PacketUnchecked);
    script.number_batch(batch);
    match (batch.mode, batch.rows) {
        (Mode::Wait, _) => {}
        (Mode::Queue, rows) => {
            if let Some(first) = rows.first() {
                script.wait_at_the_door(&first.key.name);
            }
        }
        _ => {
            script.lock_stripes(batch.rows);
            script.create_rows(batch.rows);
        }
    }
    let door = match (batch.mode, batch.rows) {
        (Mode::Shut, [door]) => Some(&door.key.name),
        _ => None,
    };
    if let Some(door) = door {
        script.reach_shared(door);
    }
    script.change_rows(batch);
    if let Some(door) = door {
        script.free_shared(door, "@tag_lock_granted<>''");
    }
    script.once(batch);
    if batch.is_recorded() {
        script.record(batch);
    }
    script.commit(OUTCOME)
}

/// The columns of a list whose rows are read.
const STATES: &[Column] = &[
    Column::Position,
    Column::Name,
    Column::Kind,
    Column::Slot,
    Column::Token,
    Column::Mark,
];

/// What a batch came to.
const OUTCOME: &str = "CONCAT(@tag_lock_granted,';',@tag_lock_rows)";

/// The client that the last holder's token is from.
const CLIENT: &str = ",CONV(HEX(LEFT(t.holder,4)),16,10)";

/// Writes a query that reads the batch's rows as they are, without a lock.
pub(crate) fn read(rows: &[RowOperation], dialect: Dialect) -> String {
    let weight: usize = rows.iter().map(RowOperation::weight).sum();
    let mut script = Script::query_only(dialect, weight);
    let rows: Vec<(usize, &RowOperation)> = rows.iter().enumerate().collect();
    let begin = format!("';',{NOW_MICROS},';'");
    script.select_states(&rows, &begin, CLIENT, "");
    script.into_query()
}

fn id_of(lane: Token) -> String {
    let mut id = String::new();
    literal::bytes(&mut id, lane.as_bytes());
    id
}

/// Writes a query that has a row if the stripe exists.
pub(crate) fn find_stripe(stripe: Stripe) -> String {
    let mut sql = String::from("SELECT '1' FROM t_tag_lock WHERE lock_name=");
    literal::text(&mut sql, &stripe.to_string());
    sql.push_str(" AND kind=0 AND slot=0;COMMIT");
    sql
}

/// Writes the registration of a lane, before its first batch.
pub(crate) fn register_lane(lane: Token, dialect: Dialect) -> Packet {
    let mut script = Script::transaction(dialect, None, 512);
    script.change(|script| {
        let id = id_of(lane);
        script.push(&format!(
            "INSERT INTO t_tag_lock_lane (id,seq,modify_time) VALUES ({id},0,{NOW})"
        ));
    });
    script.expect(ONE_INSERTED);
    script.commit("'registered'")
}

/// What `results` says when batch `number` never ran and never can.
pub(crate) const FENCED: &str = "fenced";
/// What `results` says when nobody knows any more whether the batch ran, and it never can again.
pub(crate) const GONE: &str = "gone";

/// Writes the settlement of a lane whose batch `number` has an unknown outcome. It answers the results, behind the number of their
/// batch and a `;`.
///
/// It waits for the packet that may still run, since that holds the lane's row. An upsert assigns from left to right, so
/// `results` is decided by the `seq` that it found. A row that is gone, since a failover lost it or a purge took it, is made again, and
/// fences the batch. Running it again changes nothing.
///
/// It commits only if the row says afterwards that the batch can run no more.
pub(crate) fn settle_lane(lane: Token, number: u64, dialect: Dialect) -> Packet {
    let id = id_of(lane);
    let mut script = Script::transaction(dialect, None, 1024);
    script.unchecked_if(Mutant::SettlementUnchecked);
    let mut results = String::from("COALESCE(results,'')");
    let mut fenced = format!(" AND seq>={number} FOR UPDATE");
    if mutant::on(Mutant::SettlementUnlocked) {
        results = format!("IF(seq<{number},'{number};{FENCED}',{results})");
        fenced.clear();
    } else if mutant::on(Mutant::SettlementUnchecked) {
        fenced.clear();
        script.statement(|script| {
            script.push(&format!(
                "UPDATE t_tag_lock_lane SET results=IF(seq<{number},'{number};{FENCED}',results),\
                 seq=GREATEST(seq,{number}),modify_time={NOW} WHERE id={id}"
            ));
        });
    } else {
        script.statement(|script| {
            script.push(&format!(
                "INSERT INTO t_tag_lock_lane (id,seq,results,modify_time) \
                 VALUES ({id},{number},'{number};{GONE}',{NOW}) \
                 ON DUPLICATE KEY UPDATE results=IF(seq<VALUES(seq),'{number};{FENCED}',results),\
                 seq=GREATEST(seq,VALUES(seq)),modify_time=VALUES(modify_time)"
            ));
        });
    }
    let mark = script.mark();
    script.statement(|script| {
        script.push(&format!(
            "SELECT {mark},{results} INTO @tag_lock_settled,@tag_lock_results \
             FROM t_tag_lock_lane WHERE id={id}{fenced}"
        ));
    });
    script.require_mark("@tag_lock_settled");
    let mut packet = script.commit("@tag_lock_results");
    if mutant::on(Mutant::SettlementUncommitted) {
        packet.sql = packet.sql.replace(";COMMIT;", ";DO 0;");
    }
    packet
}

impl Script<'_> {
    /// Locks the lane's row. Batch N runs once: if the number before it is anything but N-1, the
    /// assignment is NULL, strict mode answers 1048, and the packet stops before it did anything. A row
    /// that an operator deleted is made again, so that no batch runs without a number.
    fn number_batch(&mut self, batch: &Batch<'_>) {
        self.statement(|script| {
            script.push("INSERT INTO t_tag_lock_lane (id,seq,modify_time) VALUES (");
            script.argument(&id_of(batch.lane));
            script.push(",");
            script.argument(&batch.number.to_string());
            script.push(",");
            script.push(NOW);
            script.push(") ON DUPLICATE KEY UPDATE seq=IF(seq+1=VALUES(seq),VALUES(seq),");
            script.push(if mutant::on(Mutant::BatchNumberIgnored) {
                "seq"
            } else {
                "NULL"
            });
            script.push("),modify_time=VALUES(modify_time)");
        });
        self.number_row();
    }

    /// Locks the stripes of a batch: first those that it waits for, then those of the others that are free.
    fn lock_stripes(&mut self, rows: &[RowOperation]) {
        let stripes = |how: StripeUse| {
            let rows = rows.iter().filter(move |row| row.stripes == how);
            rows.flat_map(RowOperation::keys).map(RowKey::stripe)
        };
        let waited: StripeSet = stripes(StripeUse::Wait).collect();
        let tried: StripeSet = stripes(StripeUse::Try).collect();
        let tried = tried.without(waited);
        debug_assert!(tried.is_behind(waited), "stripes are locked in one order");
        self.lock_stripes_of(waited);
        self.try_stripes_of(tried, !waited.is_empty());
    }

    /// Inserts the rows that are missing, as free rows, under those of their stripes that are locked. A new row begins at the
    /// floor that a purge left in its stripe, so that fencing tokens never go back.
    fn create_rows(&mut self, rows: &[RowOperation]) {
        // Several may change one more row: a counter, by several ids.
        let mut named = HashSet::new();
        let created = rows.iter().filter(|row| row.create);
        let missing: Vec<&RowKey> = created
            .flat_map(RowOperation::keys)
            .filter(|key| named.insert(*key))
            .collect();
        if missing.is_empty() {
            return;
        }
        let address = address(missing.iter().copied());
        self.statement(|script| {
            let list = List::new(
                &[Column::Name, Column::Kind, Column::Slot, Column::Stripe],
                &missing,
                |row, key| {
                    row.text(Column::Name, key.name.as_str())
                        .number(Column::Kind, key.kind as u8)
                        .number(Column::Slot, key.slot)
                        .text(Column::Stripe, &key.stripe().to_string())
                },
            );
            script.push(
                "INSERT INTO t_tag_lock (lock_name,kind,slot,fence,create_time,modify_time) ",
            );
            list.all().query(
                script,
                Query {
                    select: &format!("{},s.count,{NOW},{NOW}", address.select),
                    table: "t_tag_lock s FORCE INDEX(PRIMARY)",
                    key: "s.lock_name=v.stripe AND s.kind=0 AND s.slot=0",
                    joins: &format!(
                        " LEFT JOIN t_tag_lock t FORCE INDEX(PRIMARY) \
                         ON {}",
                        address.key
                    ),
                    and: &format!(" AND t.lock_name IS NULL AND FIND_IN_SET(v.stripe,{GOT})"),
                    ..Query::default()
                },
            );
        });
    }

    /// Writes down the outcomes with the batch, behind its number.
    fn record(&mut self, batch: &Batch<'_>) {
        self.change(|script| {
            if mutant::on(Mutant::PacketUnchecked) {
                script.push("UPDATE t_tag_lock_lane SET results=CONCAT(");
                script.argument(&batch.number.to_string());
                script.push(&format!(",';',{OUTCOME}) WHERE id="));
                script.argument(&id_of(batch.lane));
                return;
            }
            script.push("INSERT INTO t_tag_lock_lane (id,seq,modify_time) VALUES (");
            script.argument(&id_of(batch.lane));
            script.push(",");
            script.argument(&batch.number.to_string());
            script.push(&format!(
                ",{NOW}) ON DUPLICATE KEY UPDATE results=CONCAT(VALUES(seq),';',{OUTCOME})"
            ));
        });
        self.expect(ONE_CHANGED);
    }

    /// Reads rows without a lock, as the text that [`super::reply::Reply`] decodes, behind what it begins with.
    pub(super) fn select_states(
        &mut self,
        rows: &[(usize, &RowOperation)],
        begin: &str,
        more: &str,
        into: &str,
    ) {
        let mark = self.mark();
        let list = List::new(STATES, rows, |entry, (position, row)| {
            entry
                .number(
                    Column::Position,
                    u64::try_from(*position).unwrap_or_default(),
                )
                .text(Column::Name, row.key.name.as_str())
                .number(Column::Kind, row.key.kind as u8)
                .number(Column::Slot, row.key.slot)
                .bytes(Column::Token, row.operation.token().as_bytes())
                .number(Column::Mark, mark)
        });
        // Of one row it is the same, and cheaper.
        let all = if rows.len() == 1 {
            "MAX"
        } else {
            "GROUP_CONCAT"
        };
        let state = state(more, |column| format!("t.{column}"));
        let address = address(rows.iter().map(|(_, row)| &row.key));
        list.all().query(
            self,
            Query {
                select: &format!("SELECT CONCAT({begin},COALESCE({all}({state}),'')){into}"),
                table: "t_tag_lock t FORCE INDEX(PRIMARY)",
                key: address.key,
                ..Query::default()
            },
        );
    }
}

/// What is said of a row: its position and its columns, of which some are told as they become.
pub(super) fn state(more: &str, column: impl Fn(&str) -> String) -> String {
    let (previous, count) = (column("previous"), column("count"));
    format!(
        "CONCAT_WS(' ',v.position,t.status,t.holder=v.token,t.fence,\
         TIMESTAMPDIFF(MICROSECOND,{NOW},t.deadline),{previous},{count},\
         IF(t.wanted_until>{NOW},TIMESTAMPDIFF(MICROSECOND,{NOW},t.wanted_until),0){more})"
    )
}
