//! Elections: of all who campaign one leads.
//!
//! An election is the lock of its name: leading is to hold it, with the value as its description. No leadership passes on in memory, as turns
//! of a lock may: each is a grant of its own, with its own value and token. So whatever shows locks shows leaders, and what holds
//! of a lock's lease holds of a leader's.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::{Stream, StreamExt};
use sqlx::mysql::MySqlConnection;
use tokio_util::sync::CancellationToken;

use crate::client::inner::Inner;
use crate::engine::backoff::Backoff;
use crate::error::Error;
use crate::lock::{LeaseView, LockGuard, LockRequest, MAX_DESCRIPTION, WorkOutput};
use crate::mutant::{self, Mutant};
use crate::name::Name;
use crate::watch::{Holder, LockWatch};

/// An election: made by [`LockClient::election`](crate::LockClient::election). It can be cloned and kept.
///
/// A leader is told that it leads no more before anybody else can lead, unless an operator removes it
/// ([`force_release`](crate::LockClient::force_release)); but a paused machine may not hear that in time. What must not be done by two
/// leaders verifies itself: [`Leadership::verify_in`], or the fencing token.
#[derive(Clone)]
#[must_use = "an election does nothing until somebody campaigns"]
pub struct Election {
    client: Arc<Inner>,
    name: Arc<str>,
    request: LockRequest,
}

impl Election {
    pub(crate) fn new(client: Arc<Inner>, name: &str) -> Self {
        Self {
            request: if mutant::on(Mutant::LeadershipPassesOn) {
                LockRequest::new(Arc::clone(&client), name)
            } else {
                LockRequest::new(Arc::clone(&client), name).apart()
            },
            name: name.into(),
            client,
        }
    }

    /// How long a leadership lasts if it is not renewed: so long after a leader has died, the next one leads. Defaults to 30 s, or to what the client
    /// was built with; at least 50 ms.
    ///
    /// On a server that fails over automatically, make it longer than a failover takes.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.request = self.request.ttl(ttl);
        self
    }

    /// Waits until it leads. `value` is what the others are told of it, such as its address: at most 255 characters.
    ///
    /// Candidates of one client lead in the order in which they asked; clients take turns in no promised order. Waiting holds no connection.
    ///
    /// ```no_run
    /// # async fn lead() {}
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let leadership = locks.election("scheduler").campaign("http://10.0.0.7:8080").await?;
    /// tokio::select! {
    ///     () = leadership.lost() => println!("another one may lead"),
    ///     () = lead() => leadership.resign().await?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] and [`Error::InvalidOption`] before anything is sent; [`Error::Unreachable`] when the server did not answer in
    /// time; [those of any call](Error#errors-that-any-call-may-return).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the candidacy; a leadership that is on its way is given back.
    pub async fn campaign(self, value: impl Into<String>) -> Result<Leadership, Error> {
        let value = value.into();
        if value.chars().count() > MAX_DESCRIPTION {
            return Err(Error::InvalidOption {
                option: "value",
                reason: format!("it is longer than {MAX_DESCRIPTION} characters; shorten it"),
            });
        }
        let guard = self.request.description(value).acquire().await?;
        Ok(Leadership { guard })
    }

    /// The leaders, from now on: a stream that begins with how things stand. See [`Leaders`].
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let mut leaders = locks.election("scheduler").observe()?;
    /// while let Some(leader) = leaders.next().await {
    ///     match leader? {
    ///         Some(leader) => println!("send requests to {}", leader.value),
    ///         None => println!("nobody leads"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`].
    pub fn observe(&self) -> Result<Leaders, Error> {
        let name = Name::of(Arc::clone(&self.name))?;
        let watch = LockWatch::new(Arc::clone(&self.client), name);
        Ok(Leaders { watch })
    }

    /// Runs `work` whenever it leads, until `work` ends by itself: then it resigns, and that is the result.
    ///
    /// When a leadership is lost, `work` is dropped at its next await, before anybody else can lead (unless an operator frees it by force), and it campaigns again. It also campaigns
    /// again, after a pause of at most a second or so, when the server cannot be reached, or another error [may pass](Error::is_retryable).
    ///
    /// ```no_run
    /// # async fn schedule() {}
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let stop = tokio_util::sync::CancellationToken::new();
    /// let election = locks.election("scheduler");
    /// election
    ///     .lead("host 7", async |leadership| {
    ///         println!("leads with token {}", leadership.fencing_token());
    ///         while stop.run_until_cancelled(schedule()).await.is_some() {}
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// That of `work`, after it has resigned; otherwise those of [`campaign`](Self::campaign) that do not pass.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`, and resigns in the background. A panic in `work` does so too.
    pub async fn lead<F, O>(
        self,
        value: impl Into<String>,
        mut work: impl FnMut(LeaseView) -> F,
    ) -> Result<O::Value, O::Error>
    where
        F: Future<Output = O>,
        O: WorkOutput,
    {
        let value = value.into();
        let mut pauses = Backoff::connecting();
        loop {
            let leadership = match self.clone().campaign(value.clone()).await {
                Ok(leadership) => leadership,
                Err(error) if error.is_retryable() => {
                    tracing::debug!(election = %self.name, %error, "cannot campaign; trying again");
                    tokio::time::sleep(pauses.delay()).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            pauses.reset();
            let work = work(leadership.view());
            let output = tokio::select! {
                // A leadership that is lost in the same moment counts as lost.
                biased;
                () = leadership.lost(), if !mutant::on(Mutant::LeaderWorksOn) => None,
                output = work => Some(output),
            };
            // By now the work is dropped.
            let Some(output) = output else { continue };
            if let Err(error) = leadership.resign().await {
                tracing::warn!(election = %self.name, error = %error.in_full(), "a leader did not resign");
            }
            return output.into_result();
        }
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Election").field(&self.name).finish()
    }
}

/// Leads, until it resigns or is dropped, or its lease is lost.
///
/// Dropping it resigns in the background. It is renewed as long as it is there.
#[must_use = "if unused, it resigns at once"]
pub struct Leadership {
    guard: LockGuard,
}

impl Leadership {
    /// The fencing token: it rises with every leader. See [`LockGuard::fencing_token`].
    pub fn fencing_token(&self) -> u64 {
        self.guard.fencing_token()
    }

    /// Whether it leads, as far as this process can know: see [`LockGuard::is_held`].
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Resolves when it leads no more: its lease was not renewed in time, or somebody removed it. See [`LockGuard::lost`].
    ///
    /// # Cancel safety
    ///
    /// It can be dropped and called again.
    pub async fn lost(&self) {
        self.guard.lost().await;
    }

    /// The same signal as a token, for tasks that work for the leader: see [`LockGuard::cancellation_token`].
    pub fn cancellation_token(&self) -> CancellationToken {
        self.guard.cancellation_token()
    }

    /// What of the leadership can be shared.
    pub fn view(&self) -> LeaseView {
        self.guard.view()
    }

    /// Verifies, in a transaction of the caller's, that it leads, and keeps it so until that ends: nobody else leads before, so the commit is the
    /// leader's. See [`LockGuard::verify_in`].
    ///
    /// # Errors
    ///
    /// As [`LockGuard::verify_in`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: see [dropped calls in a transaction](crate::LockClient#dropped-calls-in-a-transaction).
    pub async fn verify_in(&self, connection: &mut MySqlConnection) -> Result<(), Error> {
        self.guard.verify_in(connection).await
    }

    /// Leads no more, and waits until that is certain: a candidate that waits may lead at once.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`]: [`Error::LockLost`] if it had not led to the end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the resignation back.
    pub async fn resign(self) -> Result<(), Error> {
        self.guard.release().await
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("name", &self.guard.name())
            .field("fencing_token", &self.fencing_token())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Leader {
    /// What it said when it [campaigned](Election::campaign).
    pub value: String,
    /// Who it is: `host/pid`, or what its client was built with.
    pub held_by: String,
    /// Its fencing token: the next leader's is higher. Of a holder that took the lock of this name and did not campaign, the
    /// highest that its lease reserves: its own may be lower.
    pub fencing_token: u64,
    /// Since when it leads, by the server's clock. Where that clock went back, it may be later.
    pub since: DateTime<Utc>,
}

impl Leader {
    fn of(holder: Holder) -> Self {
        Self {
            value: holder.description,
            held_by: holder.held_by,
            fencing_token: holder.highest_fencing_token,
            since: holder.since,
        }
    }
}

/// The leaders of an election: a stream, made by [`Election::observe`].
///
/// It begins with how things stand: an item is `None` while nobody leads, or the [`Leader`]. Each change is told at most a look later; what
/// lies between two looks may be skipped, such as that nobody led. Outages, errors and the end are as those of a [`LockWatch`].
#[derive(Debug)]
pub struct Leaders {
    watch: LockWatch,
}

impl Leaders {
    /// How things stand, at first; then each change. `None` when the client was closed.
    ///
    /// # Errors
    ///
    /// As [`LockWatch::next`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the next call goes on.
    pub async fn next(&mut self) -> Option<Result<Option<Leader>, Error>> {
        StreamExt::next(self).await
    }
}

impl Stream for Leaders {
    type Item = Result<Option<Leader>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let told = self.watch.poll_next_unpin(context);
        // Who holds the lock of that name shared does not lead.
        let leader = |holder: Option<Holder>| holder.filter(|holder| !holder.is_shared);
        told.map(|told| told.map(|told| told.map(|holder| leader(holder).map(Leader::of))))
    }
}
