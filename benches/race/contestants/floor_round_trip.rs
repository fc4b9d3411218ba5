//! A floor: how fast the server answers when there is nothing to do.

use std::sync::Arc;
use std::time::Duration;

use super::article::connections::Connections;
use super::{Contestant, POOL, Profile, Result};
use crate::arena::Arena;

/// `SELECT 1`, prepared. One counts as one pair.
#[derive(Clone)]
pub struct FloorRoundTrip(Arc<Connections>);

impl Contestant for FloorRoundTrip {
    const PROFILE: Profile = Profile {
        name: "floor-round-trip",
        floor: true,
        ..Profile::LOCK
    };

    type Held = ();

    async fn open(arena: &Arena, tasks: usize) -> Result<Self> {
        Ok(Self(arena.connect(tasks.min(POOL), "").await?))
    }

    async fn try_lock(&self, _name: &str, _ttl: Duration) -> Result<Option<()>> {
        let mut checkout = self.0.checkout().await?;
        sqlx::query("SELECT 1")
            .execute(checkout.connection())
            .await?;
        checkout.done();
        Ok(Some(()))
    }

    async fn unlock(&self, _held: ()) -> Result<()> {
        Ok(())
    }

    async fn close(self) {
        self.0.close().await;
    }
}
