//! What the workers saw: one record for each operation, written as one line of a worker's log when it ended, and one
//! line before each operation that may take effect although its worker is killed before it ends.
//!
//! All instants are nanoseconds of `CLOCK_MONOTONIC`, which all processes of one machine share; all durations are
//! nanoseconds.

mod line;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use line::{BadLine, Line, Names};

/// All that one worker process logged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    /// Its number; a process that replaces a killed one has a number of its own.
    pub worker: u32,
    /// What ended, in the order of its ends.
    pub records: Vec<Record>,
    /// What was begun and has no record: the worker was killed, and it may or may not have happened.
    pub open: Vec<Invocation>,
    /// Whether the worker ended by itself; otherwise it was killed, and its last records may be missing.
    pub complete: bool,
    /// Whether its tasks have a client each: to each other they are strangers, whom no queue of one client serves in order.
    pub apart: bool,
}

/// What stood in the tables after the load, when all was quiet and no worker lived any more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinalState {
    /// The value of each counter that was used.
    pub counters: Vec<(Arc<str>, i64)>,
    /// The locks whose lease still ran when every lease of a killed worker must have ended.
    pub held: Vec<Arc<str>>,
    /// For each lock, the highest token that was given out according to its row.
    pub fences: Vec<(Arc<str>, u64)>,
    /// The two balances of each pair of accounts. Both begin at 0.
    pub accounts: Vec<(Arc<str>, [i64; 2])>,
    /// All transfers that were committed; those of one name are in the order of their commits.
    pub transfers: Vec<Committed>,
    /// The slots of jobs that were recorded as done in a transaction of the work's own: the rows that these wrote.
    #[serde(default)]
    pub booked: Vec<Booked>,
    /// What the resource that checks tokens accepted; the tokens of one name are in the order of acceptance.
    pub accepted: Vec<(Arc<str>, u64)>,
    /// The deadlocks that the server counted during the run.
    pub deadlocks: u64,
}

/// A time in which somebody was not served for a reason that the run knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unavailable {
    /// The worker that was stopped or cut off; `None`: all of them, because of a server.
    pub worker: Option<u32>,
    /// The worker itself stood still: it could not even end what it had begun.
    #[serde(default)]
    pub stopped: bool,
    /// One of its connections fell silent: what was sent over it had no answer, or one that was held back for a while. Others went on, so that only
    /// who is passed over meanwhile is not judged.
    #[serde(default)]
    pub silent: bool,
    /// When it began.
    pub from: u64,
    /// When it was mended.
    pub to: u64,
}

/// A transfer that was committed: the row that its transaction wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// The lock's name.
    pub name: Arc<str>,
    /// The worker that did it.
    pub worker: u32,
    /// Its task.
    pub task: u32,
    /// The `invoked` of its record.
    pub invoked: u64,
    /// The fencing token.
    pub token: u64,
    /// What was moved from the first account to the second.
    pub amount: i64,
}

/// A slot of a job that the work recorded as done: the row that its transaction wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Booked {
    /// The slot's name.
    pub name: Arc<str>,
    /// The worker that did it.
    pub worker: u32,
    /// Its task.
    pub task: u32,
    /// The `invoked` of its record.
    pub invoked: u64,
}

/// One operation that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Number of the worker process.
    pub worker: u32,
    /// Number of the task in it. A task does one thing after another.
    pub task: u32,
    /// The lock's or counter's name.
    pub name: Arc<str>,
    /// The instant before the call.
    pub invoked: u64,
    /// The instant after it.
    pub returned: u64,
    /// What happened.
    pub event: Event,
}

/// What an operation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A lock was granted: from `returned` on, the task may act.
    Granted {
        /// The fencing token.
        token: u64,
        /// The lease's length.
        ttl: u64,
    },
    /// The end of a hold, written before the release is called, or when the loss was seen.
    HeldUntil {
        /// The hold's fencing token.
        token: u64,
        /// The last instant at which `is_held()` said yes, after the work was done; 0 if it never did: a grant alone
        /// promises nothing about the instants after it, when the worker may have been stopped.
        trusted_until: u64,
    },
    /// What the release said.
    Released {
        /// The hold's fencing token.
        token: u64,
        /// `Lost`: it was no longer ours.
        outcome: Outcome,
    },
    /// An acquire that was not granted: timed out, cancelled or failed.
    NotGranted {
        /// Why.
        outcome: Outcome,
    },
    /// The critical section's work on the unprotected shared value. Whoever wrote while not trusted (see `HeldUntil`)
    /// may have written at any instant of the record.
    Section {
        /// The hold's fencing token.
        token: u64,
        /// What it found.
        read: u64,
        /// What it left: never 0, and no other section's.
        wrote: u64,
    },
    /// A write with a token to the resource that checks tokens.
    FencedWrite {
        /// The hold's fencing token.
        token: u64,
        /// What the resource said.
        accepted: bool,
    },
    /// An addition to a counter.
    Added {
        /// What was to be added.
        delta: i64,
        /// The least value that it may leave.
        low: Option<i64>,
        /// The greatest.
        high: Option<i64>,
        /// The value after it when it was acknowledged; of `Refused`, the value seen.
        value: Option<i64>,
        /// Whether it was added.
        outcome: Outcome,
    },
    /// A business transaction under `verify_in`, between the two accounts of the lock's name.
    Transfer {
        /// The hold's fencing token.
        token: u64,
        /// What was moved.
        amount: i64,
        /// The instant before its COMMIT was sent; 0 if it was not.
        committing: u64,
        /// Whether the transaction was committed.
        outcome: Outcome,
    },
    /// A permit of the semaphore was granted: from `returned` on, the task may act. What follows is told of its slot, `semaphore#slot`.
    Permit {
        /// How many permits the semaphore has.
        permits: u32,
        /// For how many of them the task had asked at once. Of each there is a record, with the same worker, task and `invoked`.
        count: u32,
        /// Which one it is.
        slot: u32,
        /// The fencing token of the slot.
        token: u64,
        /// The lease's length.
        ttl: u64,
    },
    /// One of several locks that were asked for at once. The others have the same worker, task and `invoked`.
    Together {
        /// The fencing token; 0: it was not granted.
        token: u64,
        /// The lease's length.
        ttl: u64,
        /// Why it was not granted; `Done` if it was.
        outcome: Outcome,
    },
    /// Whoever was granted the election's lock just now leads with this value.
    Leads {
        /// The fencing token.
        token: u64,
        /// What it campaigned with: never 0, and no other candidate's.
        value: u64,
        /// It campaigned with it this once.
        once: bool,
    },
    /// An observer was told who leads.
    Seen {
        /// The leader's fencing token.
        token: u64,
        /// The leader's value.
        value: u64,
    },
    /// A leader's work, which was to be dropped when its lease was lost, went on.
    WorkedOn {
        /// The fencing token.
        token: u64,
        /// How often it awaited something when its lease had ended, and went on.
        steps: u64,
    },
    /// The call took notably longer than it had said it would. Its own record has the same `invoked`.
    Overran {
        /// How long it was to take at the most.
        limit: u64,
    },
    /// A lock was granted to be held shared: from `returned` on, the task may read.
    Shared {
        /// The fencing token of the lease, which other tasks of the worker may have too.
        token: u64,
        /// The lease's length.
        ttl: u64,
        /// The token of the task's own exclusive hold that was made this one; 0: of none.
        from: u64,
    },
    /// A shared hold that was not granted.
    NotShared {
        /// Why.
        outcome: Outcome,
    },
    /// A reading of the unprotected value, twice, with some time between.
    Looked {
        /// The shared hold's fencing token.
        token: u64,
        /// What it found at first.
        found: u64,
        /// And at last.
        again: u64,
    },
    /// A transaction under `verify_in` of a shared hold, which read how many transfers were committed, twice.
    Vouched {
        /// The shared hold's fencing token.
        token: u64,
        /// What it found at first.
        found: u64,
        /// And at last.
        again: u64,
        /// The instant before its COMMIT was sent; 0 if it was not.
        committing: u64,
        /// Whether it was committed.
        outcome: Outcome,
    },
    /// An attempt at a slot of a job.
    Attempt {
        /// The fencing token; 0: the work did not begin.
        token: u64,
        /// The work was to record its slot as done in a transaction of its own, with a row in the ledger.
        booked: bool,
        /// It was said that the slot is done, by this attempt or before it.
        done: bool,
        /// Whether the slot was done by it.
        outcome: Outcome,
    },
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As it was meant to.
    Done,
    /// A clear no that changed nothing: out of bounds, held by another, timed out.
    Refused,
    /// The lease was lost.
    Lost,
    /// An error that promises that nothing was changed.
    Failed,
    /// It may or may not have happened (`OutcomeUnknown`, a dropped future, a COMMIT without an answer).
    Unknown,
}

/// An operation that is about to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// Number of the worker process.
    pub worker: u32,
    /// Number of the task in it.
    pub task: u32,
    /// The lock's or counter's name.
    pub name: Arc<str>,
    /// The instant before the call: its record has the same in `invoked`.
    pub invoked: u64,
    /// What is about to be done.
    pub operation: Operation,
}

/// What an invocation is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Acquire the lock; ends in `Granted` or `NotGranted`. Of a semaphore it ends in `Permit` or `NotGranted`.
    Acquire,
    /// Acquire the lock together with others; ends in `Together`. Several permits of a semaphore at once; ends in `Permit` of each, or `Together`.
    Together,
    /// Acquire the lock shared, or make an exclusive hold a shared one; ends in `Shared` or `NotShared`.
    Share,
    /// Write the unprotected value; ends in `Section`.
    Section {
        /// The hold's fencing token.
        token: u64,
        /// What was found.
        read: u64,
        /// What may have been left.
        wrote: u64,
    },
    /// Write to the resource that checks tokens; ends in `FencedWrite`.
    FencedWrite {
        /// The hold's fencing token.
        token: u64,
    },
    /// Add to the counter; ends in `Added`.
    Add {
        /// What is to be added.
        delta: i64,
        /// The least value that it may leave.
        low: Option<i64>,
        /// The greatest.
        high: Option<i64>,
    },
    /// Move an amount; ends in `Transfer`.
    Transfer {
        /// The hold's fencing token.
        token: u64,
        /// What is to be moved.
        amount: i64,
    },
    /// Try to take a slot of a job, and work on it; ends in `Attempt`.
    Attempt {
        /// The work is to record its slot as done in a transaction of its own.
        booked: bool,
    },
}
