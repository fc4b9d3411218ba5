//! The careless way: read, decide, write. What was read may be wrong by the time of the write.

use sqlx::mysql::MySqlPool;

use crate::Result;

/// One click. Whether it won a prize.
pub(crate) async fn draw(pool: &MySqlPool, participant: u32) -> Result<bool> {
    let has: i32 = sqlx::query_scalar("SELECT prizes FROM prize_draw_participant WHERE id = ?")
        .bind(participant)
        .fetch_one(pool)
        .await?;
    let left: i64 = sqlx::query_scalar("SELECT amount FROM prize_draw_stock WHERE id = 1")
        .fetch_one(pool)
        .await?;
    if has > 0 || left == 0 {
        return Ok(false);
    }
    sqlx::query("UPDATE prize_draw_stock SET amount = ? WHERE id = 1")
        .bind(left - 1)
        .execute(pool)
        .await?;
    give(pool, participant).await?;
    Ok(true)
}

/// Writes down that the participant has one more prize.
pub(crate) async fn give(pool: &MySqlPool, participant: u32) -> Result<()> {
    sqlx::query("UPDATE prize_draw_participant SET prizes = prizes + 1 WHERE id = ?")
        .bind(participant)
        .execute(pool)
        .await?;
    Ok(())
}
