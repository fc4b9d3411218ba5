//! Lost replies, killed connections, dropped futures, stopped and killed processes. The tests run side by side: each breaks
//! only its own proxy, connections and processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(unreachable_pub, reason = "a test has no users")]

#[path = "../support/mod.rs"]
mod support;

mod cancellation;
mod clocks;
mod connection_faults;
mod dropped_in;
mod exactly_once;
mod few_connections;
mod interrupted;
mod killed_connections;
mod late_packets;
mod lease_loss;
mod panics;
mod proxy;
mod silence;
mod stall;
mod stopped_holder;
