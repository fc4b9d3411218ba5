//! The application's own tables, and the books after a draw.

use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use tag_lock::{AtClose, LockClient};

use crate::{PARTICIPANTS, PRIZES, Result, Way};

/// The counter that tag-lock draws from.
pub(crate) const STOCK: &str = "prize_draw:stock";

/// What stands in the database after a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Books {
    /// Prizes that are left.
    pub(crate) left: i64,
    /// Participants who won.
    pub(crate) winners: i64,
    /// Prizes that participants have.
    pub(crate) prizes: i64,
}

/// Sets up draws and looks into the books.
pub(crate) struct Office {
    pool: MySqlPool,
    locks: LockClient,
}

pub(crate) async fn open(url: &str) -> Result<Office> {
    let locks = LockClient::connect(url).await?;
    locks.migrate().await?;
    let pool = pool(url, 1).await?;
    sqlx::raw_sql(
        "DROP TABLE IF EXISTS prize_draw_stock, prize_draw_participant;
         CREATE TABLE prize_draw_stock (id INT PRIMARY KEY, amount BIGINT NOT NULL);
         CREATE TABLE prize_draw_participant (id INT UNSIGNED PRIMARY KEY, prizes INT NOT NULL);
         INSERT INTO prize_draw_stock VALUES (1, 0)",
    )
    .execute(&pool)
    .await?;
    Ok(Office { pool, locks })
}

/// The application's pool, with `connections` connections.
pub(crate) async fn pool(url: &str, connections: u32) -> Result<MySqlPool> {
    Ok(MySqlPoolOptions::new()
        .max_connections(connections)
        .connect(url)
        .await?)
}

impl Office {
    /// All prizes in stock, no winner yet.
    pub(crate) async fn stock_up(&self) -> Result<()> {
        self.locks.counter(STOCK).set(PRIZES).await?;
        sqlx::query("UPDATE prize_draw_stock SET amount = ?")
            .bind(PRIZES)
            .execute(&self.pool)
            .await?;
        sqlx::query("DELETE FROM prize_draw_participant")
            .execute(&self.pool)
            .await?;
        let mut transaction = self.pool.begin().await?;
        for participant in 0..PARTICIPANTS {
            sqlx::query("INSERT INTO prize_draw_participant VALUES (?, 0)")
                .bind(participant)
                .execute(&mut *transaction)
                .await?;
        }
        Ok(transaction.commit().await?)
    }

    /// The books after a draw.
    pub(crate) async fn books(&self, way: Way) -> Result<Books> {
        let left = match way {
            Way::Careless => {
                sqlx::query_scalar("SELECT amount FROM prize_draw_stock")
                    .fetch_one(&self.pool)
                    .await?
            }
            Way::TagLock => self.locks.counter(STOCK).get().await?,
        };
        let (winners, prizes) = sqlx::query_as(
            "SELECT COUNT(NULLIF(prizes, 0)), CAST(SUM(prizes) AS SIGNED) FROM prize_draw_participant",
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(Books {
            left,
            winners,
            prizes,
        })
    }

    /// Leaves nothing of the draw behind but lock rows, which a purge takes, and the counter.
    pub(crate) async fn close(self) -> Result<()> {
        sqlx::raw_sql("DROP TABLE prize_draw_stock, prize_draw_participant")
            .execute(&self.pool)
            .await?;
        self.locks.close(AtClose::Release).await;
        self.pool.close().await;
        Ok(())
    }
}
