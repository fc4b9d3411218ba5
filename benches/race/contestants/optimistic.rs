//! A version column: read, then change only if the version is still the one that was read.

use std::sync::Arc;
use std::time::Duration;

use super::article::connections::Connections;
use super::{Contestant, POOL, Profile, READ_COMMITTED, Result};
use crate::arena::Arena;
use crate::bulk;
use crate::pause::Pause;
use crate::token::Token;

/// Two autocommit statements a change, again when another was faster.
#[derive(Clone)]
pub struct Optimistic(Arc<Connections>);

/// Whose lock, and which.
pub struct Held {
    name: String,
    holder: Token,
}

impl Optimistic {
    async fn insert(&self, name: &str) -> Result<()> {
        let mut checkout = self.0.checkout().await?;
        sqlx::query("INSERT IGNORE INTO race_optimistic (name) VALUES (?)")
            .bind(name)
            .execute(checkout.connection())
            .await?;
        checkout.done();
        Ok(())
    }
}

impl Contestant for Optimistic {
    const PROFILE: Profile = Profile {
        name: "optimistic",
        counters: true,
        fills: true,
        ..Profile::LOCK
    };

    type Held = Held;

    async fn prepare(arena: &Arena) -> Result<()> {
        arena
            .create(
                "race_optimistic",
                "name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
                 version BIGINT NOT NULL DEFAULT 0,
                 count BIGINT NOT NULL DEFAULT 0,
                 holder BINARY(16) NULL,
                 deadline DATETIME(6) NULL",
            )
            .await
    }

    async fn open(arena: &Arena, tasks: usize) -> Result<Self> {
        Ok(Self(arena.connect(tasks.min(POOL), READ_COMMITTED).await?))
    }

    async fn try_lock(&self, name: &str, ttl: Duration) -> Result<Option<Held>> {
        let holder = Token::new();
        loop {
            let mut checkout = self.0.checkout().await?;
            let row: Option<(i64, bool)> = sqlx::query_as(
                "SELECT version, holder IS NOT NULL AND deadline > UTC_TIMESTAMP(6) FROM race_optimistic WHERE name = ?",
            )
            .bind(name)
            .fetch_optional(checkout.connection())
            .await?;
            let taken = match row {
                None => {
                    checkout.done();
                    self.insert(name).await?;
                    continue;
                }
                Some((_, true)) => false,
                Some((version, false)) => {
                    sqlx::query(
                        "UPDATE race_optimistic
                         SET version = version + 1, holder = ?, deadline = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
                         WHERE name = ? AND version = ?",
                    )
                    .bind(holder.as_slice())
                    .bind(i64::try_from(ttl.as_micros())?)
                    .bind(name)
                    .bind(version)
                    .execute(checkout.connection())
                    .await?
                    .rows_affected()
                        == 1
                }
            };
            checkout.done();
            return Ok(taken.then(|| Held {
                name: name.to_owned(),
                holder,
            }));
        }
    }

    async fn unlock(&self, held: Held) -> Result<()> {
        let mut checkout = self.0.checkout().await?;
        let freed = sqlx::query(
            "UPDATE race_optimistic SET version = version + 1, holder = NULL WHERE name = ? AND holder = ?",
        )
        .bind(&held.name)
        .bind(held.holder.as_slice())
        .execute(checkout.connection())
        .await?
        .rows_affected();
        checkout.done();
        if freed == 1 {
            Ok(())
        } else {
            Err("the lock was lost".into())
        }
    }

    async fn add(&self, name: &str, delta: i64) -> Result<i64> {
        let mut pause = Pause::new();
        loop {
            let mut checkout = self.0.checkout().await?;
            let row: Option<(i64, i64)> =
                sqlx::query_as("SELECT version, count FROM race_optimistic WHERE name = ?")
                    .bind(name)
                    .fetch_optional(checkout.connection())
                    .await?;
            let Some((version, count)) = row else {
                checkout.done();
                self.insert(name).await?;
                continue;
            };
            let changed = sqlx::query(
                "UPDATE race_optimistic SET version = version + 1, count = ? WHERE name = ? AND version = ?",
            )
            .bind(count + delta)
            .bind(name)
            .bind(version)
            .execute(checkout.connection())
            .await?
            .rows_affected();
            checkout.done();
            if changed == 1 {
                return Ok(count + delta);
            }
            pause.wait().await;
        }
    }

    async fn fill(&self, names: u64, held: bool) -> Result<Vec<Held>> {
        let row = if held {
            "x'00112233445566778899aabbccddeeff', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR"
        } else {
            "NULL, NULL"
        };
        bulk::insert(
            &self.0,
            "race_optimistic (name, holder, deadline)",
            names,
            row,
        )
        .await?;
        Ok(Vec::new())
    }

    async fn close(self) {
        self.0.close().await;
    }
}
