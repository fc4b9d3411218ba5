//! The figures of one contestant in one round of one cell.

use std::time::Duration;

use crate::contestants::Profile;
use crate::status::Status;
use crate::tally::Tally;

/// One measurement.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// Pairs, additions or handoffs a second.
    pub per_second: f64,
    /// Median latency in microseconds.
    pub p50_us: Option<f64>,
    /// The latency that one in a hundred exceeds.
    pub p99_us: Option<f64>,
    /// The longest operation.
    pub worst_us: f64,
    /// Operations that failed.
    pub errors: u64,
    /// The first failure's text.
    pub first_error: Option<String>,
    /// Deadlocks that the server found.
    pub deadlocks: Option<u64>,
    /// Connections in use.
    pub connections: Option<u64>,
    /// Round trips for each operation.
    pub round_trips: Option<f64>,
    /// Durable commits for each operation.
    pub commits: Option<f64>,
}

impl Slice {
    /// From what the tasks counted and what the server counted in `window`; `idle` connections were there before.
    pub fn new(
        profile: &Profile,
        mut tally: Tally,
        status: Status,
        idle: u64,
        window: Duration,
    ) -> Self {
        let operations = count(tally.halves) / 2.0;
        let per_operation = |total: u64| (operations > 0.0).then(|| count(total) / operations);
        let trips = if profile.packets {
            status.commits
        } else {
            Some(status.questions)
        };
        Self {
            per_second: operations / window.as_secs_f64(),
            p50_us: tally.samples.percentile(50),
            p99_us: tally.samples.percentile(99),
            worst_us: tally.worst.as_secs_f64() * 1e6,
            errors: tally.errors,
            first_error: tally.first_error,
            deadlocks: status.deadlocks.filter(|_| profile.mysql),
            connections: profile
                .connections
                .or(Some(status.connections.saturating_sub(idle))),
            round_trips: tally
                .round_trips
                .or(trips.filter(|_| profile.mysql))
                .and_then(per_operation),
            commits: status
                .commits
                .filter(|_| profile.mysql)
                .and_then(per_operation),
        }
    }
}

/// A count as a number to calculate with.
#[expect(
    clippy::cast_precision_loss,
    reason = "no count of a benchmark reaches 2^53"
)]
pub fn count(count: u64) -> f64 {
    count as f64
}
