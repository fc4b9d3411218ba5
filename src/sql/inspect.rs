//! Queries that show locks to people. They take no lock.

use super::row::{Kind, RowKey};
use super::{NOW_MICROS, literal};

/// The columns of these queries, in the order in which [`crate::inspect`] reads them.
fn columns() -> String {
    // Of an owner's levels those that are dead do not count. What a plain lock's row has in these columns is of an owner before.
    format!(
        "SELECT lock_name,status,held_by,description,fence,\
         IF(fresh_count>0 AND stale_until<=UTC_TIMESTAMP(6),LEAST(fresh_count,count),count),\
         TIMESTAMPDIFF(MICROSECOND,'1970-01-01',deadline),\
         TIMESTAMPDIFF(MICROSECOND,'1970-01-01',modify_time),{NOW_MICROS}"
    )
}

fn select(kind: Kind) -> String {
    let (columns, kind) = (columns(), kind as u8);
    format!("{columns} FROM t_tag_lock WHERE kind={kind} AND slot=0")
}

/// Those of many rows of one kind that exist, each found by its primary key.
pub(crate) fn many<'n>(kind: Kind, names: impl IntoIterator<Item = &'n str>) -> String {
    let mut sql = columns();
    sql.push_str(" FROM (");
    for (number, name) in names.into_iter().enumerate() {
        sql.push_str(if number == 0 {
            "SELECT "
        } else {
            " UNION ALL SELECT "
        });
        literal::text(&mut sql, name);
        sql.push_str(" COLLATE utf8mb4_bin");
        if number == 0 {
            sql.push_str(" AS name");
        }
    }
    sql.push_str(
        ") v STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY) ON t.lock_name=v.name AND t.kind=",
    );
    literal::number(&mut sql, kind as u8);
    sql.push_str(" AND t.slot=0");
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

/// The name up to which a list looks in one query, behind `after`; no row if it can look at all that are left.
pub(crate) fn end_of_step(after: Option<&str>) -> String {
    let mut sql = String::from("SELECT lock_name FROM t_tag_lock");
    if let Some(after) = after {
        sql.push_str(" WHERE lock_name>");
        literal::text(&mut sql, after);
    }
    sql.push_str(" ORDER BY lock_name LIMIT 1 OFFSET ");
    literal::number(&mut sql, STEP);
    sql
}

/// The locks that are taken, in the order of their names, behind `after` and not behind `end`. (Nothing is before every name:
/// the collation pads with spaces, and a name may begin with a control character.)
pub(crate) fn taken(after: Option<&str>, end: Option<&str>, limit: u32) -> String {
    let mut sql = select(Kind::Lock);
    for (operator, name) in [(">", after), ("<=", end)] {
        if let Some(name) = name {
            sql.push_str(" AND lock_name");
            sql.push_str(operator);
            literal::text(&mut sql, name);
        }
    }
    sql.push_str(" AND status<>0 AND deadline>UTC_TIMESTAMP(6) ORDER BY lock_name LIMIT ");
    literal::number(&mut sql, limit);
    sql
}
