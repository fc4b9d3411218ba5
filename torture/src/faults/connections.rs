//! A bystander takes all connections that the server allows, and the library's own are killed.

use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use sqlx::ConnectOptions;

use super::{Failure, Fault, Lane, Rig};
use crate::bank::run;
use crate::instant::now;

pub(super) struct Connections;

/// How many connections more than there are the bystander finds.
const FREE: u64 = 10;

impl Fault for Connections {
    fn name(&self) -> &'static str {
        "max-connections"
    }

    fn lane(&self) -> Lane {
        Lane::Server
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
            let before = node.numbers("SELECT @@max_connections").await?;
            let open = node
                .numbers("SELECT COUNT(*) FROM information_schema.PROCESSLIST")
                .await?;
            let (Some(before), Some(open)) = (before.first(), open.first()) else {
                return Ok(false);
            };
            // Kept, so that nobody takes the place of the one that mends.
            let mut administrator = node.administrator().await?;
            let limit = |connections| format!("SET GLOBAL max_connections = {connections}");
            run(&mut administrator, &limit(open + FREE)).await?;
            // An account without privileges: an administrator has a connection to spare.
            let options = node
                .options()?
                .username(&rig.account)
                .password(&rig.password)
                .database(&rig.database);
            let mut taken = Vec::new();
            for _ in 0..2 * FREE {
                match tokio::time::timeout(Duration::from_secs(2), options.connect()).await {
                    Ok(Ok(connection)) => taken.push(connection),
                    _ => break,
                }
            }
            let from = now();
            let full = u64::try_from(taken.len()).unwrap_or(0) < 2 * FREE;
            // Each worker has to connect again, and cannot.
            for slot in &rig.fleet.slots {
                slot.wire.proxy.cut_all();
            }
            rig.pause(Duration::from_millis(random.random_range(100..1_500)))
                .await;
            drop(taken);
            run(&mut administrator, &limit(*before)).await?;
            rig.note_outage(None, from);
            Ok(full)
        })
    }
}
