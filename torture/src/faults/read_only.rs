//! The server takes no writes for a while, as in the middle of a failover.

use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

use super::{Failure, Fault, Lane, Rig};
use crate::instant::now;

pub(super) struct ReadOnly;

/// How many seconds the server waits at most: fewer than an administrator.
const LOCK_WAIT: u32 = 2;

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
            // Waits for transactions that are just committing, and the server itself ends that: a statement that only its client
            // had given up would still come into force, behind the one that takes it back.
            let on = format!("SET lock_wait_timeout = {LOCK_WAIT}; SET GLOBAL read_only = 1");
            if node.run(&on).await.is_err() {
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
