//! What the client tells about itself: spans and events through `tracing`, and what is measured with them ([`crate::metric`]).
//!
//! Names and durations only: no token, no owner, no password.

use std::fmt::Display;
use std::time::Duration;

use tracing::Span;

use crate::clock::Moment;
use crate::error::Error;
use crate::metric::{count, reachable, record, record_since};
use crate::name::Name;
use crate::quietly::quietly;

/// Tells an event. What takes it in is code of the application: a panic there undoes nothing here.
macro_rules! tell {
    ($level:ident: $($event:tt)+) => {
        quietly(|| tracing::$level!($($event)+))
    };
}

/// From the request to the grant or its refusal.
pub(crate) fn acquire(name: &Name) -> Span {
    tracing::debug_span!("acquire", lock = %name)
}

/// Inside an acquire: for tasks of this process, for other processes, and for the server.
pub(crate) fn wait(name: &Name) -> Span {
    tracing::debug_span!("wait", lock = %name)
}

/// From the sending of a renewal to its answer.
pub(crate) fn renew(name: &Name) -> Span {
    tracing::debug_span!("renew", lock = %name)
}

/// While somebody waits for a release.
pub(crate) fn release(name: &Name) -> Span {
    tracing::debug_span!("release", lock = %name)
}

/// A task has a lock for which it asked then; in memory if the process held it already.
pub(crate) fn acquired(name: &Name, fence: u64, asked: Moment) {
    tell!(debug: lock = %name, fence, waited = ?Moment::now().since(asked), "acquired");
    record_since("tag_lock_acquire_seconds", asked);
    count("tag_lock_acquired_total", 1);
}

/// A task did not get a lock for which it asked then.
pub(crate) fn refused(name: &Name, asked: Moment) {
    tell!(debug: lock = %name, waited = ?Moment::now().since(asked), "not acquired: it is held");
    count("tag_lock_refused_total", 1);
}

/// An acquire has to wait: once for each.
pub(crate) fn waits() {
    count("tag_lock_waits_total", 1);
}

/// This process says in the row that it waits.
pub(crate) fn wished(name: &Name) {
    tell!(debug: lock = %name, "waiting for another process");
}

/// A lock passed to the next task of the process without a statement.
pub(crate) fn handed_on(name: &Name) {
    tell!(trace: lock = %name, "handed on in memory");
    count("tag_lock_handed_on_total", 1);
}

/// A task has taken a lock that idled here, without a statement.
pub(crate) fn reused(name: &Name) {
    tell!(trace: lock = %name, "taken again: it idled here");
    count("tag_lock_reused_total", 1);
}

pub(crate) fn renewed(name: &Name, trusted_for: Duration) {
    tell!(trace: lock = %name, ?trusted_for, "renewed");
    count("tag_lock_renewed_total", 1);
}

/// Neither renewed nor lost: it is tried again. During an outage that is no news.
pub(crate) fn renewal_failed(name: &Name, error: &Error, outage: bool) {
    if outage {
        tell!(debug: lock = %name, error = %error.in_full(), "a renewal failed");
    } else {
        tell!(warn: lock = %name, error = %error.in_full(), "a renewal failed");
    }
    count("tag_lock_renewal_failures_total", 1);
}

pub(crate) fn lost(name: &Name, held: Duration) {
    quietly(|| {
        let span = tracing::debug_span!("lose", lock = %name);
        span.in_scope(|| tracing::warn!(lock = %name, ?held, "a lease was lost"));
    });
    count("tag_lock_lost_total", 1);
}

pub(crate) fn released(name: &Name, held: Duration) {
    tell!(debug: lock = %name, ?held, "released");
    count("tag_lock_released_total", 1);
}

/// The slot of a job is recorded as done.
pub(crate) fn finished(name: &Name, held: Duration) {
    tell!(debug: job = %name, ?held, "done");
    count("tag_lock_jobs_done_total", 1);
}

/// A release that nobody waits for did not succeed.
pub(crate) fn release_failed(name: &Name, error: &Error) {
    tell!(debug: lock = %name, error = %error.in_full(), "a dropped guard was not released");
    count("tag_lock_release_failures_total", 1);
}

/// A batch was answered.
pub(crate) fn batch(rows: usize, took: Duration) {
    tell!(trace: rows, ?took, "a batch was committed");
    reachable(true);
    record("tag_lock_commit_seconds", took);
    count("tag_lock_batches_total", 1);
    count("tag_lock_batch_rows_total", rows);
}

/// A batch met another transaction and runs again.
pub(crate) fn conflict(error: &sqlx::Error) {
    tell!(debug: %error, "conflict; running the batch again");
    count("tag_lock_conflicts_total", 1);
}

/// The connection broke under a batch. During an outage that is no news.
pub(crate) fn unknown_outcome(number: u64, error: &sqlx::Error, outage: bool) {
    if outage {
        tell!(debug: batch = number, %error, "a batch's outcome is unknown; settling it");
    } else {
        tell!(warn: batch = number, %error, "a batch's outcome is unknown; settling it");
    }
    count("tag_lock_unknown_outcomes_total", 1);
}

/// One of the client's tasks panicked, in a log writer perhaps: this must not do so again.
pub(crate) fn panicked(task: &'static str) {
    let told = std::panic::catch_unwind(|| {
        tell!(error: task, "the task panicked; it goes on");
    });
    drop(told);
}

/// A client's end has taken too long.
pub(crate) fn aborted() {
    let told = std::panic::catch_unwind(|| {
        tell!(warn: "a task of the lock client did not end in time; it is aborted");
    });
    drop(told);
}

/// A settlement did not succeed.
pub(crate) fn not_settled(number: u64, error: &sqlx::Error) {
    tell!(debug: batch = number, %error, "not settled yet; trying again");
}

/// The server cannot be reached, or does not take writes: told once, however many attempts fail.
pub(crate) fn outage_began(error: &dyn Display) {
    tell!(warn: %error, "an outage begins: the server cannot be reached; trying again until it can");
}

/// It can be reached again.
pub(crate) fn outage_over(lasted: Duration, failures: u64) {
    tell!(warn:
        ?lasted,
        failures,
        "the outage is over: the server can be reached again"
    );
}

/// An attempt to reach the server failed.
pub(crate) fn offline(error: &dyn Display) {
    tell!(debug: %error, "the server was not reached; trying again");
    count("tag_lock_connection_failures_total", 1);
}
