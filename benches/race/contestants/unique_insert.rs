//! A lock is a row: inserting it takes the lock, deleting it frees it, the unique index refuses the second.

use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use tokio::time::Instant;

use super::article::connections::Connections;
use super::{Contestant, POOL, Profile, READ_COMMITTED, Result};
use crate::arena::Arena;
use crate::bulk;
use crate::mysql_error::{ER_DUP_ENTRY, ER_LOCK_DEADLOCK, code};
use crate::pause::Pause;
use crate::token::Token;

/// Insert and delete, each an autocommit statement.
#[derive(Clone)]
pub struct UniqueInsert(Arc<Connections>);

/// Whose row, and which.
pub struct Held {
    name: String,
    holder: Token,
}

impl Contestant for UniqueInsert {
    const PROFILE: Profile = Profile {
        name: "unique-insert",
        fills: true,
        ..Profile::LOCK
    };

    type Held = Held;

    async fn prepare(arena: &Arena) -> Result<()> {
        arena
            .create(
                "race_unique",
                "lock_name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
                 holder BINARY(16) NOT NULL,
                 deadline DATETIME(6) NOT NULL",
            )
            .await
    }

    async fn open(arena: &Arena, tasks: usize) -> Result<Self> {
        Ok(Self(arena.connect(tasks.min(POOL), READ_COMMITTED).await?))
    }

    async fn try_lock(&self, name: &str, ttl: Duration) -> Result<Option<Held>> {
        let holder = Token::new();
        let mut pause = Pause::new();
        loop {
            let mut checkout = self.0.checkout().await?;
            let taken = take(checkout.connection(), name, holder, ttl).await;
            match taken {
                Ok(taken) => {
                    checkout.done();
                    return Ok(taken.then(|| Held {
                        name: name.to_owned(),
                        holder,
                    }));
                }
                Err(error) if code(&error) == Some(ER_LOCK_DEADLOCK) => checkout.done(),
                Err(error) => return Err(error.into()),
            }
            pause.wait().await;
        }
    }

    async fn lock(&self, name: &str, ttl: Duration, until: Instant) -> Result<Option<Held>> {
        let mut pause = Pause::new();
        loop {
            if let Some(held) = self.try_lock(name, ttl).await? {
                return Ok(Some(held));
            }
            // A plain read locks nothing, so that those who wait do not stand in the holder's way.
            loop {
                if Instant::now() >= until {
                    return Ok(None);
                }
                pause.wait().await;
                let mut checkout = self.0.checkout().await?;
                let held = is_held(checkout.connection(), name).await?;
                checkout.done();
                if !held {
                    break;
                }
            }
        }
    }

    async fn unlock(&self, held: Held) -> Result<()> {
        let mut pause = Pause::new();
        loop {
            let mut checkout = self.0.checkout().await?;
            let deleted = sqlx::query("DELETE FROM race_unique WHERE lock_name = ? AND holder = ?")
                .bind(&held.name)
                .bind(held.holder.as_slice())
                .execute(checkout.connection())
                .await;
            match deleted {
                Ok(result) => {
                    checkout.done();
                    return if result.rows_affected() == 1 {
                        Ok(())
                    } else {
                        Err("the lock was lost".into())
                    };
                }
                Err(error) if code(&error) == Some(ER_LOCK_DEADLOCK) => checkout.done(),
                Err(error) => return Err(error.into()),
            }
            pause.wait().await;
        }
    }

    async fn fill(&self, names: u64, _held: bool) -> Result<Vec<Held>> {
        let row = "x'00112233445566778899aabbccddeeff', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR";
        bulk::insert(
            &self.0,
            "race_unique (lock_name, holder, deadline)",
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

/// Inserts the row, or takes over one whose deadline has passed.
async fn take(
    connection: &mut MySqlConnection,
    name: &str,
    holder: Token,
    ttl: Duration,
) -> sqlx::Result<bool> {
    let ttl = i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX);
    let inserted = sqlx::query(
        "INSERT INTO race_unique (lock_name, holder, deadline)
         VALUES (?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)",
    )
    .bind(name)
    .bind(holder.as_slice())
    .bind(ttl)
    .execute(&mut *connection)
    .await;
    match inserted {
        Ok(_) => return Ok(true),
        Err(error) if code(&error) == Some(ER_DUP_ENTRY) => {}
        Err(error) => return Err(error),
    }
    if is_held(connection, name).await? {
        return Ok(false);
    }
    let taken_over = sqlx::query(
        "UPDATE race_unique SET holder = ?, deadline = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
         WHERE lock_name = ? AND deadline <= UTC_TIMESTAMP(6)",
    )
    .bind(holder.as_slice())
    .bind(ttl)
    .bind(name)
    .execute(connection)
    .await?;
    Ok(taken_over.rows_affected() == 1)
}

async fn is_held(connection: &mut MySqlConnection, name: &str) -> sqlx::Result<bool> {
    let held: Option<i64> = sqlx::query_scalar(
        "SELECT 1 FROM race_unique WHERE lock_name = ? AND deadline > UTC_TIMESTAMP(6)",
    )
    .bind(name)
    .fetch_optional(connection)
    .await?;
    Ok(held.is_some())
}
