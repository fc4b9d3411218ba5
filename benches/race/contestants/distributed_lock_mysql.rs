//! The crate `distributed-lock-mysql`: `GET_LOCK` on a pool of sqlx 0.8.

use std::sync::Arc;
use std::time::Duration;

use distributed_lock_core::error::LockError;
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_mysql::{MySqlLockHandle, MySqlLockProvider};
use sqlx_08::mysql::MySqlPoolOptions;
use tokio::time::Instant;

use super::{Contestant, Profile, Result};
use crate::arena::Arena;

/// Its provider, and the pool that it was given: its own would hold ten connections.
#[derive(Clone)]
pub struct DistributedLockMysql {
    provider: Arc<MySqlLockProvider>,
    pool: sqlx_08::MySqlPool,
}

impl Contestant for DistributedLockMysql {
    const PROFILE: Profile = Profile {
        name: "distributed-lock-mysql",
        ..Profile::LOCK
    };

    type Held = MySqlLockHandle;

    async fn open(arena: &Arena, tasks: usize) -> Result<Self> {
        let connections = u32::try_from(arena.connections(tasks))?;
        let pool = MySqlPoolOptions::new()
            .max_connections(connections)
            .min_connections(connections)
            .test_before_acquire(false)
            .connect(&arena.url)
            .await?;
        let provider = MySqlLockProvider::builder()
            .pool(pool.clone())
            .build()
            .await?;
        Ok(Self {
            provider: Arc::new(provider),
            pool,
        })
    }

    async fn try_lock(&self, name: &str, _ttl: Duration) -> Result<Option<MySqlLockHandle>> {
        Ok(self.provider.create_lock(name).try_acquire().await?)
    }

    async fn lock(
        &self,
        name: &str,
        _ttl: Duration,
        until: Instant,
    ) -> Result<Option<MySqlLockHandle>> {
        // A whole number of seconds: MySQL rounds.
        let wait = until.saturating_duration_since(Instant::now()).as_secs() + 1;
        match self
            .provider
            .create_lock(name)
            .acquire(Some(Duration::from_secs(wait)))
            .await
        {
            Ok(held) => Ok(Some(held)),
            Err(LockError::Timeout(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn unlock(&self, held: MySqlLockHandle) -> Result<()> {
        Ok(held.release().await?)
    }

    async fn close(self) {
        self.pool.close().await;
    }
}
