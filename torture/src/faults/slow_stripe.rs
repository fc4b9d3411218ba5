//! The server is slow with some packets: a bystander keeps one of the library's stripes for a while. Connections are
//! cut meanwhile, so that packets go on that nobody waits for any more.

use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::{Failure, Fault, Lane, Rig};
use crate::bank::run;

pub(super) struct SlowStripe;

/// How many stripes there are.
const STRIPES: u32 = 100;

impl Fault for SlowStripe {
    fn name(&self) -> &'static str {
        "slow-stripe"
    }

    fn lane(&self) -> Lane {
        Lane::Session
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
            let node = rig.any_writer(random);
            // Mostly one that the load needs: the counters are few.
            let stripe = match random.random_range(0..3) {
                0 => random.random_range(0..STRIPES),
                _ => crate::setup::busy_stripe(random),
            };
            let Ok(mut connection) = node.administrator().await else {
                return Ok(false);
            };
            let keep = format!(
                "START TRANSACTION; SELECT 1 FROM {}.t_tag_lock \
                 WHERE lock_name = 'center_lock_{stripe:02}' AND kind = 0 AND slot = 0 FOR UPDATE",
                rig.database
            );
            // The server may be away, or be killed meanwhile.
            let limit = Duration::from_secs(3);
            let kept = tokio::time::timeout(limit, run(&mut connection, &keep)).await;
            if !matches!(kept, Ok(Ok(()))) {
                return Ok(false);
            }
            let whole = Duration::from_millis(random.random_range(100..900));
            rig.pause(whole / 2).await;
            rig.any_slot(random).wire.proxy.cut_all();
            rig.pause(whole / 2).await;
            drop(connection);
            Ok(true)
        })
    }
}
