//! What a batch does to its rows: one statement decides, the next one changes what was granted.
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
//! What is refused stays locked until the transaction ends, as what is granted.
//!
//! The second is an `INSERT … SELECT … ON DUPLICATE KEY UPDATE` of rows that exist and are locked: it never inserts, and
//! never waits. (A joined `UPDATE` would do the same, but MariaDB creates a temporary table on disk for each. A plain `UPDATE` of a single
//! row costs more, and some servers undo it and say that it is done: [`super::script`].) It assigns from left to right: every
//! assignment here reads only columns that none before it has assigned, so that it computes from the row as it was. Every row
//! that is granted is changed, if only in its `modify_time`, so that the server counts it.

use super::NOW_MICROS;
use super::list::{List, Part, Query, Row};
use super::operation::{Change, Operation};
use super::packet::{Batch, RowOperation};
use super::script::Script;
use super::verb::{self, STATEMENTS, Verb};
use crate::mutant::{self, Mutant};

/// The columns of a batch's list. All: `n` name, `k` kind, `i` position, `o` verb, `d` token.
/// Locks: `t` granted until, `p` gives way, `w` ttl, `b` block, `x` description, `a` held by, `f` the grant's fence, `g` used, `h` hold,
/// `q` mark. Counters: `l`, `u` bounds, `c` keeps the value, `s` step, `m` times, `e` edge, `w` window, `z` restart.
/// Of the batch: `y` how long the list of positions is if all of it is granted, `j` the packet's mark.
const COLUMNS: &str = "nkiodtpwbxafghqlucsmezyj";

/// The mark of the packet that has decided.
const DECIDED: &str = "@tag_lock_decided";

/// From so many rows on, each verb has a statement of its own where a statement costs no list: to find out for each
/// column what a row's verb makes of it costs more (a sixth of the change of 512 rows, MariaDB 10.11).
const EACH_ALONE: usize = 32;

fn entry<'l>(row: Row<'l>, position: usize, operation: &RowOperation, not_after: i64) -> Row<'l> {
    let verb = Verb::of(&operation.operation).map_or(0, |verb| verb as u8);
    let row = row
        .text('n', operation.key.name.as_str())
        .number('k', operation.key.kind as u8)
        .number('i', u64::try_from(position).unwrap_or_default())
        .number('o', verb)
        .bytes('d', operation.operation.token().as_bytes());
    match &operation.operation {
        Operation::Acquire(acquire) => row
            .number('t', not_after)
            .number('p', u8::from(acquire.gives_way))
            .number('w', acquire.ttl)
            .number('b', acquire.block)
            .number('q', acquire.level.unwrap_or_default())
            .text('x', &acquire.description)
            .text('a', &acquire.held_by),
        Operation::Release(release) => row
            .number('f', release.fence)
            .number('g', release.used)
            .number('h', release.hold)
            .number('q', release.level.unwrap_or_default()),
        Operation::Renew(renew) => row.number('f', renew.fence).number('w', renew.ttl),
        Operation::ForceRelease(force) => row.number('f', force.fence),
        Operation::Want(want) => row.number('w', want.wait),
        Operation::Count(count) => {
            let (keeps, step, times, edge) = match count.change {
                Change::Add { step, times, edge } => (1_u8, step, times, edge),
                Change::Set { value } => (0, value, 1, 0),
            };
            row.number('l', count.low)
                .number('u', count.high)
                .number('c', keeps)
                .number('s', step)
                .number('m', times)
                .number('e', edge)
                .number('w', count.window)
                .number('z', u8::from(count.restart))
        }
        Operation::Once(_) | Operation::Touch(_) => row,
    }
}

impl Script<'_> {
    /// Decides about the rows of a batch, and changes them.
    pub(super) fn change_rows(&mut self, batch: &Batch<'_>) {
        let rows: Vec<(usize, &RowOperation, Verb)> = batch
            .rows
            .iter()
            .enumerate()
            .filter_map(|(position, row)| Some((position, row, Verb::of(&row.operation)?)))
            .collect();
        let mark = self.mark();
        if rows.is_empty() {
            // The operations with statements of their own add to it.
            let marked = self.marked().replace("v.j", &mark.to_string());
            self.statement(|script| {
                script.push(&format!(
                    "SET {DECIDED}={marked},@tag_lock_granted='',@tag_lock_rows=CONCAT({NOW_MICROS},';')"
                ));
            });
            self.require_mark(DECIDED);
            return;
        }
        let digits = |position: usize| position.checked_ilog10().unwrap_or(0) + 1;
        let digits: u32 = rows.iter().map(|(position, ..)| digits(*position)).sum();
        let all = digits as usize + rows.len() - 1;
        let list = List::new(COLUMNS, &rows, |entry, (position, row, _)| {
            let entry = entry.number('y', u64::try_from(all).unwrap_or_default());
            let entry = entry.number('j', mark);
            self::entry(entry, *position, row, batch.not_after)
        });
        let has = |verb: &Verb| rows.iter().any(|(_, _, other)| other == verb);
        let verbs: Vec<Verb> = STATEMENTS
            .iter()
            .flat_map(|verbs| verbs.iter().copied())
            .filter(has)
            .collect();
        self.decide(batch, &list.all(), &verbs);
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
            self.change_granted(&part, &verbs);
        }
        self.expect(if rows.len() == 1 {
            "2*(@tag_lock_granted<>'')"
        } else {
            // One more than there are commas.
            "2*(LENGTH(@tag_lock_granted)-LENGTH(REPLACE(@tag_lock_granted,',',''))+(@tag_lock_granted<>''))"
        });
    }

    /// Locks the rows and decides.
    fn decide(&mut self, batch: &Batch<'_>, rows: &Part<'_>, verbs: &[Verb]) {
        let select = &verb::decision(verbs, rows.is_single(), self.marked());
        self.statement(|script| {
            rows.query(
                script,
                Query {
                    select,
                    table: "t_tag_lock t FORCE INDEX(PRIMARY)",
                    key: "t.lock_name=v.n AND t.kind=v.k AND t.slot=0",
                    tail: batch.mode.lock_rows(),
                    ..Query::default()
                },
            );
        });
        self.require_mark(DECIDED);
    }

    /// Changes those of the rows that are granted.
    fn change_granted(&mut self, rows: &Part<'_>, verbs: &[Verb]) {
        let granted = "FIND_IN_SET(v.i,@tag_lock_granted)";
        let assignments = verb::assignments(verbs);
        self.change(|script| {
            if rows.is_single() && mutant::on(Mutant::PacketUnchecked) {
                script.push("UPDATE t_tag_lock SET ");
                rows.fill(script, &assignments);
                let key = " WHERE lock_name=v.n AND kind=v.k AND slot=0 AND ";
                rows.fill(script, key);
                rows.fill(script, granted);
                return;
            }
            script.push("INSERT INTO t_tag_lock (lock_name,kind,slot) ");
            rows.query(
                script,
                Query {
                    select: "SELECT v.n,v.k,0",
                    // In the common batch all are, and the list need not be searched for each.
                    and: &format!(" AND (LENGTH(@tag_lock_granted)=v.y OR {granted})"),
                    tail: &format!(" ON DUPLICATE KEY UPDATE {assignments}"),
                    ..Query::default()
                },
            );
        });
    }
}
