//! Every statement's text, and what the server's answers mean. Nothing here does I/O.
//!
//! No byte of a user's stands in SQL text as itself: strings are hexadecimal literals, numbers are
//! decimal literals ([`literal`]).

pub(crate) mod bell;
mod change;
mod column;
pub(crate) mod dialect;
#[cfg(test)]
mod golden;
pub(crate) mod home;
pub(crate) mod inspect;
mod list;
mod literal;
pub(crate) mod migration;
pub(crate) mod obstacle;
pub(crate) mod operation;
pub(crate) mod outcome;
pub(crate) mod packed;
pub(crate) mod packet;
pub(crate) mod prepared;
#[cfg(test)]
mod properties;
pub(crate) mod purge;
pub(crate) mod reply;
pub(crate) mod row;
pub(crate) mod script;
pub(crate) mod server_error;
pub(crate) mod session;
mod shut;
mod stripes;
mod texts;
pub(crate) mod transaction;
pub(crate) mod wish;

/// The table of locks and counters.
pub(crate) const TABLE: &str = "t_tag_lock";
/// The table of lanes.
pub(crate) const LANE_TABLE: &str = "t_tag_lock_lane";

/// Now, by the server: fixed at the start of each statement, fresh for each statement of a packet.
const NOW: &str = "UTC_TIMESTAMP(6)";
/// Microseconds since 1970 on the server, whatever the session's time zone is.
const NOW_MICROS: &str =
    "TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6))";
/// The deadline of what never ends: a counter without a window.
const FOREVER: &str = "'9999-12-31 00:00:00'";
/// The deadline with which a row is created.
const NEVER: &str = "'1970-01-01 00:00:00'";
