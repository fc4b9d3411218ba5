//! The same with tag-lock: what is read under the participant's lock stays true until it is released, and the stock
//! is a counter that never falls below zero.
//!
//! The piece is taken first, in a commit that many clicks share, and the winner is written afterwards. A process that dies in between has taken a
//! prize that nobody gets: never one too many, but one too few. Where that must not be, take the piece in the transaction that writes the
//! winner, as `examples/stock_and_order.rs` does: then both are committed, or neither. All buyers wait for each other's commit there.

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
