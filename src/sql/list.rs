//! A list of literals as a query's table `v`, from which its rows are looked up one by one.
//!
//! What has one value in all rows of the list is a constant of the query, and only the rest is a
//! list; a list of one row is none at all. So the common batch (one ttl, one description, or a single
//! operation) is what one would write by hand, from one text for all: half the bytes to parse, and a
//! quarter less of the server's time for 500 acquires (MariaDB 10.11).

use super::literal;
use super::script::Script;

/// Writes the literals of one row, in the order of the list's columns.
pub(super) struct Row<'l> {
    text: &'l mut String,
    ends: &'l mut Vec<usize>,
}

impl Row<'_> {
    fn end(self) -> Self {
        self.ends.push(self.text.len());
        self
    }

    pub(super) fn bytes(self, value: &[u8]) -> Self {
        literal::bytes(self.text, value);
        self.end()
    }

    pub(super) fn text(self, value: &str) -> Self {
        literal::text(self.text, value);
        self.end()
    }

    pub(super) fn number(self, value: impl Into<i128>) -> Self {
        literal::number(self.text, value);
        self.end()
    }
}

/// The rows of literals.
pub(super) struct List {
    /// One letter a column.
    columns: &'static str,
    /// All literals, one behind the other, and where each ends.
    text: String,
    ends: Vec<usize>,
    /// By column: it has one value.
    constant: Vec<bool>,
}

impl List {
    /// Each of `rows` as `write` writes it; at least one.
    pub(super) fn new<T>(
        columns: &'static str,
        rows: &[T],
        write: impl for<'l> Fn(Row<'l>, &T) -> Row<'l>,
    ) -> Self {
        let mut list = Self {
            columns,
            text: String::with_capacity(rows.len() * columns.len() * 20),
            ends: Vec::with_capacity(rows.len() * columns.len()),
            constant: Vec::new(),
        };
        for (position, row) in rows.iter().enumerate() {
            let (text, ends) = (&mut list.text, &mut list.ends);
            write(Row { text, ends }, row);
            debug_assert_eq!(list.ends.len(), (position + 1) * columns.len());
        }
        list.constant = (0..columns.len())
            .map(|column| {
                let first = list.literal(0, column);
                (1..list.rows()).all(|row| list.literal(row, column) == first)
            })
            .collect();
        // Several rows are several, also when they are the same.
        if list.rows() > 1 && list.is_constant() {
            list.constant[0] = false;
        }
        list
    }

    fn rows(&self) -> usize {
        self.ends.len() / self.columns.len()
    }

    fn literal(&self, row: usize, column: usize) -> &str {
        let position = row * self.columns.len() + column;
        let start = position
            .checked_sub(1)
            .map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[position]]
    }

    /// There is no table `v`: all of it stands in the query.
    fn is_constant(&self) -> bool {
        self.constant.iter().all(|constant| *constant)
    }

    /// Appends `WITH v(…) AS (VALUES …) `, unless all is constant.
    pub(super) fn with(&self, script: &mut Script<'_>) {
        if self.is_constant() {
            return;
        }
        script.varies();
        let columns = || (0..self.columns.len()).filter(|column| !self.constant[*column]);
        for (position, column) in columns().enumerate() {
            script.push(if position == 0 { "WITH v(" } else { "," });
            script.push(&self.columns[column..=column]);
        }
        script.push(") AS (VALUES ");
        for row in 0..self.rows() {
            script.push(if row > 0 { "," } else { "" });
            script.push(script.row());
            for (position, column) in columns().enumerate() {
                script.push(if position > 0 { "," } else { "" });
                script.push(self.literal(row, column));
            }
            script.push(")");
        }
        script.push(") ");
    }

    /// Appends `template`, in which `v.x` stands for column `x` of the list.
    pub(super) fn fill(&self, script: &mut Script<'_>, template: &str) {
        let mut rest = template;
        while let Some(at) = rest.find("v.") {
            let (before, reference) = rest.split_at(at);
            script.push(before);
            let inside = before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
            let column = self.columns.find(&reference[2..reference.len().min(3)]);
            let end = 2 + usize::from(column.is_some());
            match column.filter(|column| !inside && end == 3 && self.constant[*column]) {
                Some(column) => script.argument(self.literal(0, column)),
                None => script.push(&reference[..end]),
            }
            rest = &reference[end..];
        }
        script.push(rest);
    }

    /// Appends ` FROM` the list, `table`, which is looked up by `key`, and `joins`; up to where ` AND condition`
    /// fits.
    pub(super) fn from(&self, script: &mut Script<'_>, table: &str, key: &str, joins: &str) {
        let (join, on, end) = if self.is_constant() {
            (" FROM ", "", key)
        } else {
            (" FROM v STRAIGHT_JOIN ", key, "1")
        };
        script.push(join);
        script.push(table);
        if !on.is_empty() {
            script.push(" ON ");
            self.fill(script, on);
        }
        self.fill(script, joins);
        script.push(" WHERE ");
        self.fill(script, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::dialect::Dialect;

    fn list(rows: &[(i64, &[u8])]) -> List {
        List::new("nx", rows, |row, (number, bytes)| {
            row.number(*number).bytes(bytes)
        })
    }

    fn written(list: &List, template: &str) -> String {
        let mut script = Script::query_only(Dialect::MariaDb, 0);
        let select = format!("SELECT {template}");
        script.query(list, &select, ("t", "t.n=v.n", " JOIN u ON u.x=v.x"));
        script.into_query()
    }

    #[test]
    fn columns_that_differ_are_a_table() {
        let list = list(&[(1, b"a"), (2, b"b")]);
        assert_eq!(
            written(&list, "v.x,v.n+1"),
            "WITH v(n,x) AS (VALUES (1,x'61'),(2,x'62')) SELECT v.x,v.n+1 \
             FROM v STRAIGHT_JOIN t ON t.n=v.n JOIN u ON u.x=v.x WHERE 1"
        );
    }

    #[test]
    fn a_column_with_one_value_is_a_constant() {
        let list = list(&[(1, b"a"), (2, b"a")]);
        assert_eq!(
            written(&list, "v.x,v.n+1"),
            "WITH v(n) AS (VALUES (1),(2)) SELECT x'61',v.n+1 \
             FROM v STRAIGHT_JOIN t ON t.n=v.n JOIN u ON u.x=x'61' WHERE 1"
        );
    }

    #[test]
    fn one_row_needs_no_table() {
        assert_eq!(
            written(&list(&[(-5, b"a")]), "v.x,7-v.n,tv.n,v.,v"),
            "SELECT x'61',7-(-5),tv.n,v.,v FROM t JOIN u ON u.x=x'61' WHERE t.n=(-5)"
        );
    }

    #[test]
    fn equal_rows_stay_as_many() {
        assert_eq!(
            written(&list(&[(1, b"a"), (1, b"a")]), "v.x"),
            "WITH v(n) AS (VALUES (1),(1)) SELECT x'61' \
             FROM v STRAIGHT_JOIN t ON t.n=v.n JOIN u ON u.x=x'61' WHERE 1"
        );
    }
}
