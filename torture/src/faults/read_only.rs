//! The server takes no writes for a while, as in the middle of a failover.

use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::{Failure, Fault, Lane, Rig};
use crate::instant::now;

pub(super) struct ReadOnly;

impl Fault for ReadOnly {
    fn name(&self) -> &'static str {
        "read-only"
    }

    fn lane(&self) -> Lane {
        Lane::Server
    }

    fn weight(&self) -> u32 {
        8
    }

    /// A cluster sets it itself.
    fn is_possible(&self, rig: &Rig) -> bool {
        rig.servers.nodes.len() == 1
    }

    fn strike<'a>(
        &'a self,
        rig: &'a Rig,
        random: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        Box::pin(async move {
            let node = rig.any_writer(random);
            let from = now();
            // Waits for transactions that are just committing; not for the workers' account to let it.
            if node.run("SET GLOBAL read_only = 1").await.is_err() {
                node.run("SET GLOBAL read_only = 0").await?;
                return Ok(false);
            }
            rig.pause(Duration::from_millis(random.random_range(50..1_500)))
                .await;
            node.run("SET GLOBAL read_only = 0").await?;
            rig.note_outage(None, from);
            Ok(true)
        })
    }
}
