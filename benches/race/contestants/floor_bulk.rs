//! A floor: how many rows the server can write, however they come.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::article::connections::Connections;
use super::{Contestant, Profile, READ_COMMITTED, Result};
use crate::arena::Arena;

/// Rows of one statement.
const ROWS: u32 = 500;

/// Connections that write at the same time.
const WRITERS: usize = 4;

/// Statements after which a writer's names repeat.
const CYCLE: u32 = 4;

/// A stream of upserts by hand. Two rows, one to take and one to free, count as one pair.
#[derive(Clone)]
pub struct FloorBulk {
    connections: Arc<Connections>,
    turn: Arc<AtomicU32>,
}

impl Contestant for FloorBulk {
    const PROFILE: Profile = Profile {
        name: "floor-bulk",
        floor: true,
        pairs_per_call: ROWS / 2,
        most_tasks: WRITERS,
        ..Profile::LOCK
    };

    type Held = ();

    async fn prepare(arena: &Arena) -> Result<()> {
        arena
            .create(
                "race_bulk",
                "lock_name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
                 status TINYINT NOT NULL,
                 holder BINARY(16) NOT NULL,
                 deadline DATETIME(6) NOT NULL",
            )
            .await
    }

    async fn open(arena: &Arena, _tasks: usize) -> Result<Self> {
        Ok(Self {
            connections: arena.connect(WRITERS, READ_COMMITTED).await?,
            turn: Arc::default(),
        })
    }

    async fn try_lock(&self, name: &str, _ttl: Duration) -> Result<Option<()>> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        // Each task has a name of its own, so two writers never touch the same row.
        let block = turn % CYCLE;
        let mut sql = String::with_capacity(64 * 1024);
        sql.push_str("INSERT INTO race_bulk (lock_name, status, holder, deadline) VALUES ");
        for row in 0..ROWS {
            let comma = if row == 0 { "" } else { "," };
            write!(
                sql,
                "{comma}('{name}-{block}-{row:03}',{},x'{turn:032x}',UTC_TIMESTAMP(6)+INTERVAL 30 SECOND)",
                turn / CYCLE % 2
            )?;
        }
        sql.push_str(
            " ON DUPLICATE KEY UPDATE status = VALUES(status), holder = VALUES(holder), deadline = VALUES(deadline)",
        );
        let mut checkout = self.connections.checkout().await?;
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(checkout.connection())
            .await?;
        checkout.done();
        Ok(Some(()))
    }

    async fn unlock(&self, _held: ()) -> Result<()> {
        Ok(())
    }

    async fn close(self) {
        self.connections.close().await;
    }
}
