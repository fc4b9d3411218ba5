//! What lock a packet has waited for in vain: the server's error does not say.
//!
//! `SKIP LOCKED` waits for no row, so that such a query waits only for a table that somebody has locked as a whole. It
//! takes the same lock on the table as a packet does. If it fails its connection must be closed; until that arrives the server
//! allows its transaction a second.

use super::{LANE_TABLE, TABLE, literal};
use crate::stripe::Stripe;
use crate::token::Token;

/// Writes a query that fails if the table of lanes is locked, and has no row if that of the lane is.
pub(crate) fn find_lane(lane: Token) -> String {
    let mut sql = format!("SET wait_timeout=1;SELECT '1' FROM {LANE_TABLE} WHERE id=");
    literal::bytes(&mut sql, lane.as_bytes());
    sql.push_str(" FOR UPDATE SKIP LOCKED;COMMIT;SET wait_timeout=28800");
    sql
}

/// Writes a query that fails if the table of locks and counters is locked.
pub(crate) fn find_table() -> String {
    let mut sql = format!("SET wait_timeout=1;SELECT '1' FROM {TABLE} WHERE lock_name=");
    for stripe in Stripe::all().take(1) {
        literal::text(&mut sql, &stripe.to_string());
    }
    sql.push_str(" AND kind=0 AND slot=0 FOR UPDATE SKIP LOCKED;COMMIT;SET wait_timeout=28800");
    sql
}
