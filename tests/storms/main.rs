//! Many tasks and processes at once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(unreachable_pub, reason = "a test has no users")]

#[path = "../support/mod.rs"]
mod support;

mod counter_model;
mod deadlock_free;
mod stripe_contention;
mod stripe_order;
