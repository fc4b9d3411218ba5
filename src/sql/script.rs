//! A text of several statements while it is written.

use super::dialect::Dialect;
use super::literal;
use crate::mutant::{self, Mutant};
use crate::stripe::Stripe;

/// Writes the columns of one entry of a list, each behind a comma.
pub(super) struct Columns<'s>(pub(super) &'s mut String);

impl Columns<'_> {
    pub(super) fn bytes(self, value: &[u8]) -> Self {
        self.0.push(',');
        literal::bytes(self.0, value);
        self
    }

    pub(super) fn text(self, value: &str) -> Self {
        self.0.push(',');
        literal::text(self.0, value);
        self
    }

    pub(super) fn number(self, value: impl Into<i128>) -> Self {
        self.0.push(',');
        literal::number(self.0, value);
        self
    }
}

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
            let mut stripes = Stripe::all().filter(|stripe| wanted[stripe.index()]);
            let (first, second) = (stripes.next(), stripes.next());
            if let (Some(only), None) = (first, second) {
                script.push("SELECT COUNT(*) FROM t_tag_lock WHERE lock_name=");
                literal::text(&mut script.sql, &only.to_string());
                script.push(" AND kind=0 AND slot=0");
                script.push(lock);
                return;
            }
            let stripes: Vec<Stripe> = first.into_iter().chain(second).chain(stripes).collect();
            script.list("v(n)", &stripes, |sql, stripe| {
                literal::text(sql, &stripe.to_string());
            });
            script.push(
                "SELECT COUNT(*) FROM v STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY) \
                 ON t.lock_name=v.n AND t.kind=0 AND t.slot=0",
            );
            script.push(lock);
        });
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
