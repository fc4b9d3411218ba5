//! Redis: `SET NX PX` with a script that deletes only one's own, and `INCR`, over one multiplexed connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Script};

use super::{Contestant, Profile, Result};
use crate::arena::Arena;
use crate::token::Token;

/// Deletes the lock if it is still the holder's.
const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

/// A Redis server without persistence, or, with `FSYNC`, one that syncs its log before it answers.
#[derive(Clone)]
pub struct Redis<const FSYNC: bool> {
    connection: MultiplexedConnection,
    release: Arc<Script>,
    round_trips: Arc<AtomicU64>,
}

/// Whose lock, and which.
pub struct Held {
    name: String,
    holder: Token,
}

impl<const FSYNC: bool> Redis<FSYNC> {
    async fn connect(arena: &Arena) -> Result<MultiplexedConnection> {
        let address = if FSYNC {
            &arena.redis.fsync
        } else {
            &arena.redis.plain
        };
        let address = address.as_deref().ok_or("redis-server is not installed")?;
        // A busy server may take longer than the half second that the crate would wait.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        Ok(Client::open(address)?
            .get_multiplexed_async_connection_with_config(&config)
            .await?)
    }

    fn count(&self) {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
    }
}

impl<const FSYNC: bool> Contestant for Redis<FSYNC> {
    const PROFILE: Profile = Profile {
        name: if FSYNC { "redis-fsync" } else { "redis" },
        counters: true,
        mysql: false,
        connections: Some(1),
        ..Profile::LOCK
    };

    type Held = Held;

    async fn prepare(arena: &Arena) -> Result<()> {
        let mut connection = Self::connect(arena).await?;
        Ok(redis::cmd("FLUSHALL").query_async(&mut connection).await?)
    }

    async fn open(arena: &Arena, _tasks: usize) -> Result<Self> {
        Ok(Self {
            connection: Self::connect(arena).await?,
            release: Arc::new(Script::new(RELEASE)),
            round_trips: Arc::default(),
        })
    }

    async fn try_lock(&self, name: &str, ttl: Duration) -> Result<Option<Held>> {
        let holder = Token::new();
        self.count();
        let answer: Option<String> = redis::cmd("SET")
            .arg(name)
            .arg(holder.as_slice())
            .arg("NX")
            .arg("PX")
            .arg(u64::try_from(ttl.as_millis())?)
            .query_async(&mut self.connection.clone())
            .await?;
        Ok(answer.map(|_| Held {
            name: name.to_owned(),
            holder,
        }))
    }

    async fn unlock(&self, held: Held) -> Result<()> {
        self.count();
        let deleted: i64 = self
            .release
            .key(held.name)
            .arg(held.holder.as_slice())
            .invoke_async(&mut self.connection.clone())
            .await?;
        if deleted == 1 {
            Ok(())
        } else {
            Err("the lock was lost".into())
        }
    }

    async fn add(&self, name: &str, delta: i64) -> Result<i64> {
        self.count();
        let mut connection = self.connection.clone();
        let mut command = redis::cmd(if delta == 1 { "INCR" } else { "INCRBY" });
        command.arg(name);
        if delta != 1 {
            command.arg(delta);
        }
        Ok(command.query_async(&mut connection).await?)
    }

    fn round_trips(&self) -> Option<u64> {
        Some(self.round_trips.load(Ordering::Relaxed))
    }
}
