//! `LockClient::lock_all`: several locks at once, all or none.

mod contract;
mod faults;
mod packets;
mod storms;
mod transactions;

use tag_lock::{LockClient, LockState};

/// Longer than any test: a lease that ends by itself would hide one that leaked.
const TTL: std::time::Duration = std::time::Duration::from_secs(3_600);

/// Those of the names that are held, as the table says.
async fn held(client: &LockClient, names: &[&str]) -> Vec<String> {
    let mut held = Vec::new();
    for name in names {
        let info = client.inspect(name).await.expect("inspects");
        if info.is_some_and(|info| info.state != LockState::Free) {
            held.push((*name).to_owned());
        }
    }
    held
}
