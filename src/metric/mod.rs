//! Counters, gauges and histograms for an exporter, through the `metrics` facade.
//!
//! They exist with the feature `metrics`. Without it nothing here does anything, and no clock is read. They have no label, since
//! the names of locks are without number: the clients of a process count together.

#[cfg(feature = "metrics")]
mod exported;
#[cfg(any(test, feature = "metrics"))]
mod list;
#[cfg(not(feature = "metrics"))]
mod off;

#[cfg(feature = "metrics")]
pub(crate) use self::exported::{Hold, Waiting, count, describe, reachable, record, record_since};
#[cfg(not(feature = "metrics"))]
pub(crate) use self::off::{Hold, Waiting, count, describe, reachable, record, record_since};
