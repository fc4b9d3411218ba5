//! A text of several statements while it is written.
//!
//! # What spares the server time
//!
//! Statements without lists are prepared ones, which the server parsed when the session sent them for the second time. MySQL's `EXECUTE` takes
//! user variables only: the packet's first statement sets them. MariaDB runs a transaction as one compound statement, so that it
//! answers once behind the `COMMIT` instead of after each statement. Both together: 1,280 microseconds for one acquire become 960,
//! where one `UPDATE` with its commit takes 740 (MariaDB 10.11, medians of one run).
//! <https://mariadb.com/kb/en/begin-end/>, <https://mariadb.com/kb/en/execute-statement/>.
//!
//! # The check before the COMMIT
//!
//! Some servers undo a single-table `UPDATE` or `DELETE` that `KILL QUERY` or a time limit hits, report it as done, and carry out the
//! rest of the packet, `COMMIT` included (MariaDB 10.11.14, 11.8.6, 11.8.9). So no such statement decides anything here, and no statement is
//! believed: a packet commits only if each of its statements did what the packet counts on, and is undone otherwise, with
//! an error that means that it may run again.
//!
//! - A statement that decides selects the packet's mark with its result ([`Script::mark`]). Its variables are this packet's only if the
//!   mark is: those of an earlier packet, which stay where a statement did not run, have another one.
//! - A statement that changes rows that exist is an `INSERT … ON DUPLICATE KEY UPDATE` or a joined `UPDATE`: `ROW_COUNT()` tells how
//!   many rows it changed ([`Script::change`]), and the sum of all must be what was decided.
//!
//! - Each packet begins with what it counts unset, so that no figure of an earlier one is taken for its own.
//!
//! MariaDB checks in an `IF` of the compound statement. On MySQL, which is not known to lie, an assignment that the server
//! refuses in every `sql_mode` ends the packet: `completion_type` is `NO_CHAIN` already, and never `undone`.

use std::fmt::Write;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::dialect::Dialect;
use super::prepared::Prepared;
use super::server_error::DEADLOCK;
use crate::mutant::{self, Mutant};

/// A transaction as one text, with its `COMMIT` and the query that answers behind it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) sql: String,
    pub(crate) proof: Proof,
}

/// What says that a packet was committed, or that it was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Each statement is answered: that of the `COMMIT` stands here among the server's results.
    Result(usize),
    /// There is an answer only behind the `COMMIT`. As long as [`MARK`] is another number, the packet has not come so far.
    Mark(u64),
}

/// Asks for the mark of the last packet that came to its `COMMIT`.
pub(crate) const MARK: &str = "SELECT @tag_lock_mark";

/// No two packets of a process have the same mark, and so no two of a session. They begin anywhere, so that those of a process that had
/// the session before (a proxy may hand it on) are others too.
static NEXT_MARK: LazyLock<AtomicU64> =
    LazyLock::new(|| AtomicU64::new(u64::from(rand::random::<u32>()) << 20));

/// The sum of `ROW_COUNT()` of the statements before the last one that changed rows.
const CHANGED: &str = "@tag_lock_changed";
/// A text of several statements while it is written.
pub(super) struct Script<'p> {
    dialect: Dialect,
    sql: String,
    /// Where the statements begin, behind what opens a compound statement.
    opening: usize,
    /// How many results the server sends before that of the `COMMIT`.
    results: usize,
    prepared: Option<&'p mut Prepared>,
    /// `PREPARE` of what the session has not prepared yet.
    preparation: String,
    /// The parameters of the statement that is being written, as long as it can be prepared.
    arguments: Option<String>,
    variables: Variables,
    check: Check,
}

/// The arguments of a packet's prepared statements, where those must be variables of the session: its first statement sets all
/// of them.
#[derive(Default)]
struct Variables {
    values: Vec<String>,
    /// Where in the text they are set.
    at: usize,
}

impl Variables {
    /// Names the variables that stand for these literals, with commas between.
    fn name(&mut self, literals: &str) -> String {
        let mut names = String::with_capacity(literals.len());
        for literal in literals.split(',') {
            let known = self.values.iter().position(|value| value == literal);
            let number = known.unwrap_or_else(|| {
                self.values.push(literal.to_owned());
                self.values.len() - 1
            });
            let comma = if names.is_empty() { "" } else { "," };
            // Writing to a String cannot fail.
            let _ = write!(names, "{comma}@tag_lock_{number}");
        }
        names
    }

    /// What sets them.
    fn assignments(&self) -> String {
        let mut text = String::new();
        for (number, value) in self.values.iter().enumerate() {
            // Writing to a String cannot fail.
            let _ = write!(text, ",@tag_lock_{number}={value}");
        }
        text
    }
}

/// What must hold before the `COMMIT`.
#[derive(Default)]
struct Check {
    /// Which packet this is.
    mark: u64,
    /// Conditions, with `AND` between.
    conditions: String,
    /// What `ROW_COUNT()` of all statements that change rows must come to, as a sum.
    changes: String,
    /// The last statement changed rows, which [`CHANGED`] does not have yet.
    uncounted: bool,
    /// [`CHANGED`] is this packet's.
    counted: bool,
    /// The last statement gave the batch its number, and must have changed the lane's row.
    numbered: bool,
    /// A mutant commits whatever happened.
    off: bool,
}

impl Check {
    fn require(&mut self, condition: std::fmt::Arguments<'_>) {
        let and = if self.conditions.is_empty() {
            ""
        } else {
            " AND "
        };
        // Writing to a String cannot fail.
        let _ = write!(self.conditions, "{and}{condition}");
    }

    /// All of it as one expression.
    fn expression(mut self) -> String {
        if self.off {
            return String::from("1");
        }
        let changes = std::mem::take(&mut self.changes);
        match (self.counted, self.uncounted) {
            (true, true) => self.require(format_args!("{CHANGED}+ROW_COUNT()={changes}")),
            (true, false) => self.require(format_args!("{CHANGED}={changes}")),
            (false, true) => self.require(format_args!("ROW_COUNT()={changes}")),
            (false, false) => {}
        }
        debug_assert!(!self.conditions.is_empty(), "a packet checks something");
        self.conditions
    }
}

impl<'p> Script<'p> {
    /// Begins the text of a transaction: `autocommit` is off, so the first statement that touches a table begins it.
    ///
    /// If the client stops between here and the end, the server ends the transaction in a second.
    pub(super) fn transaction(
        dialect: Dialect,
        prepared: Option<&'p mut Prepared>,
        capacity: usize,
    ) -> Self {
        let mut script = Self::query_only(dialect, capacity);
        script.check.mark = NEXT_MARK.fetch_add(1, Ordering::Relaxed);
        script.prepared = prepared.filter(|prepared| prepared.is_on());
        if let Some(prepared) = &mut script.prepared {
            prepared.begin();
        }
        if dialect.has_compound_statements() {
            script.push("BEGIN NOT ATOMIC ");
            script.opening = script.sql.len();
        }
        // What an earlier packet has counted is of no account; `ROW_COUNT()` becomes 0 as well.
        script.statement(|script| {
            script.push(&format!("SET {CHANGED}=NULL,autocommit=0"));
            if !dialect.bounds_idle_transactions() {
                script.push(",wait_timeout=1");
            }
        });
        script.variables.at = script.sql.len();
        script
    }

    /// Begins the text of a single query.
    pub(super) fn query_only(dialect: Dialect, capacity: usize) -> Self {
        Self {
            dialect,
            sql: String::with_capacity(capacity),
            opening: 0,
            results: 0,
            prepared: None,
            preparation: String::new(),
            arguments: None,
            variables: Variables::default(),
            check: Check::default(),
        }
    }

    /// The text of a single query.
    pub(super) fn into_query(self) -> String {
        self.sql
    }

    /// Commits if everything is as the packet counts on, and then answers with what the expression `answer` comes to.
    pub(super) fn commit(mut self, answer: &str) -> Packet {
        let mark = self.check.mark;
        let check = std::mem::take(&mut self.check).expression();
        // Writing to a String cannot fail.
        let proof = if self.dialect.has_compound_statements() {
            let _ = write!(
                self.sql,
                ";IF {check} THEN SET @tag_lock_mark={mark};COMMIT;SELECT {answer};\
                 ELSE SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO={DEADLOCK},\
                 MESSAGE_TEXT='the server undid a part of the packet';END IF;END"
            );
            Proof::Mark(mark)
        } else {
            let _ = write!(
                self.sql,
                ";SET completion_type=IF({check},'NO_CHAIN','undone');COMMIT;SELECT {answer}"
            );
            Proof::Result(self.results + 1)
        };
        if !self.dialect.bounds_idle_transactions() {
            self.push(";SET wait_timeout=28800");
        }
        let variables = self.variables.assignments();
        self.sql.insert_str(self.variables.at, &variables);
        self.sql.insert_str(0, &self.preparation);
        Packet {
            sql: self.sql,
            proof,
        }
    }

    /// Which packet this is, for the column `mark` of a list.
    pub(super) fn mark(&self) -> u64 {
        self.check.mark
    }

    /// The statement before has changed one row: the next one that decides says the packet's mark only if `ROW_COUNT()` tells so.
    pub(super) fn number_row(&mut self) {
        self.check.numbered = true;
    }

    /// What a statement that decides selects into a variable of its own, for [`Self::require_mark`].
    pub(super) fn marked(&mut self) -> &'static str {
        if std::mem::take(&mut self.check.numbered) {
            "IF(ROW_COUNT()>0,v.mark,0)"
        } else {
            "v.mark"
        }
    }

    /// Commits only if `variable` has the packet's mark.
    pub(super) fn require_mark(&mut self, variable: &str) {
        let mark = self.check.mark;
        self.check.require(format_args!("{variable}={mark}"));
    }

    /// Commits only if this holds.
    pub(super) fn require(&mut self, condition: &str) {
        self.check.require(format_args!("{condition}"));
    }

    /// Commits whatever happened.
    pub(super) fn unchecked_if(&mut self, mutant: Mutant) {
        self.check.off |= mutant::on(mutant);
    }

    pub(super) fn push(&mut self, text: &str) {
        self.sql.push_str(text);
    }

    /// Writes a literal.
    pub(super) fn literal(&mut self, literal: &str) {
        // A minus before it would make a comment of it.
        let negative = literal.starts_with('-');
        self.push(if negative { "(" } else { "" });
        self.push(literal);
        self.push(if negative { ")" } else { "" });
    }

    /// Writes a literal, or a parameter in its place.
    ///
    /// Where a parameter is a variable, the server's list of processes shows its bytes as they are, and those that are no text
    /// are an error for whoever reads it: so tokens are handed over as digits.
    pub(super) fn argument(&mut self, literal: &str) {
        let digits = !self.dialect.takes_literals();
        let Some(arguments) = &mut self.arguments else {
            self.literal(literal);
            return;
        };
        arguments.push_str(if arguments.is_empty() { "" } else { "," });
        let parameter = if let Some(bytes) = literal.strip_prefix('x').filter(|_| digits) {
            arguments.push_str(bytes);
            "UNHEX(?)"
        } else {
            arguments.push_str(literal);
            "?"
        };
        self.push(parameter);
    }

    /// Writes a statement that the server answers with one word, which a compound statement swallows.
    pub(super) fn statement(&mut self, write: impl FnOnce(&mut Self)) {
        debug_assert!(!self.check.numbered, "who checks the lane's row comes next");
        if std::mem::take(&mut self.check.uncounted) {
            let sum = if std::mem::replace(&mut self.check.counted, true) {
                format!("SET {CHANGED}={CHANGED}+ROW_COUNT()")
            } else {
                format!("SET {CHANGED}=ROW_COUNT()")
            };
            self.count_result();
            self.write(|script| script.push(&sum));
        }
        self.count_result();
        self.write(write);
    }

    /// Writes a statement that changes rows that exist: its `ROW_COUNT()` counts.
    pub(super) fn change(&mut self, write: impl FnOnce(&mut Self)) {
        self.statement(write);
        self.check.uncounted = true;
    }

    /// Commits only if the sum of `ROW_COUNT()` of all changes is the sum of what is expected. (An upsert counts a row that it
    /// changes twice, and one that it inserts once.)
    pub(super) fn expect(&mut self, changes: &str) {
        let plus = if self.check.changes.is_empty() {
            ""
        } else {
            "+"
        };
        // Writing to a String cannot fail.
        let _ = write!(self.check.changes, "{plus}{changes}");
    }

    fn count_result(&mut self) {
        if !self.dialect.has_compound_statements() {
            self.results += 1;
        }
    }

    fn write(&mut self, write: impl FnOnce(&mut Self)) {
        if self.sql.len() > self.opening {
            self.push(";");
        }
        let start = self.sql.len();
        self.arguments = self.prepared.as_ref().map(|_| String::with_capacity(512));
        write(self);
        let arguments = self.arguments.take().filter(|some| !some.is_empty());
        if let (Some(arguments), Some(prepared)) = (arguments, &mut self.prepared) {
            let text = self.sql.split_off(start);
            let Some((number, new)) = prepared.number(&text) else {
                self.fill_in(&text, &arguments);
                return;
            };
            if new {
                // No byte of it is a user's.
                let text = text.replace('\'', "''");
                let _ = write!(self.preparation, "PREPARE tag_lock_{number} FROM '{text}';");
                self.results += 1;
            }
            let arguments = if self.dialect.takes_literals() {
                arguments
            } else {
                self.variables.name(&arguments)
            };
            // Writing to a String cannot fail.
            let _ = write!(self.sql, "EXECUTE tag_lock_{number} USING {arguments}");
        }
    }

    /// Writes a text with its parameters in their places. No literal has a comma in it.
    fn fill_in(&mut self, text: &str, arguments: &str) {
        let mut arguments = arguments.split(',');
        for (position, part) in text.split('?').enumerate() {
            if position > 0 {
                self.literal(arguments.next().unwrap_or_default());
            }
            self.push(part);
        }
    }

    /// Says that the statement that is being written has another text each time.
    pub(super) fn varies(&mut self) {
        debug_assert!(self.arguments.as_deref().unwrap_or_default().is_empty());
        self.arguments = None;
    }

    /// Whether lists can be taken apart by the numbers of their rows.
    pub(super) fn has_sequences(&self) -> bool {
        self.dialect == Dialect::MariaDb { sequences: true }
    }

    /// What stands before each row of a list.
    pub(super) fn row(&self) -> &'static str {
        self.dialect.row()
    }
}
