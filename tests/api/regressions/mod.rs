//! Faults that were found once, each with the test that shows it.

mod clients;
mod counters;
mod leases;
mod rows;

use std::time::Duration;

/// Far longer than anything here takes, far shorter than for ever.
const HANG: Duration = Duration::from_secs(60);
