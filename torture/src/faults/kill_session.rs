//! An operator kills sessions of the library and of its callers.

use futures_util::future::BoxFuture;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

use super::{Failure, Fault, Lane, Rig};

pub(super) struct KillSession;

impl Fault for KillSession {
    fn name(&self) -> &'static str {
        "kill"
    }

    fn lane(&self) -> Lane {
        Lane::Session
    }

    fn weight(&self) -> u32 {
        10
    }

    fn strike<'a>(
        &'a self,
        rig: &'a Rig,
        random: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        Box::pin(async move {
            let node = rig.any_writer(random);
            let sessions = rig.sessions(node).await;
            if sessions.is_empty() {
                return Ok(false);
            }
            let session = sessions[random.random_range(0..sessions.len())];
            // The server may be away, and the session may have ended by itself.
            let killed = node.run(&format!("KILL {session}")).await;
            Ok(killed.is_ok())
        })
    }
}
