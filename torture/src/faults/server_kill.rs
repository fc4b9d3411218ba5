//! The server is killed (SIGKILL) and started again: whatever it had not made durable is gone.

use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

use super::{Failure, Fault, Lane, Rig};
use crate::instant::now;

pub(super) struct ServerKill;

impl Fault for ServerKill {
    fn name(&self) -> &'static str {
        "server-kill"
    }

    fn lane(&self) -> Lane {
        Lane::Server
    }

    fn weight(&self) -> u32 {
        45
    }

    fn is_possible(&self, rig: &Rig) -> bool {
        rig.servers.nodes.iter().all(crate::server::Node::is_ours)
    }

    fn strike<'a>(
        &'a self,
        rig: &'a Rig,
        random: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        Box::pin(async move {
            // Mostly one whose death is noticed.
            let node = if random.random_range(0..3) > 0 {
                rig.any_writer(random)
            } else {
                rig.any_node(random)
            };
            rig.tallies.look(node).await;
            let from = now();
            node.kill().await?;
            if random.random_range(0..8) == 0 {
                // At times it stays away for longer than leases last.
                let away = rig.setup.ttl().mul_f64(2.0 * random.random::<f64>());
                rig.pause(away.max(Duration::from_millis(100))).await;
            }
            node.start().await?;
            rig.note_outage(None, from);
            Ok(true)
        })
    }
}
