//! The interface, call by call: locks, counters, jobs, elections, inspection and the rest. The tests run side by side, each
//! with a database of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(unreachable_pub, reason = "a test has no users")]

#[path = "../support/mod.rs"]
mod support;

mod acquire_many;
mod add_once;
mod addressing;
mod closing;
mod counter_in;
mod counter_life;
mod counters;
mod election;
mod errors;
mod every_kind;
mod exclusion;
mod fencing;
mod finish_in;
mod handles;
mod in_vain;
mod inspection;
mod isolation_levels;
mod jobs;
mod lanes;
mod levels;
mod linger;
mod lists;
mod lock_all;
mod lock_in;
mod locks;
#[cfg(feature = "metrics")]
mod metrics;
mod migration;
mod new_names;
mod no_transaction;
mod other_database;
mod people;
mod purge;
mod regressions;
mod release_in;
mod renewal;
mod runtimes;
mod semaphore;
mod shared;
mod standby;
mod telemetry;
mod testing;
mod tls;
mod verify_in;
mod waiting;
mod watch;
mod what_a_guard_knows;
