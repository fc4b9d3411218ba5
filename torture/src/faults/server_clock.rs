//! The server's clock is stepped, in both directions. Plain leases do not exclude across a step forward; tokens,
//! transactions and counters hold.

use futures_util::future::BoxFuture;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

use super::{Failure, Fault, Lane, Rig};

pub(super) struct ServerClock;

impl Fault for ServerClock {
    fn name(&self) -> &'static str {
        "server-clock"
    }

    fn lane(&self) -> Lane {
        Lane::Session
    }

    fn weight(&self) -> u32 {
        10
    }

    fn is_default(&self) -> bool {
        false
    }

    fn is_possible(&self, rig: &Rig) -> bool {
        rig.servers.nodes.iter().all(crate::server::Node::is_ours)
    }

    fn strike<'a>(
        &'a self,
        rig: &'a Rig,
        random: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        let clock = &rig.server_clocks[random.random_range(0..rig.server_clocks.len())];
        // Within one ttl: a lease that a step back leaves for hours would only be waited for.
        let longest = i64::try_from(rig.setup.ttl().as_secs()).unwrap_or(1) + 1;
        clock.step(random.random_range(-longest..=longest));
        Box::pin(async { Ok(true) })
    }
}
