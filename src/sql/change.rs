//! What a batch does to its rows: one statement decides, the last one changes what was granted.
//!
//! The first reads all rows of the batch through a list of literals, one by one by their full primary key, locks them
//! (or skips those that are locked), and says of each as it was whether its operation is granted. What it says is the
//! batch's outcome: nobody changes a locked row until the transaction ends. It leaves in variables of the session
//!
//! - `@tag_lock_decided`: the packet's mark; [`super::script`] has what it checks;
//! - `@tag_lock_granted`: the positions of what is granted, and `@tag_lock_rows`: the rows as they were; together the text
//!   that [`super::reply::Reply`] decodes;
//! - `@tag_lock_now`, `@tag_lock_micros`: the time at which it decided, so that what changes the rows comes to the
//!   same results, however late it runs. (Deadlines are counted from when they are written: later than told, never sooner.)
//!
//! Where all operations of a group are carried out or none ([`Mode::Together`](super::packet::Mode::Together)), another one takes groups from the list of what is granted
//! of which not each row is in it.
//!
//! What is refused stays locked until the transaction ends, as what is granted.
//!
//! The last is an `INSERT … SELECT … ON DUPLICATE KEY UPDATE` of rows that exist and are locked: it never inserts, and
//! never waits. (A joined `UPDATE` would do the same, but MariaDB creates a temporary table on disk for each. A plain `UPDATE` of a single
//! row costs more, and some servers undo it and say that it is done: [`super::script`].) It assigns from left to right: every
//! assignment here reads only columns that none before it has assigned, so that it computes from the row as it was. Every row
//! that is granted is changed, if only in its `modify_time`, so that the server counts it.

use std::collections::BTreeMap;

use super::NOW_MICROS;
use super::column::Column;
use super::list::{List, ListPart, Query};
use super::operation::{STATEMENTS, Verb};
use super::packet::{Batch, RowOperation};
use super::row::{Address, address};
use super::script::Script;
use super::texts;
use crate::mutant::{self, Mutant};

/// The columns of a batch's list.
const COLUMNS: &[Column] = &[
    Column::Name,
    Column::Kind,
    Column::Slot,
    Column::Position,
    Column::Verb,
    Column::Token,
    Column::NotAfter,
    Column::GivesWay,
    Column::Ttl,
    Column::Block,
    Column::Description,
    Column::HeldBy,
    Column::Fence,
    Column::Used,
    Column::Hold,
    Column::Level,
    Column::Until,
    Column::Wait,
    Column::Low,
    Column::High,
    Column::Keeps,
    Column::Step,
    Column::Times,
    Column::Edge,
    Column::Window,
    Column::Restart,
    Column::AllGranted,
    Column::Mark,
];

/// The mark of the packet that has decided.
const DECIDED: &str = "@tag_lock_decided";

/// From so many rows on, each verb has a statement of its own where a statement costs no list: to find out for each
/// column what a row's verb makes of it costs more (a sixth of the change of 512 rows, MariaDB 10.11).
const EACH_ALONE: usize = 32;

/// How long the list of these positions is, with commas between: one that is shorter lacks some of them.
pub(super) fn length(positions: impl ExactSizeIterator<Item = usize>) -> usize {
    let commas = positions.len().saturating_sub(1);
    let digits = |position: usize| position.checked_ilog10().unwrap_or(0) + 1;
    positions.map(digits).sum::<u32>() as usize + commas
}

/// The positions of a group with commas between, if all are in the list of what is granted, and else NULL.
fn whole_group(positions: &[usize]) -> String {
    let positions: Vec<String> = positions.iter().map(usize::to_string).collect();
    let each = positions
        .iter()
        .map(|position| format!("FIND_IN_SET({position},@tag_lock_granted)"));
    let each: Vec<String> = each.collect();
    format!("IF({},'{}',NULL)", each.join(" AND "), positions.join(","))
}

impl Script<'_> {
    /// Decides about the rows of a batch, and changes them.
    pub(super) fn change_rows(&mut self, batch: &Batch<'_>) {
        let rows: Vec<(usize, &RowOperation, Verb)> = batch
            .rows
            .iter()
            .enumerate()
            .filter_map(|(position, row)| Some((position, row, row.operation.verb()?)))
            .collect();
        let mark = self.mark();
        if rows.is_empty() {
            // Operations with statements of their own (`Once`) append to these variables.
            let marked = self.marked().replace("v.mark", &mark.to_string());
            self.statement(|script| {
                script.push(&format!(
                    "SET {DECIDED}={marked},@tag_lock_granted='',@tag_lock_rows=CONCAT({NOW_MICROS},';')"
                ));
            });
            self.require_mark(DECIDED);
            return;
        }
        let all = length(rows.iter().map(|(position, ..)| *position));
        let list = List::new(COLUMNS, &rows, |entry, (position, row, verb)| {
            let entry = entry
                .text(Column::Name, row.key.name.as_str())
                .number(Column::Kind, row.key.kind as u8)
                .number(Column::Slot, row.key.slot)
                .number(
                    Column::Position,
                    u64::try_from(*position).unwrap_or_default(),
                )
                .number(Column::Verb, *verb as u8)
                .number(Column::AllGranted, u64::try_from(all).unwrap_or_default())
                .number(Column::Mark, mark);
            row.operation.write(entry, batch.not_after)
        });
        let has = |verb: &Verb| rows.iter().any(|(_, _, other)| other == verb);
        let verbs: Vec<Verb> = STATEMENTS
            .iter()
            .flat_map(|verbs| verbs.iter().copied())
            .filter(has)
            .collect();
        let address = address(rows.iter().map(|(_, row, _)| &row.key));
        self.decide(batch, &list.all(), &verbs, address);
        if batch.mode.is_together() && !mutant::on(Mutant::GroupUnchecked) {
            self.all_or_nothing(&rows, all);
        }
        let each_alone = self.has_sequences() && rows.len() >= EACH_ALONE;
        let statements = STATEMENTS
            .iter()
            .flat_map(|verbs| verbs.chunks(if each_alone { 1 } else { verbs.len() }));
        for statement in statements {
            let verbs: Vec<Verb> = statement.iter().copied().filter(has).collect();
            if verbs.is_empty() {
                continue;
            }
            let of_it = rows
                .iter()
                .enumerate()
                .filter(|(_, (_, _, verb))| verbs.contains(verb));
            let part = list.part(of_it.map(|(row, _)| row));
            self.change_granted(&part, &verbs, address);
        }
        self.expect(if rows.len() == 1 {
            "2*(@tag_lock_granted<>'')"
        } else {
            // One more than there are commas.
            "2*(LENGTH(@tag_lock_granted)-LENGTH(REPLACE(@tag_lock_granted,',',''))+(@tag_lock_granted<>''))"
        });
    }

    /// Locks the rows and decides.
    fn decide(
        &mut self,
        batch: &Batch<'_>,
        rows: &ListPart<'_>,
        verbs: &[Verb],
        address: &Address,
    ) {
        let select = &texts::decision(verbs, rows.is_single(), self.marked());
        self.statement(|script| {
            rows.query(
                script,
                Query {
                    select,
                    table: "t_tag_lock t FORCE INDEX(PRIMARY)",
                    key: address.key,
                    tail: batch.mode.lock_rows(),
                    ..Query::default()
                },
            );
        });
        self.require_mark(DECIDED);
    }

    /// Grants nothing of a group, unless each of its rows was had and is granted.
    fn all_or_nothing(&mut self, rows: &[(usize, &RowOperation, Verb)], all: usize) {
        let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (position, row, _) in rows {
            groups.entry(row.group).or_default().push(*position);
        }
        let (whole, is_whole) = if groups.len() == 1 {
            // One group: all of it is granted if the list is as long as that of all positions, and no other list is.
            let whole = format!("IF(LENGTH(@tag_lock_granted)={all},@tag_lock_granted,'')");
            (whole, format!("LENGTH(@tag_lock_granted) IN(0,{all})"))
        } else {
            let groups: Vec<String> = groups.values().map(|group| whole_group(group)).collect();
            let whole = format!("CONCAT_WS(',',{})", groups.join(","));
            // The check: to take incomplete groups away once more changes nothing.
            let is_whole = format!("@tag_lock_granted={whole}");
            (whole, is_whole)
        };
        self.statement(|script| script.push(&format!("SET @tag_lock_granted={whole}")));
        self.require(&is_whole);
    }

    /// Changes those of the rows that are granted.
    fn change_granted(&mut self, rows: &ListPart<'_>, verbs: &[Verb], address: &Address) {
        let granted = "FIND_IN_SET(v.position,@tag_lock_granted)";
        let assignments = texts::assignments(verbs);
        self.change(|script| {
            if rows.is_single() && mutant::on(Mutant::PacketUnchecked) {
                script.push("UPDATE t_tag_lock SET ");
                rows.fill(script, &assignments);
                let key = [
                    " WHERE lock_name=v.name AND kind=v.kind AND slot=",
                    address.slot,
                    " AND ",
                ]
                .concat();
                rows.fill(script, &key);
                rows.fill(script, granted);
                return;
            }
            script.push("INSERT INTO t_tag_lock (lock_name,kind,slot) ");
            rows.query(
                script,
                Query {
                    select: address.select,
                    // In the common batch all are, and the list need not be searched for each.
                    and: &format!(" AND (LENGTH(@tag_lock_granted)=v.all_granted OR {granted})"),
                    tail: &format!(" ON DUPLICATE KEY UPDATE {assignments}"),
                    ..Query::default()
                },
            );
        });
    }
}
