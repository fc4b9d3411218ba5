//! A text of several statements while it is written.

use super::dialect::Dialect;
use super::list::List;
use crate::mutant::{self, Mutant};
use crate::stripe::Stripe;

/// A text of several statements while it is written.
pub(super) struct Script {
    dialect: Dialect,
    pub(super) sql: String,
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

    /// Locks stripes in ascending order, and waits for them.
    pub(super) fn lock_stripes_of(&mut self, stripes: impl Iterator<Item = Stripe>) {
        let mut wanted = [false; crate::stripe::STRIPES as usize];
        for stripe in stripes {
            wanted[stripe.index()] = true;
        }
        self.statement(|script| {
            let lock = if mutant::on(Mutant::StripeUnlocked) {
                ""
            } else {
                " FOR UPDATE"
            };
            let stripes: Vec<Stripe> = Stripe::all()
                .filter(|stripe| wanted[stripe.index()])
                .collect();
            let list = List::new("n", &stripes, |row, stripe| row.text(&stripe.to_string()));
            script.query(
                &list,
                "SELECT COUNT(*)",
                (
                    "t_tag_lock t FORCE INDEX(PRIMARY)",
                    "t.lock_name=v.n AND t.kind=0 AND t.slot=0",
                    "",
                ),
            );
            script.push(lock);
        });
    }

    /// Writes a query: `select` from `list`, from `table`, whose rows are looked up one by one by `key`, and from what
    /// `joins` names. A further ` AND condition` may follow. In all of them `v.x` is column `x` of the list.
    pub(super) fn query(
        &mut self,
        list: &List,
        select: &str,
        (table, key, joins): (&str, &str, &str),
    ) {
        list.with(&mut self.sql, self.dialect);
        list.fill(&mut self.sql, select);
        list.from(&mut self.sql, table, key, joins);
    }
}
