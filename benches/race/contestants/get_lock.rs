//! `GET_LOCK` and `RELEASE_LOCK`: in the server's memory, a connection for each held lock.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::article::connections::{Checkout, Connections};
use super::{Contestant, Profile, Result};
use crate::arena::Arena;

/// The server's own named locks.
#[derive(Clone)]
pub struct GetLock(Arc<Connections>);

/// The connection that holds the lock, and the lock's name.
pub struct Held {
    name: String,
    checkout: Checkout,
}

impl GetLock {
    /// Waits for at most `seconds` (whole ones: MySQL rounds).
    async fn take(&self, name: &str, seconds: u64) -> Result<Option<Held>> {
        let mut checkout = self.0.checkout().await?;
        let granted: Option<i64> = sqlx::query_scalar("SELECT GET_LOCK(?, ?)")
            .bind(name)
            .bind(seconds)
            .fetch_one(checkout.connection())
            .await?;
        match granted {
            Some(1) => Ok(Some(Held {
                name: name.to_owned(),
                checkout,
            })),
            Some(_) => {
                checkout.done();
                Ok(None)
            }
            None => Err("GET_LOCK failed".into()),
        }
    }
}

impl Contestant for GetLock {
    const PROFILE: Profile = Profile {
        name: "get-lock",
        ..Profile::LOCK
    };

    type Held = Held;

    async fn open(arena: &Arena, tasks: usize) -> Result<Self> {
        Ok(Self(arena.connect(tasks, "").await?))
    }

    async fn try_lock(&self, name: &str, _ttl: Duration) -> Result<Option<Held>> {
        self.take(name, 0).await
    }

    async fn lock(&self, name: &str, _ttl: Duration, until: Instant) -> Result<Option<Held>> {
        let wait = until.saturating_duration_since(Instant::now());
        self.take(name, wait.as_secs() + 1).await
    }

    async fn unlock(&self, mut held: Held) -> Result<()> {
        let released: Option<i64> = sqlx::query_scalar("SELECT RELEASE_LOCK(?)")
            .bind(&held.name)
            .fetch_one(held.checkout.connection())
            .await?;
        held.checkout.done();
        if released == Some(1) {
            Ok(())
        } else {
            Err("the lock was lost".into())
        }
    }

    async fn close(self) {
        self.0.close().await;
    }
}
