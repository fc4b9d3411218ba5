//! Counters: 64-bit values that are never over- or undershot.

mod info;
mod life;

use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

pub use self::info::CounterInfo;
use crate::client::inner::Inner;
use crate::clock::micros;
use crate::engine::outcome::Outcome;
use crate::engine::request::Request;
use crate::error::Error;
use crate::name::Name;
use crate::range::{bounds, start_range};
use crate::sql::operation::{Count, CounterChange, Once, Operation};
use crate::sql::row::RowKey;
use crate::timing::MAX_DURATION;
use crate::token::Token;

/// A counter: a signed 64-bit value in the table, 0 until it is changed.
///
/// A counter has no bounds of its own, but those of 64 bits: a range belongs to the call, as in [`add_within`](Self::add_within).
/// [`add`](Self::add), [`set`](Self::set), [`reset`](Self::reset) and [`compare_exchange`](Self::compare_exchange) know none. Where a stock must not
/// fall below zero, let everybody take from it by `add_within(-1, 0..)`.
///
/// Additions to one counter that come while others are in flight travel together, and every caller
/// gets its own exact value: as a sequence, [`add(1)`](Self::add) gives out distinct numbers.
///
/// It has the client in it: it can be cloned, kept in a struct, and handed to another task.
///
/// ```no_run
/// # async fn example(locks: tag_lock::LockClient) -> Result<(), Box<dyn std::error::Error>> {
/// let tickets = locks.counter("ticket");
/// let ticket = tokio::spawn({
///     let tickets = tickets.clone();
///     async move { tickets.add(1).await }
/// });
/// println!("{}", ticket.await??);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Counter {
    client: Arc<Inner>,
    name: Arc<str>,
    window: Duration,
    retention: Duration,
}

/// How long the id of an operation is remembered, unless the counter says otherwise.
const RETENTION: Duration = Duration::from_secs(86_400);
/// An id must not be forgotten while the packet that brought it is still on its way.
const MIN_RETENTION: Duration = Duration::from_secs(60);

impl Counter {
    pub(crate) fn new(client: Arc<Inner>, name: &str) -> Self {
        Self {
            client,
            name: name.into(),
            window: Duration::ZERO,
            retention: RETENTION,
        }
    }

    /// Makes the value start again at 0 when a window of this length has ended, by the server's clock.
    /// A window begins with the first change after the last one ended. Defaults to no window.
    ///
    /// Windows are fixed, and do not slide: around the end of one up to twice as many changes may pass as in one. The window is not stored as a
    /// setting: each call is made with the window of its caller, so all callers must name the same.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// use std::time::Duration;
    ///
    /// // At most five requests in a window of one second, of all processes together: at most ten in any one second.
    /// let requests = locks.counter("requests:ada").window(Duration::from_secs(1));
    /// let may_pass = requests.add_within(1, ..=5).await?.is_some();
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// How long [`add_once`](Self::add_once) remembers an operation's id. Defaults to 24 h; at least
    /// one minute.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// The counter's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let left = locks.counter("prize:2026").get().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; [those of any call](Error#errors-that-any-call-may-return).
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn get(&self) -> Result<i64, Error> {
        Ok(self.get_if_set().await?.unwrap_or_default())
    }

    /// Adds `delta`, and gives the new value.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let ticket = locks.counter("ticket").add(1).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Overflow`] when the sum does not fit into 64 bits: nothing was changed.
    /// [`Error::Busy`] when a transaction holds the counter's row for too long;
    /// [`Error::OutcomeUnknown`] when the connection broke and could not be mended in time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the addition back.
    pub async fn add(&self, delta: i64) -> Result<i64, Error> {
        let window = self.window_micros()?;
        match self.call(Request::Add { delta, window }).await? {
            Outcome::Counted { value, .. } => Ok(value),
            Outcome::OutOfBounds { value } => Err(Error::Overflow {
                name: self.name.to_string(),
                value,
                delta,
            }),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Adds `delta` if the result lies within `range`, and gives the new value; otherwise changes
    /// nothing and gives `None`. The range is this call's alone: the counter does not keep it, and other calls do not know it.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// match locks.counter("prize:2026").add_within(-1, 0..).await? {
    ///     Some(left) => println!("a prize; {left} left"),
    ///     None => println!("none left"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for an empty range; otherwise as [`add`](Self::add), but never
    /// [`Error::Overflow`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the addition back.
    pub async fn add_within(
        &self,
        delta: i64,
        range: impl RangeBounds<i64>,
    ) -> Result<Option<i64>, Error> {
        let (low, high) = bounds(&range)?;
        let window = self.window_micros()?;
        let request = Request::AddWithin {
            delta,
            low,
            high,
            window,
        };
        match self.call(request).await? {
            Outcome::Counted { value, .. } => Ok(Some(value)),
            Outcome::OutOfBounds { .. } => Ok(None),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Adds `delta` once for this operation id, and gives the new value. A repeat, from any process and
    /// within the [retention](Self::retention), changes nothing and gives the value that the first one
    /// gave: the caller's own idempotency key, for requests that may come twice.
    ///
    /// Ids are names, shared by all counters: 1 to 255 characters that do not end in a space.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let first = locks.counter("ticket").add_once("order 42", 1).await?;
    /// let again = locks.counter("ticket").add_once("order 42", 1).await?;
    /// assert_eq!(first, again);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::OperationMismatch`] if the id was used with another counter, delta or range;
    /// [`Error::Overflow`], also for each repeat; otherwise as [`add`](Self::add). After any error it
    /// may be repeated.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the addition back; a repeat tells.
    pub async fn add_once(&self, operation_id: &str, delta: i64) -> Result<i64, Error> {
        match self.once(operation_id, delta, (i64::MIN, i64::MAX)).await? {
            Outcome::Counted { value, .. } => Ok(value),
            Outcome::OutOfBounds { value } => Err(Error::Overflow {
                name: self.name.to_string(),
                value,
                delta,
            }),
            other => Err(self.unexpected(&other)),
        }
    }

    /// As [`add_once`](Self::add_once), if the result lies within `range`; otherwise nothing is changed
    /// and `None` is the result, for each repeat too.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let prize = locks.counter("prize:2026").add_once_within("click 42", -1, 0..).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`add_once`](Self::add_once), but never [`Error::Overflow`]; [`Error::InvalidOption`] for an
    /// empty range.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the addition back; a repeat tells.
    pub async fn add_once_within(
        &self,
        operation_id: &str,
        delta: i64,
        range: impl RangeBounds<i64>,
    ) -> Result<Option<i64>, Error> {
        let range = bounds(&range)?;
        match self.once(operation_id, delta, range).await? {
            Outcome::Counted { value, .. } => Ok(Some(value)),
            Outcome::OutOfBounds { .. } => Ok(None),
            other => Err(self.unexpected(&other)),
        }
    }

    async fn once(
        &self,
        operation_id: &str,
        delta: i64,
        (low, high): (i64, i64),
    ) -> Result<Outcome, Error> {
        let id = Name::new(operation_id)?;
        let counter = self.key()?;
        if self.retention < MIN_RETENTION || self.retention > MAX_DURATION {
            return Err(Error::InvalidOption {
                option: "retention",
                reason: format!("use at least {MIN_RETENTION:?} and at most {MAX_DURATION:?}"),
            });
        }
        // The numbers come first: whatever the name is, no two meanings make one text.
        let meaning = format!("{delta}\0{low}\0{high}\0{}", self.name);
        let (from, to) = start_range(delta, low, high).unwrap_or((1, 0));
        let once = Operation::Once(Once {
            token: Token::of_text(&meaning),
            counter,
            delta,
            from,
            to,
            window: self.window_micros()?,
            retention: micros(self.retention),
        });
        let engine = &self.client.engine;
        let answer = engine
            .call(RowKey::once(id), Request::Operation(once))
            .await?;
        match answer.outcome {
            Outcome::Mismatch => Err(Error::OperationMismatch {
                id: operation_id.to_owned(),
            }),
            outcome => Ok(outcome),
        }
    }

    /// Sets the value, and gives the one before.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let before = locks.counter("prize:2026").set(1_000).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add), but never [`Error::Overflow`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the change back.
    pub async fn set(&self, value: i64) -> Result<i64, Error> {
        let change = self.change(i64::MIN..=i64::MAX, value, false)?;
        self.previous(change).await
    }

    /// Sets the value to 0 and begins a new window; gives the value before.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let served = locks.counter("requests:ada").reset().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the change back.
    pub async fn reset(&self) -> Result<i64, Error> {
        let change = self.change(i64::MIN..=i64::MAX, 0, true)?;
        self.previous(change).await
    }

    /// Sets the value to `new` if it is `expected`. As in [`std::sync::atomic`]: `Ok` has the value
    /// before, `Err` the value that was found instead.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// match locks.counter("schema").compare_exchange(6, 7).await? {
    ///     Ok(_) => println!("from 6 to 7"),
    ///     Err(found) => println!("it was {found}: nothing was changed"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the change back.
    pub async fn compare_exchange(
        &self,
        expected: i64,
        new: i64,
    ) -> Result<Result<i64, i64>, Error> {
        let change = self.change(expected..=expected, new, false)?;
        match self.call(change).await? {
            Outcome::Counted { previous, .. } => Ok(Ok(previous)),
            Outcome::OutOfBounds { value } => Ok(Err(value)),
            other => Err(self.unexpected(&other)),
        }
    }

    fn change(
        &self,
        when: std::ops::RangeInclusive<i64>,
        value: i64,
        restart: bool,
    ) -> Result<Request, Error> {
        Ok(Request::Operation(Operation::Count(Count {
            token: Token::random(),
            low: *when.start(),
            high: *when.end(),
            change: CounterChange::Set { value },
            window: self.window_micros()?,
            restart,
        })))
    }

    async fn previous(&self, request: Request) -> Result<i64, Error> {
        match self.call(request).await? {
            Outcome::Counted { previous, .. } => Ok(previous),
            other => Err(self.unexpected(&other)),
        }
    }

    async fn call(&self, request: Request) -> Result<Outcome, Error> {
        let key = self.key()?;
        let answer = self.client.engine.call(key, request).await?;
        Ok(answer.outcome)
    }

    pub(crate) fn client(&self) -> &Inner {
        &self.client
    }

    pub(crate) fn key(&self) -> Result<RowKey, Error> {
        Ok(RowKey::counter(Name::of(Arc::clone(&self.name))?))
    }

    pub(crate) fn window_micros(&self) -> Result<i64, Error> {
        if self.window > MAX_DURATION {
            return Err(Error::InvalidOption {
                option: "window",
                reason: format!("{:?} is longer than {MAX_DURATION:?}", self.window),
            });
        }
        Ok(micros(self.window))
    }

    fn unexpected(&self, outcome: &Outcome) -> Error {
        tracing::error!(
            counter = %self.name,
            ?outcome,
            "an outcome that no counter has"
        );
        Error::OutcomeUnknown {
            name: self.name.to_string(),
        }
    }
}
