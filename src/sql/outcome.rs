//! What became of an operation: as its batch decided, or judged from its row as it was read later.
//!
//! A row that was skipped because another transaction held it is read later. It looks like one that was refused,
//! except that nothing in it speaks against the operation: that is how "busy" is told from "no".

use super::reply::RowState;

/// What an operation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The lock is ours.
    Granted {
        /// The last fencing token of the block that the grant reserved.
        fence: u64,
        /// Microseconds until the deadline, from when the server decided, or read the row later.
        remaining: i64,
        /// The deadline by the server's clock, in microseconds since 1970.
        until: i64,
        /// Microseconds, by the server's clock, for which another process is still known to wait for the lock; 0 if none is.
        wanted: i64,
    },
    /// The lock is somebody else's.
    Held(RowState),
    /// The row stayed locked: by a transaction of an application, as a rule.
    Busy,
    /// The lock was given back, or one level of it.
    Released {
        /// The row's fencing token now.
        fence: u64,
        /// Microseconds, by the server's clock, for which another process is still known to wait for the lock; 0 if none is.
        wanted: i64,
        /// It is the slot of a job, and the row says that the job is done.
        done: bool,
    },
    /// The lock was not ours any more.
    NotHeld,
    /// The lease is ours.
    Leased {
        /// Microseconds until the deadline, from when the server decided, or read the row later.
        remaining: i64,
        /// The deadline by the server's clock, in microseconds since 1970.
        until: i64,
        /// Microseconds, by the server's clock, for which another process is still known to wait for the lock; 0 if none is.
        wanted: i64,
        /// This renewal changed the row. Otherwise it passed over the row, and the deadline is what the row said already.
        renewed: bool,
    },
    /// A counter changed, from `previous` to `value`.
    Counted { previous: i64, value: i64 },
    /// A counter's value did not lie within the bounds: it is still `value`.
    OutOfBounds { value: i64 },
    /// The counter was never set.
    NotSet,
    /// The operation's id stands for another operation.
    Mismatch,
    /// It was carried out, and there is nothing to tell.
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
