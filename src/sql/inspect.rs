//! Queries that show locks to people. They take no lock.

use super::row::{self, Kind, RowKey, UNSET};
use super::{FOREVER, NOW_MICROS, literal};
use crate::name::MAX_CHARS;

/// The columns of these queries, in the order in which [`crate::inspect`] reads them.
fn columns() -> String {
    // Of an owner's levels those that are dead do not count. What a plain lock's row has in these columns is of an owner before.
    format!(
        "SELECT lock_name,status,held_by,description,fence,\
         IF(fresh_count>0 AND stale_until<=UTC_TIMESTAMP(6),LEAST(fresh_count,count),count),\
         TIMESTAMPDIFF(MICROSECOND,'1970-01-01',deadline),\
         TIMESTAMPDIFF(MICROSECOND,'1970-01-01',modify_time),{NOW_MICROS},\
         TIMESTAMPDIFF(MICROSECOND,'1970-01-01',wanted_until)"
    )
}

fn select(kind: Kind) -> String {
    let (columns, kind) = (columns(), kind as u8);
    format!("{columns} FROM t_tag_lock WHERE kind={kind} AND slot=0")
}

/// How many names one query asks about at most, and how long their list becomes: servers may take packets of no more than 64 KB.
const MOST: usize = 256;
const LENGTH: usize = 32 * 1024;

/// How many of the first names one query asks about.
pub(crate) fn fitting<'n>(names: impl IntoIterator<Item = &'n str>) -> usize {
    let mut length = 0;
    let fits = |name: &&str| {
        // Two digits a byte, and the words around them.
        length += 2 * name.len() + 64;
        length <= LENGTH
    };
    let fitting = names.into_iter().take(MOST).take_while(fits).count();
    // A single name always does.
    fitting.max(1)
}

/// A list of names, each as a row.
fn names<'n>(sql: &mut String, names: impl IntoIterator<Item = &'n str>) {
    sql.push_str(" FROM (");
    for (number, name) in names.into_iter().enumerate() {
        sql.push_str(if number == 0 {
            "SELECT "
        } else {
            " UNION ALL SELECT "
        });
        literal::text(sql, name);
        sql.push_str(" COLLATE utf8mb4_bin");
        if number == 0 {
            sql.push_str(" AS name");
        }
    }
    sql.push_str(
        ") v STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY) ON t.lock_name=v.name AND t.kind=",
    );
}

/// Those of many rows of one kind that exist, each found by its primary key.
pub(crate) fn many<'n>(kind: Kind, of: impl IntoIterator<Item = &'n str>) -> String {
    let mut sql = columns();
    names(&mut sql, of);
    literal::number(&mut sql, kind as u8);
    sql.push_str(" AND t.slot=0");
    sql
}

/// The shared holds of locks that run.
pub(crate) fn shared<'n>(of: impl IntoIterator<Item = &'n str>) -> String {
    let mut sql = columns();
    names(&mut sql, of);
    literal::number(&mut sql, Kind::Shared as u8);
    sql.push_str(" AND t.status<>0 AND t.deadline>UTC_TIMESTAMP(6)");
    sql
}

/// The locks of these of which a shared hold runs, and for how many microseconds still.
pub(crate) fn shared_holds<'n>(of: impl IntoIterator<Item = &'n str>) -> String {
    let mut sql =
        "SELECT t.lock_name,MAX(TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.deadline))".to_owned();
    names(&mut sql, of);
    literal::number(&mut sql, Kind::Shared as u8);
    sql.push_str(" AND t.status<>0 AND t.deadline>UTC_TIMESTAMP(6) GROUP BY t.lock_name");
    sql
}

/// One lock, or one slot of a job, if it has a row.
pub(crate) fn one(key: &RowKey) -> String {
    let mut sql = select(key.kind);
    sql.push_str(" AND lock_name=");
    literal::text(&mut sql, key.name.as_str());
    sql
}

/// The slots of a job that are taken or done, in the order of their names: those behind `after` and before `end`.
pub(crate) fn slots(after: &str, end: &str, limit: u32) -> String {
    let mut sql = select(Kind::Job);
    sql.push_str(" AND lock_name>");
    literal::text(&mut sql, after);
    sql.push_str(" AND lock_name<");
    literal::text(&mut sql, end);
    sql.push_str(" AND status<>0 AND deadline>UTC_TIMESTAMP(6) ORDER BY lock_name LIMIT ");
    literal::number(&mut sql, limit);
    sql
}

/// How many rows a query for a list looks at.
const STEP: u32 = 10_000;

/// The name up to which a list looks in one query, among those that begin so, behind `after`; no row if it can look at all that are left.
pub(crate) fn end_of_step(prefix: &str, after: Option<&str>) -> String {
    let mut sql = String::from("SELECT lock_name FROM t_tag_lock");
    let span = Span::of(prefix);
    let mut word = " WHERE";
    for (operator, name) in span.bounds().into_iter().chain([(">", after)]) {
        if let Some(name) = name {
            sql.push_str(word);
            sql.push_str(" lock_name");
            sql.push_str(operator);
            literal::text(&mut sql, name);
            word = " AND";
        }
    }
    sql.push_str(" ORDER BY lock_name LIMIT 1 OFFSET ");
    literal::number(&mut sql, STEP);
    sql
}

/// The locks that are taken and whose names begin so, in the order of their names, behind `after` and not behind `end`. (Nothing is before
/// every name: the collation pads with spaces, and a name may begin with a control character.)
pub(crate) fn taken(prefix: &str, after: Option<&str>, end: Option<&str>, limit: u32) -> String {
    let mut sql = select(Kind::Lock);
    sql.push_str(" AND status<>0 AND deadline>UTC_TIMESTAMP(6)");
    page(&mut sql, prefix, after, end, limit);
    sql
}

/// Goes on with the condition that names begin so, and lie behind `after` and not behind `end`; and with their order.
fn page(sql: &mut String, prefix: &str, after: Option<&str>, end: Option<&str>, limit: u32) {
    let span = Span::of(prefix);
    let bounds = span.bounds().into_iter();
    for (operator, name) in bounds.chain([(">", after), ("<=", end)]) {
        if let Some(name) = name {
            sql.push_str(" AND lock_name");
            sql.push_str(operator);
            literal::text(sql, name);
        }
    }
    if !prefix.is_empty() {
        // Where the prefix ends in spaces, a name without them is equal to it.
        sql.push_str(" AND HEX(lock_name) LIKE '");
        for byte in prefix.bytes() {
            sql.push_str(&format!("{byte:02X}"));
        }
        sql.push_str("%'");
    }
    sql.push_str(" ORDER BY lock_name LIMIT ");
    literal::number(sql, limit);
}

/// Where the names lie that begin with a prefix. The collation pads with spaces, so names that go on with a control character come before the
/// prefix itself.
struct Span {
    first: Option<String>,
    last: Option<String>,
}

impl Span {
    fn of(prefix: &str) -> Self {
        let left = MAX_CHARS.saturating_sub(prefix.chars().count());
        let filled = |with: char| {
            let filler = std::iter::repeat_n(with, left);
            prefix.chars().chain(filler).collect::<String>()
        };
        let bound = |with| (!prefix.is_empty()).then(|| filled(with));
        Self {
            first: bound(char::MIN),
            last: bound(char::MAX),
        }
    }

    fn bounds(&self) -> [(&'static str, Option<&str>); 2] {
        [(">=", self.first.as_deref()), ("<=", self.last.as_deref())]
    }
}

/// The counters that were set and whose names begin so, in the order of their names, behind `after` and not behind `end`.
pub(crate) fn counters(prefix: &str, after: Option<&str>, end: Option<&str>, limit: u32) -> String {
    let micros = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01'";
    let (unset, value) = (row::now(UNSET), row::now("IF(t.deadline<={at},0,t.count)"));
    let mut sql = format!(
        "SELECT t.lock_name,{value},IF(t.deadline={FOREVER},NULL,{micros},t.deadline)),{micros},t.modify_time) \
         FROM t_tag_lock t WHERE t.kind={} AND t.slot=0 AND NOT({unset})",
        Kind::Counter as u8
    );
    page(&mut sql, prefix, after, end, limit);
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_asks_about_as_many_names_as_servers_take() {
        let of = |length: usize, count: usize| vec!["n".repeat(length); count];
        let fits = |names: &[String]| fitting(names.iter().map(String::as_str));
        assert_eq!(fits(&of(8, 1_000)), MOST);
        assert_eq!(fits(&of(8, 3)), 3);
        assert_eq!(fits(&of(1_000_000, 3)), 1);
        let long = of(4 * MAX_CHARS, 1_000);
        let some = &long[..fits(&long)];
        let sql = many(Kind::Lock, some.iter().map(String::as_str));
        assert!(some.len() > 8 && sql.len() < 48 * 1024, "{}", sql.len());
    }

    #[test]
    fn no_byte_of_a_prefix_stands_in_the_text() {
        for list in [counters, taken] {
            let sql = list("'%_\\ ", Some("';"), None, 7);
            assert!(
                sql.contains(" LIKE '27255F5C20%' ORDER BY lock_name LIMIT 7"),
                "{sql}"
            );
            assert!(!sql.contains(['\\', ';']), "{sql}");
        }
    }

    #[test]
    fn names_of_a_prefix_lie_between_two_names() {
        let span = Span::of("ab");
        let (first, last) = (span.first.expect("a bound"), span.last.expect("a bound"));
        assert_eq!(
            (first.chars().count(), last.chars().count()),
            (MAX_CHARS, MAX_CHARS)
        );
        assert!(first.starts_with("ab\0") && last.starts_with("ab\u{10ffff}"));
        assert_eq!(Span::of("").bounds(), [(">=", None), ("<=", None)]);
    }
}
