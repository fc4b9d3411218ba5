//! Rows of locks that are free are made to look old, and are purged while the load goes on.

use futures_util::future::BoxFuture;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

use super::{Failure, Fault, Lane, Rig};
use crate::setup::{self, Workload};

pub(super) struct Purge;

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
            // One row by its whole key: nothing else is locked.
            let age = format!(
                "UPDATE {}.t_tag_lock SET modify_time = modify_time - INTERVAL 2 HOUR \
                 WHERE lock_name = '{name}' AND kind = {kind} AND slot = 0 AND status = 0",
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

/// The name and kind of a row. Not one of those that transactions use: a client may rely on it that such a row lives for an hour.
fn row(rig: &Rig, random: &mut ChaCha8Rng) -> (String, u8) {
    let number = random.random_range(0..rig.setup.names);
    match rig.setup.workload {
        Workload::Permits => {
            let semaphores: Vec<_> = setup::semaphores().collect();
            let (name, permits) = &semaphores[random.random_range(0..semaphores.len())];
            (setup::slot(name, random.random_range(0..*permits)), 5)
        }
        Workload::Election => (format!("election:{}", number % setup::CROWDED), 1),
        _ if random.random() => (format!("mutex:{number}"), 1),
        _ => (format!("fenced:{number}"), 1),
    }
}
