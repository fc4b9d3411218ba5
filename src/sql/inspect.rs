//! Queries that show locks to people. They take no lock.

use super::row::Kind;
use super::{NOW_MICROS, literal};

/// The columns of both queries, in the order in which [`crate::inspect`] reads them.
fn select() -> String {
    format!(
        "SELECT lock_name,status,held_by,description,fence,count,\
         TIMESTAMPDIFF(MICROSECOND,'1970-01-01',deadline),\
         TIMESTAMPDIFF(MICROSECOND,'1970-01-01',modify_time),{NOW_MICROS} \
         FROM t_tag_lock WHERE kind={} AND slot=0",
        Kind::Lock as u8
    )
}

/// One lock, if it has a row.
pub(crate) fn one(name: &str) -> String {
    let mut sql = select();
    sql.push_str(" AND lock_name=");
    literal::text(&mut sql, name);
    sql
}

/// The locks that are taken, in the order of their names, behind `after`. (Nothing is before every name:
/// the collation pads with spaces, and a name may begin with a control character.)
pub(crate) fn taken(after: Option<&str>, limit: u32) -> String {
    let mut sql = select();
    if let Some(after) = after {
        sql.push_str(" AND lock_name>");
        literal::text(&mut sql, after);
    }
    sql.push_str(" AND status<>0 AND deadline>UTC_TIMESTAMP(6) ORDER BY lock_name LIMIT ");
    literal::number(&mut sql, limit);
    sql
}
