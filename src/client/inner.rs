//! What a client, its clones, and all that is asked of them share.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Row;
use sqlx::mysql::MySqlConnectOptions;
use tracing::Instrument;

use crate::clock::Moment;
use crate::counter::CounterInfo;
use crate::engine::Engine;
use crate::engine::outcome::Outcome;
use crate::engine::request::Request;
use crate::error::Error;
use crate::inspect::{self, For, LockInfo, LockState};
use crate::lock::LockGuard;
use crate::lock::registry::door::Closed;
use crate::lock::registry::in_use::InUse;
use crate::lock::registry::turn::Turn;
use crate::lock::registry::{Entered, InVain, Locks};
use crate::lock::terms::{Terms, Wait};
use crate::metric;
use crate::name::{MAX_CHARS, Name};
use crate::purge::Purger;
use crate::sql::inspect as query;
use crate::sql::operation::{ForceRelease, Operation};
use crate::sql::reply::RowState;
use crate::sql::row::{Kind, RowKey};
use crate::telemetry;
use crate::timing::ANSWER;
use crate::token::Token;
use crate::touched::Touched;
use crate::watch::Watches;

/// How long a look at the holder may take when a wait has ended in vain.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) struct Inner {
    pub(crate) in_use: Arc<InUse>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) connect: MySqlConnectOptions,
    pub(crate) default_ttl: Duration,
    pub(crate) linger: Duration,
    pub(crate) packet_timeout: Duration,
    pub(crate) touched: Touched,
    pub(crate) watches: Arc<Watches>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the connect options: they have the password.
        f.debug_struct("LockClient")
            .field("host", &self.connect.get_host())
            .field("database", &self.connect.get_database())
            .finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn purger(&self) -> Purger {
        Purger {
            connect: self.connect.clone(),
            limit: self.packet_timeout,
        }
    }

    /// What stands in the table about a lock, or about a slot of a job.
    pub(crate) async fn inspect(&self, key: &RowKey) -> Result<Option<LockInfo>, Error> {
        let mut found = self.show(query::one(key)).await?;
        Ok(found.pop())
    }

    /// The locks that are taken and whose names begin so, in the order of their names, behind `after`.
    pub(super) async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<LockInfo>, Error> {
        let mut found = Vec::new();
        // No name is so long; nor should it have to fit into a packet.
        if prefix.chars().nth(MAX_CHARS).is_some() {
            return Ok(found);
        }
        let mut after = after.map(str::to_owned);
        loop {
            let end = self.end_of_step(prefix, after.as_deref()).await?;
            let left = limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
            let taken = query::taken(prefix, after.as_deref(), end.as_deref(), left);
            let taken = self.show(taken).await?;
            let full = taken.len() >= usize::try_from(left).unwrap_or(usize::MAX);
            let last = taken.last().map(|info| info.name.clone());
            found.extend(
                taken
                    .into_iter()
                    .filter(|info| info.state != LockState::Free),
            );
            if (end.is_none() && !full)
                || found.len() >= usize::try_from(limit).unwrap_or(usize::MAX)
            {
                return Ok(found);
            }
            // Some of a full page were free: it goes on behind it.
            after = if full { last } else { end };
        }
    }

    /// The counters that were set and whose names begin so, in the order of their names, behind `after`.
    pub(super) async fn list_counters(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<CounterInfo>, Error> {
        let mut found = Vec::new();
        // No name is so long; nor should it have to fit into a packet.
        if prefix.chars().nth(MAX_CHARS).is_some() {
            return Ok(found);
        }
        let mut after = after.map(str::to_owned);
        loop {
            let end = self.end_of_step(prefix, after.as_deref()).await?;
            let left = limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
            let sql = query::counters(prefix, after.as_deref(), end.as_deref(), left);
            for row in self.engine.show(sql).await? {
                found.push(CounterInfo::from_row(&row).map_err(Error::from_sqlx)?);
            }
            if end.is_none() || found.len() >= usize::try_from(limit).unwrap_or(usize::MAX) {
                return Ok(found);
            }
            after = end;
        }
    }

    /// The name up to which a list looks in one query.
    async fn end_of_step(
        &self,
        prefix: &str,
        after: Option<&str>,
    ) -> Result<Option<String>, Error> {
        let end = query::end_of_step(prefix, after);
        let end = self.engine.show(end).await?;
        end.first()
            .map(|row| row.try_get_unchecked(0))
            .transpose()
            .map_err(Error::from_sqlx)
    }

    pub(crate) async fn show(&self, sql: String) -> Result<Vec<LockInfo>, Error> {
        inspect::read(&self.engine, sql, For::People).await
    }

    /// Frees a row, whoever holds it. Whether it was taken.
    pub(crate) async fn force_release(&self, key: RowKey) -> Result<bool, Error> {
        loop {
            // What was held shared may be held otherwise by the time that it is to be freed.
            if let Some(freed) = self.try_force_release(&key).await? {
                return Ok(freed);
            }
        }
    }

    /// The same; `None` if the row was seen held shared, and is not any more.
    async fn try_force_release(&self, key: &RowKey) -> Result<Option<bool>, Error> {
        let seen = match key.kind {
            Kind::Lock => {
                self.locks
                    .look_at_locks(std::slice::from_ref(&key.name))
                    .await?
            }
            _ => self.engine.look(vec![key.clone()]).await?,
        };
        let Some(row) = seen.first().copied().flatten() else {
            return Ok(Some(false));
        };
        if row.is_free() {
            return Ok(Some(false));
        }
        if row.is_shared() {
            return match self.locks.close_door(&key.name, true).await? {
                Closed::Yes => {
                    tracing::warn!(lock = %key.name, "the shared holds of a lock were released by force");
                    Ok(Some(true))
                }
                Closed::NotShared => Ok(None),
                Closed::StillHeld => Err(Error::Busy {
                    name: key.name.to_string(),
                }),
            };
        }
        let operation = Operation::ForceRelease(ForceRelease {
            token: Token::random(),
            fence: row.fence,
        });
        let name = key.name.clone();
        let request = Request::Operation(operation);
        let answer = self.engine.call(key.clone(), request).await?;
        let released = matches!(answer.outcome, Outcome::Released { .. });
        if released {
            // Heard before anybody can be told that it is free.
            if let Some(client) = row.rung_client() {
                self.locks.ring_once(client, &name).await;
            }
            tracing::warn!(lock = %name, "a lock was released by force");
        }
        Ok(Some(released))
    }

    /// Acquires for a [`LockRequest`]. It asks at once: what it gives waits for the answer.
    pub(crate) fn acquire<'a>(
        &'a self,
        name: &'a Name,
        terms: Terms,
        wait: Wait,
    ) -> impl Future<Output = Result<Option<LockGuard>, Error>> + 'a {
        let start = Moment::now();
        let waiting = metric::Waiting::begin();
        let span = telemetry::acquire(name);
        let me = Seeker {
            client: terms
                .owner
                .map_or(self.locks.client(), |owner| owner.client()),
            shares: false,
        };
        let entered = span.in_scope(|| self.locks.enter(name, terms, wait, start));
        async move {
            let entered = entered?;
            let acquired = match entered {
                Entered::Taken(turn) => {
                    telemetry::reused(name);
                    // Whoever takes it again and again lets others run.
                    tokio::task::coop::consume_budget().await;
                    Ok(turn)
                }
                Entered::Refused => Err(InVain::Held),
                Entered::Waits(ticket) => {
                    let answer = pin!(ticket.wait().instrument(span));
                    self.engine.driven(answer).await?
                }
            };
            waiting.end();
            self.acquired(name, acquired, (wait, me), start).await
        }
    }

    /// What the caller of an acquire is told.
    async fn acquired(
        &self,
        name: &Name,
        acquired: Result<Turn, InVain>,
        (wait, me): (Wait, Seeker),
        start: Moment,
    ) -> Result<Option<LockGuard>, Error> {
        match acquired {
            Ok(turn) => {
                turn.begin();
                telemetry::acquired(name, turn.fence, start);
                Ok(Some(self.guard(turn)))
            }
            Err(why) => {
                telemetry::refused(name, start);
                match wait {
                    Wait::Not => Ok(None),
                    Wait::For(_) | Wait::Forever => {
                        Err(Box::pin(self.in_vain(name, why, me)).await)
                    }
                }
            }
        }
    }

    /// Acquires a shared hold.
    pub(crate) async fn acquire_shared(
        &self,
        name: Name,
        terms: Terms,
        wait: Wait,
    ) -> Result<Option<LockGuard>, Error> {
        let start = Moment::now();
        let waiting = metric::Waiting::begin();
        let wait = self.wake(&name, wait).await;
        let span = telemetry::acquire(&name);
        let entered = span.in_scope(|| self.locks.enter_shared(&name, terms, wait, start))?;
        let acquired = match entered {
            Entered::Taken(turn) => Ok(turn),
            Entered::Refused => Err(InVain::Held),
            Entered::Waits(ticket) => {
                let answer = pin!(ticket.wait().instrument(span));
                self.engine.driven(answer).await?
            }
        };
        waiting.end();
        let me = Seeker {
            client: self.locks.client(),
            shares: true,
        };
        self.acquired(&name, acquired, (wait, me), start).await
    }

    /// Gives back what idles in this very client: it is nobody's. What is left of the wait then.
    async fn wake(&self, name: &Name, wait: Wait) -> Wait {
        let start = Moment::now();
        let woken = self.locks.wake(name);
        match wait {
            Wait::For(longest) => {
                // However short the wait, there is one answer's time.
                let _ = tokio::time::timeout(longest.max(ANSWER), woken).await;
                Wait::For(start.after(longest).left())
            }
            Wait::Not | Wait::Forever => {
                woken.await;
                wait
            }
        }
    }

    /// The guard of a turn.
    pub(crate) fn guard(&self, turn: Turn) -> LockGuard {
        LockGuard::new(Arc::clone(&self.in_use), turn)
    }

    /// The error of a wait in vain.
    async fn in_vain(&self, name: &Name, why: InVain, me: Seeker) -> Error {
        if why != InVain::NoAnswer {
            return self.timed_out(name, why).await;
        }
        let look = async {
            match self.locks.look_at_lock(name).await {
                Ok(Some(row)) if me.is_kept_out(&row) => self.timed_out(name, InVain::Held).await,
                // Nobody was seen to hold it.
                Ok(_) => Error::no_answer(),
                Err(error) => error,
            }
        };
        let told = tokio::time::timeout(LOOK, look).await;
        told.unwrap_or_else(|_| Error::no_answer())
    }

    /// The error of a wait for a lock that others had, or of which there was no news: who is in the way is worth a look. If there was no
    /// news of the lock before, it is an error that there is none now.
    pub(crate) async fn timed_out(&self, name: &Name, why: InVain) -> Error {
        let key = RowKey::lock(name.clone());
        let look = tokio::time::timeout(LOOK, self.inspect(&key)).await;
        let info = match (look, why) {
            (Ok(Ok(info)), _) => info,
            (_, InVain::Held) => None,
            (Ok(Err(error)), _) => return error,
            (Err(_), _) => return Error::no_answer(),
        };
        let info = info.filter(|info| info.state != LockState::Free);
        Error::Timeout {
            name: name.to_string(),
            holder: info.as_ref().map(LockInfo::holder),
            remaining: info.map(|info| info.remaining),
        }
    }
}

/// Whose question had no answer in time.
#[derive(Clone, Copy)]
pub(crate) struct Seeker {
    /// The client that its tokens are of.
    pub(crate) client: u32,
    /// It would have shared the lock.
    pub(crate) shares: bool,
}

impl Seeker {
    /// Whether somebody else holds the row. What is the seeker's own is what its question was granted since, and goes back: that
    /// was in nobody's way.
    pub(crate) fn is_kept_out(self, row: &RowState) -> bool {
        let by_others = if row.is_shared() {
            !self.shares
        } else {
            row.client != self.client
        };
        !row.is_free() && by_others
    }
}
