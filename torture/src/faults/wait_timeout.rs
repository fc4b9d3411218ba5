//! The server ends idle sessions after a second: those that begin meanwhile keep that for their lives.

use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::rngs::ChaCha8Rng;

use super::{Failure, Fault, Lane, Rig};

pub(super) struct WaitTimeout;

impl Fault for WaitTimeout {
    fn name(&self) -> &'static str {
        "wait-timeout"
    }

    fn lane(&self) -> Lane {
        Lane::Server
    }

    fn weight(&self) -> u32 {
        4
    }

    fn strike<'a>(
        &'a self,
        rig: &'a Rig,
        random: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        Box::pin(async move {
            let node = rig.any_writer(random);
            node.run("SET GLOBAL wait_timeout = 1").await?;
            for slot in &rig.fleet.slots {
                slot.wire.proxy.cut_all();
            }
            rig.pause(Duration::from_secs(1)).await;
            node.run("SET GLOBAL wait_timeout = DEFAULT").await?;
            Ok(true)
        })
    }
}
