//! A list of literals as a query's table `v`, from which its rows are looked up one by one.
//!
//! What has one value in all rows of the list is a constant of the query, what a query does not name is left out,
//! and only the rest is a list; a list of one row is none at all. So the common batch (one ttl, one description, or a
//! single operation) is what one would write by hand, from one text for all: half the bytes to parse, and a
//! quarter less of the server's time for 500 acquires (MariaDB 10.11).

use super::literal;
use super::script::Script;

/// Writes the literals of one row, each into the column of its letter. What it does not write has no meaning there.
pub(super) struct Row<'l> {
    columns: &'static str,
    text: &'l mut String,
    /// By column, where its literal stands in the text.
    cells: &'l mut [(usize, usize)],
}

impl Row<'_> {
    fn cell(self, letter: char, write: impl FnOnce(&mut String)) -> Self {
        let start = self.text.len();
        write(self.text);
        let column = self.columns.find(letter);
        debug_assert!(column.is_some(), "no column {letter}");
        if let Some(cell) = column.and_then(|column| self.cells.get_mut(column)) {
            *cell = (start, self.text.len());
        }
        self
    }

    pub(super) fn bytes(self, letter: char, value: &[u8]) -> Self {
        self.cell(letter, |text| literal::bytes(text, value))
    }

    pub(super) fn text(self, letter: char, value: &str) -> Self {
        self.cell(letter, |text| literal::text(text, value))
    }

    pub(super) fn number(self, letter: char, value: impl Into<i128>) -> Self {
        self.cell(letter, |text| literal::number(text, value))
    }
}

/// The rows of literals.
pub(super) struct List {
    /// One letter a column.
    columns: &'static str,
    /// All literals, one behind the other.
    text: String,
    /// By row and column, where its literal stands in the text.
    cells: Vec<(usize, usize)>,
}

impl List {
    /// Each of `rows` as `write` writes it; at least one.
    pub(super) fn new<T>(
        columns: &'static str,
        rows: &[T],
        write: impl for<'l> Fn(Row<'l>, &T) -> Row<'l>,
    ) -> Self {
        let mut text = String::with_capacity(rows.len() * columns.len() * 12);
        let mut cells = vec![(0, 0); rows.len() * columns.len()];
        for (row, cells) in rows.iter().zip(cells.chunks_mut(columns.len())) {
            let text = &mut text;
            write(
                Row {
                    columns,
                    text,
                    cells,
                },
                row,
            );
        }
        Self {
            columns,
            text,
            cells,
        }
    }

    fn literal(&self, row: usize, column: usize) -> Option<&str> {
        let (start, end) = self.cells[row * self.columns.len() + column];
        (start < end).then(|| &self.text[start..end])
    }

    /// All rows.
    pub(super) fn all(&self) -> Part<'_> {
        self.part(0..self.cells.len() / self.columns.len())
    }

    /// Some of the rows; at least one.
    pub(super) fn part(&self, rows: impl IntoIterator<Item = usize>) -> Part<'_> {
        Part {
            list: self,
            rows: rows.into_iter().collect(),
        }
    }
}

/// Some rows of a list.
pub(super) struct Part<'l> {
    list: &'l List,
    rows: Vec<usize>,
}

/// A query of a list's rows. In all of it `v.x` is column `x` of the list.
#[derive(Clone, Copy, Default)]
pub(super) struct Query<'q> {
    pub(super) select: &'q str,
    /// Whose rows are looked up one by one, by `key`; there may be none.
    pub(super) table: &'q str,
    pub(super) key: &'q str,
    pub(super) joins: &'q str,
    /// Further conditions, each with its `AND`.
    pub(super) and: &'q str,
    /// What follows.
    pub(super) tail: &'q str,
}

/// Where `template` names columns of the list, and which.
fn references(template: &str) -> impl Iterator<Item = (usize, char)> {
    template.match_indices("v.").filter_map(|(at, _)| {
        let inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if template[..at].ends_with(inside) {
            return None;
        }
        template[at + 2..].chars().next().map(|letter| (at, letter))
    })
}

impl<'l> Part<'l> {
    /// There is no table `v`: all of it stands in the query.
    pub(super) fn is_single(&self) -> bool {
        self.rows.len() == 1
    }

    /// The one value that a column has, if it has one.
    fn constant(&self, column: usize) -> Option<&'l str> {
        let mut literals = self
            .rows
            .iter()
            .filter_map(|row| self.list.literal(*row, column));
        match literals.next() {
            None => Some("0"),
            Some(first) => literals.all(|literal| literal == first).then_some(first),
        }
    }

    /// The columns that the query names and that have more than one value.
    fn columns(&self, query: &Query<'_>) -> Vec<usize> {
        if self.is_single() {
            return Vec::new();
        }
        let mut named = vec![false; self.list.columns.len()];
        for template in [query.select, query.key, query.joins, query.and, query.tail] {
            for (_, letter) in references(template) {
                if let Some(column) = self.list.columns.find(letter) {
                    named[column] = true;
                }
            }
        }
        let mut columns: Vec<usize> = (0..named.len())
            .filter(|column| named[*column] && self.constant(*column).is_none())
            .collect();
        // Several rows are several, also when they are the same.
        if columns.is_empty() {
            columns.push(0);
        }
        columns
    }

    /// Appends the query.
    pub(super) fn query(&self, script: &mut Script<'_>, query: Query<'_>) {
        let columns = self.columns(&query);
        self.with(script, &columns);
        self.fill(script, query.select, &columns);
        let (from, on, condition) = if self.is_single() {
            (" FROM ", "", query.key)
        } else {
            (" FROM v STRAIGHT_JOIN ", query.key, "1")
        };
        if query.table.is_empty() {
            script.push(" FROM v");
        } else {
            script.push(from);
            script.push(query.table);
            script.push(if on.is_empty() { "" } else { " ON " });
            self.fill(script, on, &columns);
            self.fill(script, query.joins, &columns);
        }
        script.push(" WHERE ");
        self.fill(script, condition, &columns);
        self.fill(script, query.and, &columns);
        self.fill(script, query.tail, &columns);
    }

    /// Appends `WITH v(…) AS (VALUES …) `, if there are columns.
    fn with(&self, script: &mut Script<'_>, columns: &[usize]) {
        if columns.is_empty() {
            return;
        }
        script.varies();
        for (position, column) in columns.iter().enumerate() {
            script.push(if position == 0 { "WITH v(" } else { "," });
            script.push(&self.list.columns[*column..=*column]);
        }
        script.push(") AS (VALUES ");
        for (position, row) in self.rows.iter().enumerate() {
            script.push(if position > 0 { "," } else { "" });
            script.push(script.row());
            for (position, column) in columns.iter().enumerate() {
                script.push(if position > 0 { "," } else { "" });
                script.push(self.list.literal(*row, *column).unwrap_or("0"));
            }
            script.push(")");
        }
        script.push(") ");
    }

    /// Appends `template`, in which `v.x` stands for column `x` of the list. `columns` are those that are in the table.
    pub(super) fn fill(&self, script: &mut Script<'_>, template: &str, columns: &[usize]) {
        let mut done = 0;
        for (at, letter) in references(template) {
            let column = self.list.columns.find(letter);
            let Some(column) = column.filter(|column| !columns.contains(column)) else {
                continue;
            };
            script.push(&template[done..at]);
            script.argument(self.constant(column).unwrap_or("0"));
            done = at + 3;
        }
        script.push(&template[done..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::dialect::Dialect;

    fn list(rows: &[(i64, &[u8])]) -> List {
        List::new("nx", rows, |row, (number, bytes)| {
            row.number('n', *number).bytes('x', bytes)
        })
    }

    fn written(list: &List, template: &str) -> String {
        let mut script = Script::query_only(Dialect::MariaDb, 0);
        list.all().query(
            &mut script,
            Query {
                select: &format!("SELECT {template}"),
                table: "t",
                key: "t.n=v.n",
                joins: " JOIN u ON u.x=v.x",
                ..Query::default()
            },
        );
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

    #[test]
    fn what_a_row_has_not_and_what_nobody_names_is_left_out() {
        let list = List::new("nxy", &[1, 2, 3], |row, number| {
            let row = row.number('n', *number);
            match number {
                1 => row.bytes('y', b"b"),
                2 => row.bytes('x', b"a"),
                _ => row,
            }
        });
        let query = Query {
            select: "SELECT v.x,v.y",
            tail: " LIMIT v.n",
            ..Query::default()
        };
        let mut script = Script::query_only(Dialect::MariaDb, 0);
        list.part([0, 2])
            .query(&mut script, Query { tail: "", ..query });
        assert_eq!(
            script.into_query(),
            "WITH v(n) AS (VALUES (1),(3)) SELECT 0,x'62' FROM v WHERE 1"
        );
        let mut script = Script::query_only(Dialect::MySql, 0);
        list.all().query(&mut script, query);
        assert_eq!(
            script.into_query(),
            "WITH v(n) AS (VALUES ROW(1),ROW(2),ROW(3)) SELECT x'61',x'62' FROM v WHERE 1 LIMIT v.n"
        );
    }
}
