//! Whether a counter is there: its first value, and its end.

use super::Counter;
use crate::engine::outcome::Outcome;
use crate::engine::request::Request;
use crate::error::Error;
use crate::sql::operation::{Delete, Init, Operation};
use crate::token::Token;

impl Counter {
    /// The value; `None` if the counter was never set, or was [deleted](Self::delete): so a stock that was never filled is told from one that is
    /// sold out. Each change sets it, an addition of 0 too; one that was refused does not.
    ///
    /// A counter whose [window](Self::window) has ended is `Some(0)`, until a [purge](crate::LockClient::purge) takes its row: then it is `None`.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// match locks.counter("prize:2026").get_if_set().await? {
    ///     Some(0) => println!("sold out"),
    ///     Some(left) => println!("{left} left"),
    ///     None => println!("there is no such prize"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn get_if_set(&self) -> Result<Option<i64>, Error> {
        let seen = self.client.engine.look(vec![self.key()?]).await?;
        let row = seen.first().copied().flatten();
        Ok(row.filter(|row| !row.is_unset()).map(|row| row.value()))
    }

    /// Sets the value if the counter was never set, or was [deleted](Self::delete). `true`: this call has set it. `false`: it was set, and nothing
    /// was changed, so no addition that came before is lost.
    ///
    /// Of many who call it at most one is told `true`, until the counter is deleted. Nobody is if the one that has set it gets no answer: its future was
    /// dropped, its process died, or it was told [`Error::OutcomeUnknown`]. So `false` says that there is a value, not that anybody was told
    /// `true`: do not let work that must be done depend on that answer alone.
    ///
    /// A counter with a [window](Self::window) that has ended counts as set until it is deleted, or a [purge](crate::LockClient::purge) takes its row.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let prizes = locks.counter("prize:2026");
    /// if prizes.init(1_000).await? {
    ///     println!("this process has filled the stock; the others find it filled");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set). After [`Error::OutcomeUnknown`] the value may have been set: a repeat is then told `false`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the change back: the value is set once or not at all, and nobody is told.
    pub async fn init(&self, value: i64) -> Result<bool, Error> {
        let init = Operation::Init(Init {
            token: Token::random(),
            value,
            window: self.window_micros()?,
        });
        match self.call(Request::Operation(init)).await? {
            Outcome::Counted { .. } => Ok(true),
            Outcome::OutOfBounds { .. } => Ok(false),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Deletes the counter, and gives the value that it had; `None` if it was never set. Its value is 0 then, it is not
    /// [listed](crate::LockClient::list_counters) any more, and [`init`](Self::init) can set it anew.
    ///
    /// Additions that come at the same time are not lost: each counts either before the deletion, and is in the value that this gives, or behind it,
    /// and sets the counter anew, beginning at 0. The ids of [`add_once`](Self::add_once) are not deleted: a repeat of one that was carried out
    /// before still changes nothing, and gives the value that the first one gave. An addition in a transaction that is open is waited
    /// for, whether the counter was set before or not.
    ///
    /// Of many who call it at most one is given a value, until the counter is set again. If that one gets no answer (its future was dropped, its
    /// process died, or it was told [`Error::OutcomeUnknown`]), the counter is deleted, and nobody is told its value: a repeat is given `None`. A value
    /// that must not get lost so is taken away by [`add_within_in`](Self::add_within_in), in the transaction that writes down what became of it.
    ///
    /// The row remains, as one that was never used, until a [purge](crate::LockClient::purge) takes it.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// if let Some(left) = locks.counter("prize:2025").delete().await? {
    ///     println!("{left} prizes were not drawn");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set). After [`Error::OutcomeUnknown`] it may be deleted.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the deletion back: the counter is deleted once or not at all, and nobody is told its value.
    pub async fn delete(&self) -> Result<Option<i64>, Error> {
        let delete = Operation::Delete(Delete {
            token: Token::random(),
        });
        match self.call(Request::Operation(delete)).await? {
            Outcome::Counted { previous, .. } => Ok(Some(previous)),
            Outcome::NotSet => Ok(None),
            other => Err(self.unexpected(&other)),
        }
    }
}
