//! The server ends statements that take longer than a moment, in sessions that begin meanwhile: the library's until it has made
//! its settings, those of its callers for their lives. MariaDB ends statements of all kinds, MySQL plain `SELECT`s only.

use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

use super::{Failure, Fault, Lane, Rig};
use crate::bank::run;
use crate::server::within;

pub(super) struct StatementTime;

impl Fault for StatementTime {
    fn name(&self) -> &'static str {
        "statement-time"
    }

    fn lane(&self) -> Lane {
        Lane::Server
    }

    fn weight(&self) -> u32 {
        8
    }

    fn strike<'a>(
        &'a self,
        rig: &'a Rig,
        random: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        Box::pin(async move {
            let node = rig.any_writer(random);
            // About as long as a statement takes.
            let (variable, limit) = if rig.servers.is_mariadb {
                let micros = random.random_range(200..4_000);
                ("max_statement_time", format!("0.{micros:06}"))
            } else {
                ("max_execution_time", random.random_range(1..=3).to_string())
            };
            // Kept: a new session would meet the limit itself.
            let mut administrator = node.administrator().await?;
            let set = format!("SET @before = @@GLOBAL.{variable}; SET GLOBAL {variable} = {limit}");
            within(run(&mut administrator, &set)).await?;
            for slot in &rig.fleet.slots {
                slot.wire.proxy.cut_all();
            }
            rig.pause(Duration::from_millis(random.random_range(300..1_500)))
                .await;
            let reset = format!("SET GLOBAL {variable} = @before");
            within(run(&mut administrator, &reset)).await?;
            Ok(true)
        })
    }
}
