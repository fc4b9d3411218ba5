//! A floor: how fast the server makes one small change durable.

use std::sync::Arc;
use std::time::Duration;

use super::article::connections::Connections;
use super::{Contestant, POOL, Profile, READ_COMMITTED, Result};
use crate::arena::Arena;
use crate::bulk;

/// Rows to spread the changes over.
const ROWS: u32 = 65_536;

/// One autocommit `UPDATE` on the name's row, prepared. One counts as one pair, or as one addition.
#[derive(Clone)]
pub struct FloorCommit(Arc<Connections>);

impl FloorCommit {
    async fn update(&self, name: &str, delta: i64) -> Result<i64> {
        let mut checkout = self.0.checkout().await?;
        let result =
            sqlx::query("UPDATE race_floor SET count = LAST_INSERT_ID(count + ?) WHERE name = ?")
                .bind(delta)
                .bind(format!("grow-{}", crc32fast::hash(name.as_bytes()) % ROWS))
                .execute(checkout.connection())
                .await?;
        checkout.done();
        Ok(i64::try_from(result.last_insert_id())?)
    }
}

impl Contestant for FloorCommit {
    const PROFILE: Profile = Profile {
        name: "floor-commit",
        floor: true,
        counters: true,
        ..Profile::LOCK
    };

    type Held = ();

    async fn prepare(arena: &Arena) -> Result<()> {
        if arena.exists("race_floor").await? {
            return Ok(());
        }
        let columns = "name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
            count BIGINT UNSIGNED NOT NULL";
        arena.create("race_floor", columns).await?;
        let connections = Connections::new(&arena.url, 1, READ_COMMITTED)?;
        bulk::insert(&connections, "race_floor (name, count)", ROWS.into(), "0").await?;
        connections.close().await;
        Ok(())
    }

    async fn open(arena: &Arena, tasks: usize) -> Result<Self> {
        Ok(Self(arena.connect(tasks.min(POOL), READ_COMMITTED).await?))
    }

    async fn try_lock(&self, name: &str, _ttl: Duration) -> Result<Option<()>> {
        self.update(name, 1).await?;
        Ok(Some(()))
    }

    async fn unlock(&self, _held: ()) -> Result<()> {
        Ok(())
    }

    async fn add(&self, name: &str, delta: i64) -> Result<i64> {
        self.update(name, delta).await
    }

    async fn close(self) {
        self.0.close().await;
    }
}
