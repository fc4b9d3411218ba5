//! Faults that were found once, each with the test that shows it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod clients;
mod counters;
mod leases;
mod rows;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

/// Far longer than anything here takes, far shorter than for ever.
const HANG: Duration = Duration::from_secs(60);
