//! All connections of a worker are cut, in whatever they are doing.

use futures_util::future::BoxFuture;
use rand::rngs::ChaCha8Rng;

use super::{Failure, Fault, Lane, Rig};

pub(super) struct Cut;

impl Fault for Cut {
    fn name(&self) -> &'static str {
        "cut"
    }

    fn lane(&self) -> Lane {
        Lane::Wire
    }

    fn weight(&self) -> u32 {
        10
    }

    fn strike<'a>(
        &'a self,
        rig: &'a Rig,
        random: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        rig.any_slot(random).wire.proxy.cut_all();
        Box::pin(async { Ok(true) })
    }
}
