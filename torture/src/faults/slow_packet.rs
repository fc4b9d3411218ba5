//! The server is slow with some packets: a bystander keeps one of the library's stripes, or the row of a lane that is at work,
//! for a while. Connections are cut meanwhile, so that packets go on that nobody waits for any more.

use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

use super::{Failure, Fault, Lane, Rig};
use crate::bank::run;

pub(super) struct SlowPacket;

/// How many stripes there are.
const STRIPES: u32 = 100;
/// About as many lanes as are at work.
const LANES: u32 = 8;

impl Fault for SlowPacket {
    fn name(&self) -> &'static str {
        "slow-packet"
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
            let Ok(mut connection) = node.administrator().await else {
                return Ok(false);
            };
            let database = &rig.database;
            let keep = if random.random() {
                // Mostly one that the load needs: the counters are few.
                let stripe = match random.random_range(0..3) {
                    0 => random.random_range(0..STRIPES),
                    _ => crate::setup::busy_stripe(random),
                };
                format!(
                    "SELECT 1 FROM {database}.t_tag_lock \
                     WHERE lock_name = 'center_lock_{stripe:02}' AND kind = 0 AND slot = 0 FOR UPDATE"
                )
            } else {
                // Of the lanes that were last at work, any.
                let nth = random.random_range(0..LANES);
                format!(
                    "SELECT id INTO @lane FROM {database}.t_tag_lock_lane ORDER BY modify_time DESC LIMIT {nth}, 1; \
                     SELECT 1 FROM {database}.t_tag_lock_lane WHERE id = @lane FOR UPDATE"
                )
            };
            // The server may be away, or be killed meanwhile.
            let keep = format!("START TRANSACTION; {keep}");
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
