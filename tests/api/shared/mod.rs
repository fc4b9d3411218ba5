//! Shared and exclusive holds of one lock: which exclude each other, who is next, and what ends them.

mod contract;
mod faults;
mod rows;
mod turns;

use std::time::Duration;

use tag_lock::{LockClient, SharedRequest};

/// A lease that a machine which stands still for a while does not lose.
const HOUR: Duration = Duration::from_secs(3_600);

fn shared(client: &LockClient, name: &str) -> SharedRequest {
    client.lock(name).ttl(HOUR).shared()
}
