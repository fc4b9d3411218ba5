//! Everything that races: each contestant in a file of its own, behind one trait.

pub mod article;

use std::future::Future;
use std::time::Duration;

/// Why an operation failed; counted, and the first of each slice is shown.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The result of a contestant's operation.
pub type Result<T> = std::result::Result<T, Error>;

/// A way to make locks, counters or both. Cloned into each task.
pub trait Contestant: Clone + Send + Sync + 'static {
    /// What a holder keeps, and what the release needs.
    type Held: Send + 'static;

    /// Takes the lock `name` for `ttl` when it is free; `None` when it is held.
    fn try_lock(&self, name: &str, ttl: Duration) -> impl Future<Output = Result<Option<Self::Held>>> + Send;

    /// Releases a lock.
    fn unlock(&self, held: Self::Held) -> impl Future<Output = Result<()>> + Send;

    /// Adds `delta` to the counter `name`, which starts at 0; the new value.
    fn add(&self, name: &str, delta: i64) -> impl Future<Output = Result<i64>> + Send;
}
