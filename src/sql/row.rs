//! A row's address, and what its columns say: predicates that packets, transactions of the application and purges share.
//!
//! In the texts `t` is the row.

use super::reply::DONE;
use super::{FOREVER, NOW};
use crate::name::Name;
use crate::stripe::Stripe;

/// What a row is. A part of the primary key: a lock and a counter of one name are two rows, and no
/// user's name is ever a stripe (0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Lock = 1,
    Counter = 2,
    /// The id of an operation that runs once, and its result.
    Once = 3,
    /// A slot of a job: a lease while somebody is at it, and a record when it is done.
    Job = 4,
    /// A permit of a semaphore: one of its slots.
    Permit = 5,
    /// A shared hold of a lock, by one process: each has a slot of its own.
    Shared = 6,
}

/// The address of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowKey {
    pub(crate) name: Name,
    pub(crate) kind: Kind,
    /// Zero but for shared holds.
    pub(crate) slot: u32,
}

impl RowKey {
    /// The order in which all packets have their rows, but for the counters that several share.
    pub(crate) fn order(&self) -> (Kind, &str, u32) {
        (self.kind, self.name.as_str(), self.slot)
    }

    pub(crate) fn lock(name: Name) -> Self {
        Self {
            name,
            kind: Kind::Lock,
            slot: 0,
        }
    }

    pub(crate) fn counter(name: Name) -> Self {
        Self {
            name,
            kind: Kind::Counter,
            slot: 0,
        }
    }

    pub(crate) fn once(id: Name) -> Self {
        Self {
            name: id,
            kind: Kind::Once,
            slot: 0,
        }
    }

    pub(crate) fn job(slot: Name) -> Self {
        Self {
            name: slot,
            kind: Kind::Job,
            slot: 0,
        }
    }

    pub(crate) fn permit(slot: Name) -> Self {
        Self {
            name: slot,
            kind: Kind::Permit,
            slot: 0,
        }
    }

    pub(crate) fn shared(name: Name, slot: u32) -> Self {
        Self {
            name,
            kind: Kind::Shared,
            slot,
        }
    }

    pub(crate) fn stripe(&self) -> Stripe {
        Stripe::of(&self.name)
    }
}

/// How a text names the rows of a list.
pub(super) struct Address {
    /// What their slot is.
    pub(super) slot: &'static str,
    /// Where row `t` is one of them.
    pub(super) key: &'static str,
    /// Selects their keys from the list.
    pub(super) select: &'static str,
}

/// Only shared holds have slots, and where there are none the text says so.
pub(super) fn address<'k>(mut rows: impl Iterator<Item = &'k RowKey>) -> &'static Address {
    if rows.any(|row| row.kind == Kind::Shared) {
        &Address {
            slot: "v.slot",
            key: "t.lock_name=v.name AND t.kind=v.kind AND t.slot=v.slot",
            select: "SELECT v.name,v.kind,v.slot",
        }
    } else {
        &Address {
            slot: "0",
            key: "t.lock_name=v.name AND t.kind=v.kind AND t.slot=0",
            select: "SELECT v.name,v.kind,0",
        }
    }
}

/// Nobody holds the lock.
pub(super) const FREE: &str = "t.status=0 OR t.deadline<={at}";
/// The holder's, and this grant.
pub(super) const HELD: &str = "t.holder=v.token AND t.status=1 AND t.fence=v.fence";
/// A counter's value, 0 where its window has ended; DECIMAL, so that no sum leaves its type (error 1690).
pub(super) const VALUE: &str = "CAST(IF(t.deadline<={at},0,t.count) AS DECIMAL(30,0))";
/// A counter was never set, or was deleted. Its status does not tell: an addition that runs once for an id writes that although it adds nothing.
pub(super) const UNSET: &str = "t.deadline='1970-01-01 00:00:00'";
/// A counter's window has ended, or it had none and is to have one: its next change begins one.
pub(super) const BEGINS: &str = "t.deadline<={at} OR (v.length>0 AND t.deadline={forever})";

/// Or the slot of a job is done. `row` stands before its columns.
pub(super) fn or_done(row: &str) -> String {
    format!(" OR {row}kind={} AND {row}status={DONE}", Kind::Job as u8)
}

/// A predicate as it is at the time of the statement.
pub(super) fn now(predicate: &str) -> String {
    predicate.replace("{at}", NOW).replace("{forever}", FOREVER)
}
