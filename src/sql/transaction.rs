//! Statements for a transaction of the caller's.
//!
//! Each takes no stripe, inserts nothing, and locks exactly one row, by its full primary key: a slow
//! transaction delays that name only. Each changes what it locks, so that Galera and Group Replication
//! certify it. A value comes back through `LAST_INSERT_ID(…)` in the statement's own acknowledgement
//! (<https://dev.mysql.com/doc/refman/8.4/en/information-functions.html#function_last-insert-id>): a
//! query of its own would cost a round trip, and a plain read would fix the caller's snapshot.
//!
//! A single-table `UPDATE` assigns from left to right; with MariaDB's `SIMULTANEOUS_ASSIGNMENT`, from the
//! old row. Every assignment here reads only columns that none before it has assigned.

use super::operation::Kind;
use super::{FOREVER, NOW, NOW_MICROS, literal};
use crate::mutant::{self, Mutant};
use crate::token::Token;

/// The counter's value as a number that cannot overflow.
const VALUE: &str = "CAST(IF(deadline<=UTC_TIMESTAMP(6),0,count) AS DECIMAL(30,0))";

fn row(sql: &mut String, name: &str, kind: Kind) {
    sql.push_str(" WHERE lock_name=");
    literal::text(sql, name);
    sql.push_str(" AND kind=");
    literal::number(sql, kind as u8);
    sql.push_str(" AND slot=0");
}

fn ours(sql: &mut String, token: Token, fence: u64) {
    sql.push_str(" AND status=1 AND holder=");
    literal::bytes(sql, token.as_bytes());
    sql.push_str(" AND fence=");
    literal::number(sql, fence);
}

/// Holds the lock's row until the transaction ends, if the lease is still ours, and extends it.
pub(crate) fn verify(name: &str, token: Token, fence: u64, ttl: i64) -> String {
    let mut sql =
        String::from("UPDATE t_tag_lock SET deadline=GREATEST(deadline,TIMESTAMPADD(MICROSECOND,");
    literal::number(&mut sql, ttl);
    sql.push(',');
    sql.push_str(NOW);
    sql.push_str(")),modify_time=");
    sql.push_str(NOW);
    row(&mut sql, name, Kind::Lock);
    if !mutant::on(Mutant::VerifyUnchecked) {
        ours(&mut sql, token, fence);
    }
    sql
}

/// Releases the lock, or one level of it, when the transaction commits.
pub(crate) fn release(name: &str, token: Token, fence: u64, used: u64, hold: i64) -> String {
    let mut sql = String::from("UPDATE t_tag_lock SET status=IF(count>1,1,");
    literal::number(&mut sql, if hold > 0 { 2 } else { 0 });
    sql.push_str("),fence=IF(count>1,fence,");
    literal::number(&mut sql, used);
    sql.push_str("),deadline=IF(count>1,deadline,TIMESTAMPADD(MICROSECOND,");
    literal::number(&mut sql, hold);
    sql.push(',');
    sql.push_str(NOW);
    sql.push_str(")),count=IF(count>1,count-1,0),modify_time=");
    sql.push_str(NOW);
    row(&mut sql, name, Kind::Lock);
    ours(&mut sql, token, fence);
    sql
}

/// Takes a lock for the rest of the transaction, if no lease holds it; its fencing token is the
/// acknowledgement's last insert id. Waits for the row.
pub(crate) fn lock(name: &str) -> String {
    let mut sql = format!(
        "UPDATE t_tag_lock SET fence=LAST_INSERT_ID(GREATEST(fence,{NOW_MICROS})+1),modify_time={NOW}"
    );
    row(&mut sql, name, Kind::Lock);
    sql.push_str(" AND (status=0 OR deadline<=");
    sql.push_str(NOW);
    sql.push(')');
    sql
}

/// As [`lock`], but a row that another transaction holds is an error at once. Not `SKIP LOCKED`: under
/// REPEATABLE READ that locks the gap behind the row that it skips, and with it the inserts of others.
pub(crate) fn try_lock(name: &str) -> String {
    let mut sql = String::from("UPDATE (SELECT lock_name AS n,fence AS f FROM t_tag_lock");
    row(&mut sql, name, Kind::Lock);
    sql.push_str(" AND (status=0 OR deadline<=");
    sql.push_str(NOW);
    sql.push_str(
        ") LIMIT 1 FOR UPDATE NOWAIT) k STRAIGHT_JOIN t_tag_lock u FORCE INDEX(PRIMARY) \
         ON u.lock_name=k.n AND u.kind=1 AND u.slot=0 SET u.fence=LAST_INSERT_ID(GREATEST(k.f,",
    );
    sql.push_str(NOW_MICROS);
    sql.push_str(")+1),u.modify_time=");
    sql.push_str(NOW);
    sql
}

/// Adds to a counter whose value lies within `low..=high`; the new value is the acknowledgement's last
/// insert id, as the same 64 bits.
pub(crate) fn add(name: &str, delta: i64, (low, high): (i64, i64), window: i64) -> String {
    let mut sql = format!("UPDATE t_tag_lock SET previous={VALUE},holder=");
    literal::bytes(&mut sql, Token::random().as_bytes());
    sql.push_str(",status=1,count=CAST(LAST_INSERT_ID(CAST(CAST(");
    sql.push_str(VALUE);
    sql.push('+');
    sql.push('(');
    literal::number(&mut sql, delta);
    sql.push_str(") AS SIGNED) AS UNSIGNED)) AS SIGNED),modify_time=");
    sql.push_str(NOW);
    sql.push_str(",deadline=");
    if window > 0 {
        sql.push_str("IF(deadline<=UTC_TIMESTAMP(6) OR deadline=");
        sql.push_str(FOREVER);
        sql.push_str(",TIMESTAMPADD(MICROSECOND,");
        literal::number(&mut sql, window);
        sql.push(',');
        sql.push_str(NOW);
        sql.push_str("),deadline)");
    } else {
        sql.push_str("IF(deadline<=UTC_TIMESTAMP(6),");
        sql.push_str(FOREVER);
        sql.push_str(",deadline)");
    }
    row(&mut sql, name, Kind::Counter);
    sql.push_str(" AND ");
    sql.push_str(VALUE);
    sql.push_str(" BETWEEN ");
    literal::number(&mut sql, low);
    sql.push_str(" AND ");
    literal::number(&mut sql, high);
    sql
}

/// Reads a counter's value and holds its row until the transaction ends.
pub(crate) fn get(name: &str) -> String {
    let mut sql = String::from("SELECT IF(deadline<=UTC_TIMESTAMP(6),0,count) FROM t_tag_lock");
    row(&mut sql, name, Kind::Counter);
    sql.push_str(" FOR UPDATE");
    sql
}
