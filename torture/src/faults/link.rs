//! Faults of a worker's whole link: it becomes long, or nothing moves on it for a while.

use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

use super::{Failure, Fault, Lane, Rig};
use crate::instant::now;

/// The link becomes long, and its bytes come unevenly.
pub(super) struct Delay;

/// Nothing moves on the link, and nothing is lost; then all of it arrives at once.
pub(super) struct Partition;

impl Fault for Delay {
    fn name(&self) -> &'static str {
        "delay"
    }

    fn lane(&self) -> Lane {
        Lane::Wire
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
            let slot = rig.any_slot(random);
            let proxy = &slot.wire.proxy;
            let mut up_to = |ms| Duration::from_millis(random.random_range(0..ms));
            proxy.set_delay(up_to(60), up_to(60));
            proxy.set_jitter(up_to(60));
            rig.pause(up_to(1_500)).await;
            slot.is_as_far_as_ever();
            Ok(true)
        })
    }
}

impl Fault for Partition {
    fn name(&self) -> &'static str {
        "partition"
    }

    fn lane(&self) -> Lane {
        Lane::Wire
    }

    fn weight(&self) -> u32 {
        2
    }

    fn strike<'a>(
        &'a self,
        rig: &'a Rig,
        random: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        Box::pin(async move {
            let slot = rig.any_slot(random);
            let proxy = &slot.wire.proxy;
            let from = now();
            // At times past every lease and every time limit of a packet.
            let longest = rig.setup.ttl() * 3;
            proxy.pause();
            rig.pause(longest.mul_f64(random.random())).await;
            if random.random() {
                proxy.cut_all();
            }
            proxy.resume();
            rig.note_outage(slot.worker(), from);
            Ok(true)
        })
    }
}
