//! Counters in a transaction of the caller's.

use sqlx::Row;
use sqlx::mysql::MySqlConnection;

use super::sending::{elsewhere, execute, expect_here, outside, send};
use crate::counter::Counter;
use crate::error::Error;
use crate::sql::transaction::{self, Verdict};

impl Counter {
    /// Adds `delta` in the caller's transaction, and gives the new value: it counts when that commits,
    /// and not otherwise. Holds the counter until then: call it last.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient, pool: sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// // … the application's own statements …
    /// let number = locks.counter("order").add_in(&mut tx, 1).await?; // late: the counter stays locked until the commit
    /// sqlx::query("INSERT INTO shop_order (number) VALUES (?)").bind(number).execute(&mut *tx).await?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Overflow`], when nothing was changed; [`Error::Busy`] when another transaction holds the
    /// counter for too long, [`Error::Interrupted`] when the server undid the statement, or somebody has deleted the
    /// counter's row: roll back, and run the transaction again; [`Error::NoTransaction`] if the connection is in none, and [`Error::OtherDatabase`]
    /// if its current database is not the client's: nothing was changed; [`Error::InvalidName`], [`Error::StaleSnapshot`]; [those of any call](Error#errors-that-any-call-may-return).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: see [dropped calls in a transaction](crate::LockClient#dropped-calls-in-a-transaction).
    pub async fn add_in(&self, connection: &mut MySqlConnection, delta: i64) -> Result<i64, Error> {
        match self
            .change_in(connection, delta, (i64::MIN, i64::MAX))
            .await?
        {
            Some(value) => Ok(value),
            None => Err(Error::Overflow {
                name: self.name().to_owned(),
                value: self.get_in(connection).await?,
                delta,
            }),
        }
    }

    /// Adds `delta` in the caller's transaction if the result lies within `range`, and gives the new
    /// value; otherwise changes nothing and gives `None`. Call it last: the counter stays locked until the commit. The range is this call's alone.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient, pool: sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// sqlx::query("INSERT INTO winner (name) VALUES ('ada')").execute(&mut *tx).await?;
    /// match locks.counter("prize:2026").add_within_in(&mut tx, -1, 0..).await? {
    ///     Some(left) => {
    ///         tx.commit().await?;
    ///         println!("a prize; {left} left");
    ///     }
    ///     None => tx.rollback().await?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`add_in`](Self::add_in), but never [`Error::Overflow`]; [`Error::InvalidOption`] for an empty
    /// range.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: see [dropped calls in a transaction](crate::LockClient#dropped-calls-in-a-transaction).
    pub async fn add_within_in(
        &self,
        connection: &mut MySqlConnection,
        delta: i64,
        range: impl std::ops::RangeBounds<i64>,
    ) -> Result<Option<i64>, Error> {
        let range = crate::range::bounds(&range)?;
        self.change_in(connection, delta, range).await
    }

    /// The value, in the caller's transaction: nobody else changes it before that ends.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient, pool: sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// let left = locks.counter("prize:2026").get_in(&mut tx).await?;
    /// sqlx::query("INSERT INTO report (prizes_left) VALUES (?)").bind(left).execute(&mut *tx).await?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`add_in`](Self::add_in), but never [`Error::Overflow`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: see [dropped calls in a transaction](crate::LockClient#dropped-calls-in-a-transaction).
    pub async fn get_in(&self, connection: &mut MySqlConnection) -> Result<i64, Error> {
        let key = self.key()?;
        self.client().touch(&key).await?;
        let home = self.client().engine.home().await?;
        let packet = transaction::get(&home, key.name.as_str());
        let (_, row) = send(&mut *connection, &home, packet, &[&key.name]).await?;
        let Some(row) = row else {
            expect_here(connection, &home, &key.name).await?;
            return Err(self.client().interrupted(&key));
        };
        let column = |column: usize| row.try_get_unchecked(column).map_err(Error::from_sqlx);
        let (value, is_inside, is_here) = (column(0)?, column(1)?, column(2)?);
        if is_here == 0 {
            Err(elsewhere(&home, &key.name))
        } else if is_inside == 0 {
            Err(outside(&key.name))
        } else {
            Ok(value)
        }
    }

    async fn change_in(
        &self,
        connection: &mut MySqlConnection,
        delta: i64,
        (low, high): (i64, i64),
    ) -> Result<Option<i64>, Error> {
        let key = self.key()?;
        let window = self.window_micros()?;
        let Some(from) = crate::range::start_range(delta, low, high) else {
            return Ok(None);
        };
        self.client().touch(&key).await?;
        let home = self.client().engine.home().await?;
        let change = transaction::add(&home, key.name.as_str(), delta, from, window);
        match execute(connection, &home, &change, &key.name).await? {
            Verdict::Changed(value) => Ok(Some(value.cast_signed())),
            Verdict::Refused => Ok(None),
            Verdict::Outside | Verdict::Elsewhere | Verdict::Unknown => {
                Err(self.client().interrupted(&key))
            }
        }
    }
}
