//! What became of an operation: as its batch decided, or judged from its row as it was read later.
//!
//! A row that was skipped because another transaction held it is read later. It looks like one that was refused,
//! except that nothing in it speaks against the operation: that is how "busy" is told from "no".

use super::reply::RowState;

/// What an operation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The lock is ours; the tokens of the block end at `fence`. Microseconds until the deadline, and since 1970 on the server.
    Granted {
        fence: u64,
        remaining: i64,
        until: i64,
        wanted: i64,
    },
    /// The lock is somebody else's.
    Held(RowState),
    /// The row stayed locked: by a transaction of an application, as a rule.
    Busy,
    /// Microseconds for which another process says that it waits. `done`: it is the slot of a job, and recorded as done.
    Released {
        fence: u64,
        wanted: i64,
        done: bool,
    },
    /// The lock was not ours any more.
    NotHeld,
    /// The lease is ours for this long. `renewed`: its row was changed; it may be longer all the same if it was not.
    Leased {
        remaining: i64,
        until: i64,
        wanted: i64,
        renewed: bool,
    },
    /// A counter moved.
    Counted {
        previous: i64,
        value: i64,
    },
    /// A counter's value did not lie within the bounds.
    OutOfBounds {
        value: i64,
    },
    /// The counter was never set.
    NotSet,
    /// The operation's id stands for another operation.
    Mismatch,
    Done,
}

/// What to do about one operation of a batch that ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Judgment {
    Final(Outcome),
    /// There is no row: run it again, and create one.
    Missing,
    /// The row was skipped.
    Busy,
}

impl Judgment {
    /// Whether what was not carried out may be when it runs again, since nothing in the row speaks against it: the row was locked.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Busy | Self::Final(Outcome::Leased { .. }))
    }
}
