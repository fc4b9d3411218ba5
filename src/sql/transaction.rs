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

use super::dialect::Dialect;
use super::home::Home;
use super::reply::DONE;
use super::row::{self, BEGINS, FREE, HELD, Kind, RowKey, VALUE};
use super::wish::{self, GivesWay};
use super::{FOREVER, NOW, NOW_MICROS, literal};
use crate::mutant::{self, Mutant};
use crate::token::Token;

/// Whether the session is in a transaction that its next statement belongs to. MariaDB only.
/// (<https://mariadb.com/docs/server/reference/sql-structure/variables/in_transaction>)
const INSIDE: &str = "(@@in_transaction OR NOT @@autocommit)";

/// Where there is no [`INSIDE`], what stands before the statement: an error
/// ([`NO_SUCH_SAVEPOINT`](super::server_error::NO_SUCH_SAVEPOINT)) where the session is in no transaction, so that the
/// statement does not run.
///
/// Outside of a transaction a savepoint ends with its statement, and there is none to release. With `autocommit=0` the session
/// always is in one. The savepoint is gone before the statement begins: savepoints of the caller's stay as they are, but for
/// one of this name. (<https://dev.mysql.com/doc/refman/8.4/en/savepoint.html>)
///
/// `KILL QUERY` between two statements makes the server forget those behind it, and say nothing: the client would wait for
/// their results for ever. So the server closes a session that is idle then for two seconds. The last statement of the packet takes
/// that back, and, when one of them fails, [`RESTORE`].
const CHECK: &str = "SAVEPOINT tag_lock_in_transaction;RELEASE SAVEPOINT tag_lock_in_transaction;";

/// What a packet of several statements begins with. Two seconds are what a packet has left behind that was dropped: what it had kept
/// is kept on.
const BOUND: &str = "SET @tag_lock_idle=\
     CAST(IF(@@wait_timeout=2,COALESCE(@tag_lock_idle,2),@@wait_timeout) AS UNSIGNED),wait_timeout=2;";

/// Takes back that the time is bounded for which the session may be idle.
pub(crate) const RESTORE: &str = "SET wait_timeout=@tag_lock_idle";

/// What each statement begins with.
///
/// From 11.6.2, MariaDB has `innodb_snapshot_isolation` on, and takes a SERIALIZABLE transaction's snapshot with its
/// first statement, before that waits: the row that it waited for would always be too new. What SERIALIZABLE promises,
/// locks keep there, so that a statement about one row does without the comparison.
/// (<https://mariadb.com/docs/server/server-usage/storage-engines/innodb/innodb-system-variables>)
const LOCKING: &str = "/*M!110602 SET STATEMENT innodb_snapshot_isolation=\
     IF(@@tx_isolation='SERIALIZABLE',0,@@innodb_snapshot_isolation) FOR */";

/// A statement that changes one row, if the row admits it.
///
/// A statement that `KILL QUERY` or `max_statement_time` hits may be undone by MariaDB and yet be acknowledged, with no
/// affected row. So a refusal shows a number of its own: the condition, as it is evaluated on the row, leaves it as the
/// acknowledgement's last insert id.
pub(crate) struct Change {
    sql: String,
    dialect: Dialect,
    /// Whether the session is in the client's database.
    is_here: String,
    /// From 1, and of at most 62 bits: no sum with it leaves its type. The next number stands for: outside of a transaction;
    /// and the one behind that for: in another database.
    refusal: u64,
}

/// A packet of one statement, or of several; and the check that there is a transaction.
pub(crate) struct CallerPacket {
    pub(crate) sql: String,
    /// Which of the packet's results is the first statement's. Those of the others follow.
    pub(crate) result: usize,
    /// After an error [`RESTORE`] is to be sent.
    pub(crate) restores: bool,
}

impl CallerPacket {
    /// Of changes that are sent together.
    pub(crate) fn of(changes: &[Change]) -> Self {
        let dialect = changes.first().map(|change| change.dialect);
        let statements = changes.iter().map(|change| change.sql.as_str());
        Self::of_statements(dialect.unwrap_or(Dialect::MySql), statements)
    }

    fn of_statements<'s>(
        dialect: Dialect,
        statements: impl ExactSizeIterator<Item = &'s str>,
    ) -> Self {
        let (check, locking) = match dialect {
            Dialect::MariaDb { .. } => ("", LOCKING),
            Dialect::MySql => (CHECK, ""),
        };
        let restores = !check.is_empty() || statements.len() > 1;
        let mut sql = String::new();
        if restores {
            sql.push_str(BOUND);
            sql.push_str(check);
        }
        let result = sql.matches(';').count();
        for (number, statement) in statements.enumerate() {
            if number > 0 {
                sql.push(';');
            }
            sql.push_str(locking);
            sql.push_str(statement);
        }
        if restores {
            sql.push(';');
            sql.push_str(RESTORE);
        }
        Self {
            sql,
            result,
            restores,
        }
    }
}

/// What the acknowledgement of a [`Change`] proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The row was changed; the last insert id.
    Changed(u64),
    /// The row does not admit the change.
    Refused,
    /// There is no transaction.
    Outside,
    /// The session's current database is not the client's.
    Elsewhere,
    /// Nothing: the server undid the statement, or there is no such row.
    Unknown,
}

impl Change {
    /// The beginning, with the number by which a refusal will be known.
    fn new(home: &Home) -> Self {
        Self {
            sql: String::new(),
            dialect: home.dialect,
            is_here: home.is_here(),
            refusal: rand::random_range(1..1 << 62),
        }
    }

    /// Goes on with the condition under which the row admits the change. A row that is not there has no `fence`: it
    /// refuses nothing.
    fn only_if(&mut self, condition: &str) {
        let (here, refusal, elsewhere) = (&self.is_here, self.refusal, self.refusal + 2);
        let (inside, why) = match self.dialect {
            Dialect::MySql => ("1", refusal.to_string()),
            Dialect::MariaDb { .. } => (INSIDE, format!("IF({INSIDE},{refusal},{})", refusal + 1)),
        };
        let expression = format!(
            "IF({here} AND {inside} AND ({condition}),0,0*t.fence+IF({here},{why},{elsewhere}))"
        );
        self.sql.push_str(" AND LAST_INSERT_ID(");
        self.sql.push_str(&expression);
        self.sql.push_str(")=0");
    }

    /// The length of its statement.
    pub(crate) fn bytes(&self) -> usize {
        LOCKING.len() + self.sql.len() + 1
    }

    /// From the numbers of the acknowledgement.
    pub(crate) fn verdict(&self, affected: u64, last_insert_id: u64) -> Verdict {
        match affected {
            1 => Verdict::Changed(last_insert_id),
            _ if last_insert_id == self.refusal => Verdict::Refused,
            _ if last_insert_id == self.refusal + 1 => Verdict::Outside,
            _ if last_insert_id == self.refusal + 2 => Verdict::Elsewhere,
            _ => Verdict::Unknown,
        }
    }
}

fn address_of(sql: &mut String, key: &RowKey) {
    address(sql, key.name.as_str(), key.kind);
    if key.slot != 0 {
        sql.truncate(sql.len() - 1);
        literal::number(sql, key.slot);
    }
}

fn address(sql: &mut String, name: &str, kind: Kind) {
    sql.push_str(" WHERE t.lock_name=");
    literal::text(sql, name);
    sql.push_str(" AND t.kind=");
    literal::number(sql, kind as u8);
    sql.push_str(" AND t.slot=0");
}

fn ours(token: Token, fence: u64) -> String {
    let (mut holder, mut number) = (String::new(), String::new());
    literal::bytes(&mut holder, token.as_bytes());
    literal::number(&mut number, fence);
    HELD.replace("v.token", &holder).replace("v.fence", &number)
}

/// Shows a row that exists and was changed within `age` microseconds, without a lock.
pub(crate) fn young(key: &RowKey, age: i64) -> String {
    let mut sql = String::from("SELECT 1 FROM t_tag_lock t");
    address(&mut sql, key.name.as_str(), key.kind);
    sql.push_str(" AND TIMESTAMPDIFF(MICROSECOND,t.modify_time,");
    sql.push_str(NOW);
    sql.push_str(")<");
    literal::number(&mut sql, age);
    sql
}

/// Holds the lock's row until the transaction ends, if the lease is still ours, and extends it.
pub(crate) fn verify(home: &Home, key: &RowKey, (token, fence): (Token, u64), ttl: i64) -> Change {
    let mut change = Change::new(home);
    let sql = &mut change.sql;
    sql.push_str(
        "UPDATE t_tag_lock t SET t.deadline=GREATEST(t.deadline,TIMESTAMPADD(MICROSECOND,",
    );
    literal::number(sql, ttl);
    sql.push(',');
    sql.push_str(NOW);
    sql.push_str(")),t.modify_time=");
    sql.push_str(NOW);
    address_of(sql, key);
    if !mutant::on(Mutant::VerifyUnchecked) {
        change.only_if(&ours(token, fence));
    }
    change
}

/// Releases the lock, or one level of it, when the transaction commits.
pub(crate) fn release(
    home: &Home,
    key: &RowKey,
    (token, fence): (Token, u64),
    used: u64,
    hold: i64,
) -> Change {
    let mut change = Change::new(home);
    let sql = &mut change.sql;
    sql.push_str("UPDATE t_tag_lock t SET t.status=IF(t.count>1,1,");
    literal::number(sql, if hold > 0 { 2 } else { 0 });
    sql.push_str("),t.fence=IF(t.count>1,t.fence,");
    literal::number(sql, used);
    sql.push_str("),t.deadline=IF(t.count>1,t.deadline,TIMESTAMPADD(MICROSECOND,");
    literal::number(sql, hold);
    sql.push(',');
    sql.push_str(NOW);
    sql.push_str(")),t.count=IF(t.count>1,t.count-1,0),t.modify_time=");
    sql.push_str(NOW);
    address_of(sql, key);
    change.only_if(&ours(token, fence));
    change
}

/// Records that the slot of a job is done, and releases it, when the transaction commits.
pub(crate) fn finish(
    home: &Home,
    slot: &RowKey,
    (token, fence): (Token, u64),
    used: u64,
) -> Change {
    let mut change = Change::new(home);
    let sql = &mut change.sql;
    sql.push_str("UPDATE t_tag_lock t SET t.status=");
    literal::number(sql, DONE);
    sql.push_str(",t.fence=");
    literal::number(sql, used);
    sql.push_str(",t.deadline=");
    sql.push_str(FOREVER);
    sql.push_str(",t.count=0,t.modify_time=");
    sql.push_str(NOW);
    address(sql, slot.name.as_str(), slot.kind);
    change.only_if(&ours(token, fence));
    change
}

/// Takes a lock for the rest of the transaction, if no lease holds it; its fencing token is the
/// acknowledgement's last insert id. Waits for the row. `has_wished`: the row says that it is waited for, which this answers. `seen`: the row's
/// fence when it was found free.
pub(crate) fn lock(home: &Home, name: &str, has_wished: bool, seen: Option<u64>) -> Change {
    let mut change = Change::new(home);
    let sql = &mut change.sql;
    // The server sets one column after the other: the fence comes after what is told by it.
    sql.push_str("UPDATE t_tag_lock t SET t.wanted_until=");
    sql.push_str(&answered_wish(GivesWay::of(has_wished), seen));
    sql.push_str(",t.fence=LAST_INSERT_ID(GREATEST(t.fence,");
    sql.push_str(NOW_MICROS);
    sql.push_str(")+1),t.deadline=");
    sql.push_str(&free_until());
    sql.push_str(",t.modify_time=");
    sql.push_str(NOW);
    address(sql, name, Kind::Lock);
    change.only_if(&row::now(FREE));
    change
}

/// As [`lock`], but a row that another transaction holds is an error at once. Not `SKIP LOCKED`: under
/// REPEATABLE READ that locks the gap behind the row that it skips, and with it the inserts of others.
pub(crate) fn try_lock(home: &Home, name: &str, seen: Option<u64>) -> Change {
    let mut change = Change::new(home);
    let sql = &mut change.sql;
    sql.push_str("UPDATE (SELECT t.lock_name AS n,t.fence AS f,");
    sql.push_str(&answered_wish(GivesWay::TO_ALL, seen));
    sql.push_str(" AS w,");
    sql.push_str(&free_until());
    sql.push_str(" AS d FROM t_tag_lock t");
    address(sql, name, Kind::Lock);
    change.only_if(&row::now(FREE));
    let sql = &mut change.sql;
    sql.push_str(
        " LIMIT 1 FOR UPDATE NOWAIT) k STRAIGHT_JOIN t_tag_lock u FORCE INDEX(PRIMARY) \
         ON u.lock_name=k.n AND u.kind=1 AND u.slot=0 SET u.fence=LAST_INSERT_ID(GREATEST(k.f,",
    );
    sql.push_str(NOW_MICROS);
    sql.push_str(")+1),u.wanted_until=k.w,u.deadline=k.d,u.modify_time=");
    sql.push_str(NOW);
    change
}

/// The wish in the row, once a transaction has taken the lock that gives way to such wishes. One to which it does not give way is its own, and is
/// answered, as by a lease's grant. One for which others have left the lock alone in vain is of somebody who does not come; but if the
/// fence is no longer the one that was seen, another transaction had the lock meanwhile, and he could not come. (One that was rolled back has left no
/// trace: he says again that he waits.) Any other stays.
fn answered_wish(gives_way: GivesWay, seen: Option<u64>) -> String {
    let mut answered = row::now(wish::unheeded());
    answered = answered.replace("v.gives_way", &gives_way.seconds().to_string());
    if let Some(fence) = seen {
        let in_vain = row::now(&wish::in_vain());
        answered = format!("{answered} OR (t.fence={fence} AND {in_vain})");
    }
    format!("IF({answered},{NOW},t.wanted_until)")
}

/// Until when a lock has been free that a transaction takes. For a moment from then on others leave it to who waits, so that transactions
/// which come one after the other keep nobody out. The deadline of a lease that
/// nobody has released stays: to a clock that is behind it would be held again.
fn free_until() -> String {
    format!("IF(t.status=0,GREATEST(t.deadline,{NOW}),t.deadline)")
}

/// Adds to a counter whose value lies within `low..=high`; the new value is the acknowledgement's last
/// insert id, as the same 64 bits.
pub(crate) fn add(
    home: &Home,
    name: &str,
    delta: i64,
    (low, high): (i64, i64),
    window: i64,
) -> Change {
    let value = row::now(VALUE);
    let mut change = Change::new(home);
    let sql = &mut change.sql;
    sql.push_str("UPDATE t_tag_lock t SET t.previous=");
    sql.push_str(&value);
    sql.push_str(",t.holder=");
    literal::bytes(sql, Token::random().as_bytes());
    sql.push_str(",t.status=1,t.count=CAST(LAST_INSERT_ID(CAST(CAST(");
    sql.push_str(&value);
    sql.push('+');
    sql.push('(');
    literal::number(sql, delta);
    sql.push_str(") AS SIGNED) AS UNSIGNED)) AS SIGNED),t.modify_time=");
    sql.push_str(NOW);
    sql.push_str(",t.deadline=IF(");
    let mut length = String::new();
    literal::number(&mut length, window);
    sql.push_str(&row::now(BEGINS).replace("v.length", &length));
    if window > 0 {
        sql.push_str(",TIMESTAMPADD(MICROSECOND,");
        sql.push_str(&length);
        sql.push(',');
        sql.push_str(NOW);
        sql.push_str("),t.deadline)");
    } else {
        sql.push(',');
        sql.push_str(FOREVER);
        sql.push_str(",t.deadline)");
    }
    address(sql, name, Kind::Counter);
    change.only_if(&format!("{value} BETWEEN {low} AND {high}"));
    change
}

/// Shows whether the session is in the client's database. It has no row of a table: it fixes no snapshot.
pub(crate) fn is_here(home: &Home) -> String {
    format!("SELECT {}", home.is_here())
}

/// Reads a counter's value and holds its row until the transaction ends; and whether the session is in one, and in the client's
/// database.
pub(crate) fn get(home: &Home, name: &str) -> CallerPacket {
    let inside = match home.dialect {
        Dialect::MySql => "1",
        Dialect::MariaDb { .. } => INSIDE,
    };
    let here = home.is_here();
    let mut sql = format!(
        "SELECT IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count),{inside},{here} FROM t_tag_lock t"
    );
    address(&mut sql, name, Kind::Counter);
    sql.push_str(" FOR UPDATE");
    CallerPacket::of_statements(home.dialect, std::iter::once(sql.as_str()))
}
