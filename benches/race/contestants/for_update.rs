//! A lock is held by an open transaction: `SELECT … FOR UPDATE` takes the row, `COMMIT` frees it.
//!
//! Nothing is written, so nothing goes to disk; each held lock occupies a connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::article::connections::{Checkout, Connections};
use super::{Contestant, Profile, Result};
use crate::arena::Arena;
use crate::mysql_error::{ER_LOCK_NOWAIT, ER_LOCK_WAIT_TIMEOUT, code};

/// `autocommit = 0` saves the `BEGIN`: the select opens the transaction. A wait ends after 1 s and is begun anew.
const SESSION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET SESSION autocommit = 0, innodb_lock_wait_timeout = 1";

const SELECT: &str = "SELECT lock_name FROM race_for_update WHERE lock_name = ? FOR UPDATE";
const SELECT_NOWAIT: &str =
    "SELECT lock_name FROM race_for_update WHERE lock_name = ? FOR UPDATE NOWAIT";

/// A row lock a lock.
#[derive(Clone)]
pub struct ForUpdate(Arc<Connections>);

impl ForUpdate {
    /// Runs `select` in a transaction that is left open when it locked the row.
    async fn take(&self, select: &'static str, name: &str) -> Result<Option<Checkout>> {
        let mut checkout = self.0.checkout().await?;
        loop {
            match sqlx::query(select)
                .bind(name)
                .fetch_optional(checkout.connection())
                .await
            {
                Ok(Some(_)) => return Ok(Some(checkout)),
                Ok(None) => {
                    // The first use of this name.
                    sqlx::query("INSERT IGNORE INTO race_for_update (lock_name) VALUES (?)")
                        .bind(name)
                        .execute(checkout.connection())
                        .await?;
                    sqlx::raw_sql("COMMIT")
                        .execute(checkout.connection())
                        .await?;
                }
                Err(error) => {
                    return match code(&error) {
                        Some(ER_LOCK_WAIT_TIMEOUT | ER_LOCK_NOWAIT) => {
                            sqlx::raw_sql("ROLLBACK")
                                .execute(checkout.connection())
                                .await?;
                            checkout.done();
                            Ok(None)
                        }
                        _ => Err(error.into()),
                    };
                }
            }
        }
    }
}

impl Contestant for ForUpdate {
    const PROFILE: Profile = Profile {
        name: "for-update",
        ..Profile::LOCK
    };

    type Held = Checkout;

    async fn prepare(arena: &Arena) -> Result<()> {
        let columns =
            "lock_name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY";
        arena.create("race_for_update", columns).await
    }

    async fn open(arena: &Arena, tasks: usize) -> Result<Self> {
        Ok(Self(arena.connect(tasks, SESSION).await?))
    }

    async fn try_lock(&self, name: &str, _ttl: Duration) -> Result<Option<Checkout>> {
        self.take(SELECT_NOWAIT, name).await
    }

    async fn lock(&self, name: &str, _ttl: Duration, until: Instant) -> Result<Option<Checkout>> {
        loop {
            let held = self.take(SELECT, name).await?;
            if held.is_some() || Instant::now() >= until {
                return Ok(held);
            }
        }
    }

    async fn unlock(&self, mut held: Checkout) -> Result<()> {
        sqlx::raw_sql("COMMIT").execute(held.connection()).await?;
        held.done();
        Ok(())
    }

    async fn close(self) {
        self.0.close().await;
    }
}
