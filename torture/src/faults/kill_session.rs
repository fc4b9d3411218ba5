//! An operator kills sessions of the library, or what they are just running.

use futures_util::future::BoxFuture;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::{Failure, Fault, Lane, Rig};

pub(super) struct KillSession {
    name: &'static str,
    command: &'static str,
}

pub(super) const KILL: KillSession = KillSession {
    name: "kill",
    command: "KILL",
};

pub(super) const KILL_QUERY: KillSession = KillSession {
    name: "kill-query",
    command: "KILL QUERY",
};

impl Fault for KillSession {
    fn name(&self) -> &'static str {
        self.name
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
            let killed = node.run(&format!("{} {session}", self.command)).await;
            Ok(killed.is_ok())
        })
    }
}
