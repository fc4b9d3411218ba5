//! The crate `rslock`: Redlock on three Redis servers.

use std::time::Duration;

use redis::Client;
use rslock::{Lock, LockError, LockManager};

use super::{Contestant, Profile, Result};
use crate::arena::Arena;

/// A majority of three.
#[derive(Clone)]
pub struct Redlock(LockManager);

impl Contestant for Redlock {
    const PROFILE: Profile = Profile {
        name: "redlock",
        mysql: false,
        connections: Some(3),
        ..Profile::LOCK
    };

    type Held = Lock;

    async fn prepare(arena: &Arena) -> Result<()> {
        for address in &arena.redis.quorum {
            let mut connection = Client::open(address.as_str())?
                .get_multiplexed_async_connection()
                .await?;
            redis::cmd("FLUSHALL")
                .query_async::<()>(&mut connection)
                .await?;
        }
        Ok(())
    }

    async fn open(arena: &Arena, _tasks: usize) -> Result<Self> {
        if arena.redis.quorum.is_empty() {
            return Err("redis-server is not installed".into());
        }
        let clients = arena
            .redis
            .quorum
            .iter()
            .map(|address| Client::open(address.as_str()));
        let mut manager = LockManager::from_clients(clients.collect::<redis::RedisResult<_>>()?);
        // The race waits in its own, shorter, pauses.
        manager.set_retry(1, Duration::from_millis(1));
        Ok(Self(manager))
    }

    async fn try_lock(&self, name: &str, ttl: Duration) -> Result<Option<Lock>> {
        match self.0.lock(name.as_bytes(), ttl).await {
            Ok(lock) => Ok(Some(lock)),
            Err(LockError::Unavailable) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn unlock(&self, held: Lock) -> Result<()> {
        held.release().await;
        Ok(())
    }
}
