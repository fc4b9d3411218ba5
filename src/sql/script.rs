//! A text of several statements while it is written.
//!
//! # What spares the server time
//!
//! MariaDB runs a transaction as one compound statement, so that it answers once behind the `COMMIT` instead of
//! after each statement, and statements without lists as prepared ones, which it parsed when the session first
//! sent them. Both together: 1,280 microseconds for one acquire become 960, where one `UPDATE` with its commit
//! takes 740 (MariaDB 10.11, medians of one run). MySQL has neither: its `EXECUTE` takes user variables only.
//! <https://mariadb.com/kb/en/begin-end/>, <https://mariadb.com/kb/en/execute-statement/>.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use super::dialect::Dialect;
use super::list::{List, Query};
use super::prepared::Prepared;
use crate::mutant::{self, Mutant};
use crate::stripe::Stripe;

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

/// No two packets of a process have the same mark, and so no two of a session.
static NEXT_MARK: AtomicU64 = AtomicU64::new(1);

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
}

impl<'p> Script<'p> {
    /// Begins the text of a transaction. `autocommit` is off: the first statement that touches a table begins it.
    ///
    /// If the client stops between here and the end, the server ends the transaction in a second.
    pub(super) fn transaction(
        dialect: Dialect,
        prepared: Option<&'p mut Prepared>,
        capacity: usize,
    ) -> Self {
        let mut script = Self::query_only(dialect, capacity);
        if dialect.has_compound_statements() {
            script.prepared = prepared.filter(|prepared| prepared.is_on());
            script.push("BEGIN NOT ATOMIC ");
            script.opening = script.sql.len();
        }
        if !dialect.bounds_idle_transactions() {
            script.statement(|script| script.push("SET wait_timeout=1"));
        }
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
        }
    }

    /// The text of a single query.
    pub(super) fn into_query(self) -> String {
        self.sql
    }

    /// Commits, and then answers with what the expression `answer` comes to.
    pub(super) fn commit(mut self, answer: &str) -> Packet {
        // Writing to a String cannot fail.
        let proof = if self.dialect.has_compound_statements() {
            let mark = NEXT_MARK.fetch_add(1, Ordering::Relaxed);
            let end = format_args!(";SET @tag_lock_mark={mark};COMMIT;SELECT {answer};END");
            let _ = self.sql.write_fmt(end);
            Proof::Mark(mark)
        } else {
            let _ = write!(self.sql, ";COMMIT;SELECT {answer}");
            Proof::Result(self.results)
        };
        if !self.dialect.bounds_idle_transactions() {
            self.push(";SET wait_timeout=28800");
        }
        if !self.preparation.is_empty() {
            self.sql.insert_str(0, &self.preparation);
        }
        Packet {
            sql: self.sql,
            proof,
        }
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
    pub(super) fn argument(&mut self, literal: &str) {
        match &mut self.arguments {
            Some(arguments) => {
                arguments.push_str(if arguments.is_empty() { "" } else { "," });
                arguments.push_str(literal);
                self.push("?");
            }
            None => self.literal(literal),
        }
    }

    /// Writes a statement that the server answers with one word, which a compound statement swallows.
    pub(super) fn statement(&mut self, write: impl FnOnce(&mut Self)) {
        if !self.dialect.has_compound_statements() {
            self.results += 1;
        }
        self.write(write);
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

    /// Locks stripes in ascending order, and waits for them.
    pub(super) fn lock_stripes_of(&mut self, stripes: impl Iterator<Item = Stripe>) {
        let mut wanted = [false; crate::stripe::STRIPES as usize];
        for stripe in stripes {
            wanted[stripe.index()] = true;
        }
        let lock = if mutant::on(Mutant::StripeUnlocked) {
            ""
        } else {
            " FOR UPDATE"
        };
        let stripes: Vec<Stripe> = Stripe::all()
            .filter(|stripe| wanted[stripe.index()])
            .collect();
        if stripes.is_empty() {
            return;
        }
        let list = List::new("n", &stripes, |row, stripe| {
            row.text('n', &stripe.to_string())
        });
        self.statement(|script| {
            list.all().query(
                script,
                Query {
                    select: "SELECT COUNT(*) INTO @tag_lock_stripes",
                    table: "t_tag_lock t FORCE INDEX(PRIMARY)",
                    key: "t.lock_name=v.n AND t.kind=0 AND t.slot=0",
                    tail: lock,
                    ..Query::default()
                },
            );
        });
    }
}
