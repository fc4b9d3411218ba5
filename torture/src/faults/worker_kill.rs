//! A worker is killed (SIGKILL), and another one takes its place.

use futures_util::future::BoxFuture;
use rand::rngs::ChaCha8Rng;

use super::{Failure, Fault, Lane, Rig};
use crate::instant::now;

pub(super) struct WorkerKill;

impl Fault for WorkerKill {
    fn name(&self) -> &'static str {
        "worker-kill"
    }

    fn lane(&self) -> Lane {
        Lane::Worker
    }

    fn weight(&self) -> u32 {
        5
    }

    fn strike<'a>(
        &'a self,
        rig: &'a Rig,
        random: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        Box::pin(async move {
            let slot = rig.any_slot(random);
            let worker = slot.worker();
            let killed = slot.kill().await?.is_some();
            rig.note_outage(worker, now());
            rig.fleet.start(slot)?;
            Ok(killed)
        })
    }
}
