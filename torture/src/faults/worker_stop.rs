//! A worker is stopped (SIGSTOP) past its leases, and goes on (SIGCONT).

use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use rustix::process::Signal;

use super::{Failure, Fault, Lane, Rig};
use crate::instant::now;

pub(super) struct WorkerStop;

impl Fault for WorkerStop {
    fn name(&self) -> &'static str {
        "worker-stop"
    }

    fn lane(&self) -> Lane {
        Lane::Worker
    }

    fn weight(&self) -> u32 {
        30
    }

    fn strike<'a>(
        &'a self,
        rig: &'a Rig,
        random: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        Box::pin(async move {
            let slot = rig.any_slot(random);
            if !slot.signal(Signal::STOP) {
                return Ok(false);
            }
            let from = now();
            let ttl = rig.setup.ttl();
            // Mostly past every lease; at times almost so long, when only a renewal or the margin is missed.
            let past = random.random_range(0..4) > 0;
            let stop = if past {
                ttl + Duration::from_millis(random.random_range(20..600))
            } else {
                ttl.mul_f64(random.random_range(0.7..0.97))
            };
            // Not cut short at the end of the load: a shorter stop would not count.
            tokio::time::sleep(stop).await;
            slot.signal(Signal::CONT);
            rig.note_stop(slot.worker(), from);
            Ok(past)
        })
    }
}
