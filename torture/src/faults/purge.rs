//! Rows of locks that are free are made to look old, and are purged while the load goes on.

use futures_util::future::BoxFuture;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use std::time::Duration;

use super::{Failure, Fault, Lane, Rig};
use crate::server::Node;
use crate::setup::{self, Workload};

pub(super) struct Purge;

/// The kind of the rows of shared holds.
const SHARED: u8 = 6;

/// The least age that the library purges.
const AGE: Duration = Duration::from_secs(3_600);

impl Fault for Purge {
    fn name(&self) -> &'static str {
        "purge"
    }

    fn lane(&self) -> Lane {
        Lane::Session
    }

    fn weight(&self) -> u32 {
        3
    }

    fn strike<'a>(
        &'a self,
        rig: &'a Rig,
        random: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        Box::pin(async move {
            let node = rig.any_writer(random);
            let (name, kind) = row(rig, random);
            let (slot, status) = match kind {
                SHARED => match slot(rig, node, &name, random).await {
                    Some(slot) => (slot, "status"),
                    None => return Ok(false),
                },
                // A door that is held shared is none to be purged, however old it is.
                _ if rig.setup.workload == Workload::Shared => (0, "status % 3"),
                _ => (0, "status"),
            };
            // One row by its whole key: nothing else is locked.
            let age = format!(
                "UPDATE {}.t_tag_lock SET modify_time = modify_time - INTERVAL 2 HOUR \
                 WHERE lock_name = '{name}' AND kind = {kind} AND slot = {slot} AND {status} = 0",
                rig.database
            );
            if node.run(&age).await.is_err() {
                return Ok(false);
            }
            let options = node.options()?.database(&rig.database);
            let Ok(client) = tag_lock::LockClient::builder(options).connect().await else {
                return Ok(false);
            };
            let purged = client.purge(AGE).await;
            client.close(tag_lock::AtClose::Release).await;
            Ok(purged.is_ok_and(|purged| purged.rows > 0))
        })
    }
}

/// The slot of one of the rows of a lock's shared holds.
async fn slot(rig: &Rig, node: &Node, name: &str, random: &mut ChaCha8Rng) -> Option<u64> {
    let slots = format!(
        "SELECT CAST(slot AS UNSIGNED) FROM {}.t_tag_lock WHERE lock_name = '{name}' AND kind = {SHARED}",
        rig.database
    );
    let slots = node.numbers(&slots).await.ok()?;
    slots
        .get(random.random_range(0..slots.len().max(1)))
        .copied()
}

/// The name and kind of a row. Not one of those that transactions use: a client may rely on it that such a row lives for an hour.
fn row(rig: &Rig, random: &mut ChaCha8Rng) -> (String, u8) {
    let number = random.random_range(0..rig.setup.names);
    match rig.setup.workload {
        Workload::Permits => {
            let semaphores: Vec<_> = setup::semaphores().collect();
            let (name, permits) = &semaphores[random.random_range(0..semaphores.len())];
            let slot = random.random_range(0..=*permits);
            let row = if slot < *permits {
                setup::slot(name, slot)
            } else {
                setup::turnstile(name)
            };
            (row, 5)
        }
        Workload::Shared => {
            let purged = setup::SHARED_IN_TRANSACTIONS..setup::SHARED_NAMES;
            let number = random.random_range(purged);
            let kind = if random.random() { 1 } else { SHARED };
            (format!("{}:{number}", setup::SHARED_LOCKS), kind)
        }
        Workload::Crowd => (format!("crowd:{}", number % setup::CROWD_NAMES), 1),
        Workload::Election => (format!("election:{}", number % setup::CROWDED), 1),
        _ if random.random() => (format!("mutex:{number}"), 1),
        _ => (format!("fenced:{number}"), 1),
    }
}
