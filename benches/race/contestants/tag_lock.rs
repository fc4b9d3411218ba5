//! This library, through its public interface: with its defaults, with the stripe for each request, as the original
//! design takes it, and with leases that idle.

use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection};
use tag_lock::{AtClose, Error, LockClient, LockGuard, Stripes};
use tokio::time::Instant;

use super::{Contestant, Profile, Result};
use crate::arena::Arena;

/// How many acquires fill the table at once.
const FILLERS: u64 = 2_000;

/// With its defaults.
pub const DEFAULT: u8 = 0;
/// Each request takes its stripe.
pub const EVERY_STRIPE: u8 = 1;
/// Released leases idle.
pub const LINGER: u8 = 2;
/// Longer than a race.
const LONG: Duration = Duration::from_secs(3_600);

/// A client of the library; all tasks of a process share it.
#[derive(Clone)]
pub struct TagLock<const VARIANT: u8> {
    client: LockClient,
}

impl<const VARIANT: u8> Contestant for TagLock<VARIANT> {
    const PROFILE: Profile = Profile {
        name: match VARIANT {
            EVERY_STRIPE => "tag-lock-every-stripe",
            LINGER => "tag-lock-linger",
            _ => "tag-lock",
        },
        counters: VARIANT != LINGER,
        packets: true,
        fills: VARIANT != LINGER,
        ..Profile::LOCK
    };

    type Held = LockGuard;

    async fn prepare(arena: &Arena) -> Result<()> {
        let client = LockClient::connect(&arena.url).await?;
        client.migrate().await?;
        client.close(AtClose::Release).await;
        // Old rows go, the stripes stay.
        let mut connection = MySqlConnection::connect(&arena.url).await?;
        sqlx::raw_sql(AssertSqlSafe(
            "DELETE FROM t_tag_lock WHERE kind <> 0; DELETE FROM t_tag_lock_lane".to_owned(),
        ))
        .execute(&mut connection)
        .await?;
        Ok(connection.close().await?)
    }

    async fn open(arena: &Arena, _tasks: usize) -> Result<Self> {
        let builder = LockClient::builder(arena.url.parse()?);
        let builder = match VARIANT {
            EVERY_STRIPE => builder.stripes(Stripes::EveryRequest),
            LINGER => builder.linger(LONG),
            _ => builder,
        };
        Ok(Self {
            client: builder.connect().await?,
        })
    }

    async fn try_lock(&self, name: &str, ttl: Duration) -> Result<Option<LockGuard>> {
        Ok(self.client.lock(name).ttl(ttl).try_acquire().await?)
    }

    async fn lock(&self, name: &str, ttl: Duration, until: Instant) -> Result<Option<LockGuard>> {
        let wait = until.saturating_duration_since(Instant::now());
        match self.client.lock(name).ttl(ttl).wait(wait).acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(Error::Timeout { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn unlock(&self, held: LockGuard) -> Result<()> {
        Ok(held.release().await?)
    }

    async fn add(&self, name: &str, delta: i64) -> Result<i64> {
        Ok(self.client.counter(name).add(delta).await?)
    }

    async fn fill(&self, names: u64, held: bool) -> Result<Vec<LockGuard>> {
        let mut guards = Vec::new();
        let mut next = 0;
        while next < names {
            let end = (next + FILLERS).min(names);
            let tasks: Vec<_> = (next..end)
                .map(|number| {
                    let client = self.client.clone();
                    tokio::spawn(
                        async move { client.lock(&format!("grow-{number}")).acquire().await },
                    )
                })
                .collect();
            for task in tasks {
                let guard = task.await??;
                if held {
                    guards.push(guard);
                }
            }
            next = end;
        }
        Ok(guards)
    }

    async fn close(self) {
        self.client.close(AtClose::Release).await;
    }
}
