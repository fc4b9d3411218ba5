//! Tests that restart the server, set its global variables, or measure: each holds `support::alone()`, so that one runs at a
//! time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(unreachable_pub, reason = "a test has no users")]

#[path = "../support/mod.rs"]
mod support;

mod clocks;
mod connection_faults;
mod fairness;
mod hanging_commit;
mod kill_server;
mod migration_settings;
mod names;
mod prepared;
mod read_only;
mod restart;
mod shares;
mod small_packets;
