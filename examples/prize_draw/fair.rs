//! The same with tag-lock: what is read under the participant's lock stays true until it is released, and the stock
//! is a counter that never falls below zero.

use sqlx::mysql::MySqlPool;
use tag_lock::LockClient;

use crate::{Result, careless, office};

/// The name of a participant's lock.
pub(crate) fn lock_name(participant: u32) -> String {
    format!("prize_draw:participant:{participant}")
}

/// One click. Whether it won a prize.
pub(crate) async fn draw(locks: &LockClient, pool: &MySqlPool, participant: u32) -> Result<bool> {
    let guard = locks.lock(&lock_name(participant)).acquire().await?;
    let has: i32 = sqlx::query_scalar("SELECT prizes FROM prize_draw_participant WHERE id = ?")
        .bind(participant)
        .fetch_one(pool)
        .await?;
    let wins = has == 0
        && locks
            .counter(office::STOCK)
            .add_within(-1, 0..)
            .await?
            .is_some();
    if wins {
        careless::give(pool, participant).await?;
    }
    guard.release().await?;
    Ok(wins)
}
