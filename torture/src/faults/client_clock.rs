//! A worker's wall clock is shifted. The library must not notice.

use futures_util::future::BoxFuture;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

use super::{Failure, Fault, Lane, Rig};

pub(super) struct ClientClock;

/// The farthest shift, in seconds.
const FARTHEST: i64 = 7 * 86_400;

impl Fault for ClientClock {
    fn name(&self) -> &'static str {
        "client-clock"
    }

    fn lane(&self) -> Lane {
        Lane::Worker
    }

    fn weight(&self) -> u32 {
        5
    }

    fn is_possible(&self, rig: &Rig) -> bool {
        rig.fleet.slots.iter().all(|slot| slot.clock.is_some())
    }

    fn strike<'a>(
        &'a self,
        rig: &'a Rig,
        random: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        let slot = rig.any_slot(random);
        let shift = random.random_range(-FARTHEST..=FARTHEST);
        if let Some(clock) = &slot.clock {
            clock.step(shift);
        }
        Box::pin(async { Ok(true) })
    }
}
