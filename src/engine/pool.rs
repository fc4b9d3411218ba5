//! The connections of a client: each task keeps its own as long as there are enough of them.
//!
//! A server or an account may have too few (`max_connections`, `max_user_connections`). Whoever cannot open one then stands in
//! line, and whoever has one gives it to the first in line after each packet, or at once if it is idle. What moves is
//! the connection, never the work: each lane still writes its own batches, from its own queue and under its own number,
//! and a connection carries one packet at a time.
//!
//! A session that did not answer in time is given up, and the server may keep it, with its locks, for as long as its `COMMIT` hangs. The
//! next connection ends it before it does anything else. Until the server has it no more it counts, so that a client has no more
//! connections than [`client_most`] says, however long that takes.

use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;
use tokio::sync::Notify;

use super::connection_queue::{ConnectionQueue, ConnectionTurn, Spare, client_most, most};
use super::session::{Session, SessionId};
use crate::clock::Moment;
use crate::sql::server_error::{TOO_MANY_CONNECTIONS, code_of};
use crate::sql::session::Commit;

/// The connections of a client.
pub(super) struct Pool {
    connect: MySqlConnectOptions,
    limit: Duration,
    /// How many connections there may be, whatever the account may have.
    ceiling: usize,
    line: Mutex<ConnectionQueue<Connection>>,
    wanted: Notify,
}

impl Pool {
    /// For a client with so many lanes, of an account that may have `account_limit` connections; each one's settings are made
    /// within `limit`.
    pub(super) fn new(
        connect: MySqlConnectOptions,
        limit: Duration,
        lanes: usize,
        account_limit: i64,
    ) -> Self {
        let ceiling = client_most(lanes);
        Self {
            connect,
            limit,
            ceiling,
            line: Mutex::new(ConnectionQueue::new(most(account_limit).min(ceiling))),
            wanted: Notify::new(),
        }
    }

    fn line(&self) -> MutexGuard<'_, ConnectionQueue<Connection>> {
        // Nothing between lock and unlock leaves the line half changed.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection of the caller's own, or the next one that is given away; each packet on it ends within `limit`.
    ///
    /// # Errors
    ///
    /// What the server said when it was asked for one; [`sqlx::Error::PoolTimedOut`] when all others were busy for too
    /// long.
    pub(super) async fn get(self: &Arc<Self>, limit: Duration) -> Result<Connection, sqlx::Error> {
        let end = Moment::now().after(self.limit);
        let mut cause = sqlx::Error::PoolTimedOut;
        loop {
            // Not in the `match`: the lock would be held in it.
            let turn = self.line().ask(Moment::now());
            let turn = match turn {
                ConnectionTurn::Open => match self.open().await {
                    Ok(connection) => return Ok(connection.with_limit(limit)),
                    Err((error, Some(turn))) => {
                        cause = error;
                        turn
                    }
                    Err((error, None)) => return Err(error),
                },
                turn => turn,
            };
            if let ConnectionTurn::Wait(given) = turn {
                self.wanted.notify_waiters();
                match tokio::time::timeout(end.left(), given).await {
                    Ok(Ok(mut connection)) => {
                        connection.is_passed_on = true;
                        return Ok(connection.with_limit(limit));
                    }
                    Ok(Err(_)) if !end.has_passed() => {}
                    _ => return Err(cause),
                }
            }
        }
    }

    /// Opens a connection that was counted. With the error: the place in line, if others have one to share.
    async fn open(
        self: &Arc<Self>,
    ) -> Result<Connection, (sqlx::Error, Option<ConnectionTurn<Connection>>)> {
        let mut counted = CountGuard {
            pool: Arc::clone(self),
            how: CountOff::NeverOpened,
        };
        match Session::open(&self.connect, Commit::Explicit, self.limit).await {
            Ok(session) => {
                let most = most(session.account_limit).min(self.ceiling);
                self.line().opened(most);
                counted.how = CountOff::Closed;
                let mut connection = Connection {
                    session,
                    counted,
                    used: Moment::now(),
                    is_passed_on: false,
                };
                match self.end_given_up(&mut connection).await {
                    Ok(()) if self.line().may_stay() => Ok(connection),
                    Ok(()) => Err((sqlx::Error::PoolTimedOut, None)),
                    Err(error) => Err((error, None)),
                }
            }
            Err(error) => {
                let code = code_of(&error);
                if !code.is_some_and(|code| TOO_MANY_CONNECTIONS.contains(&code)) {
                    return Err((error, None));
                }
                counted.how = CountOff::Already;
                let turn = self.line().refused(Moment::now());
                Err((error, turn))
            }
        }
    }

    /// Ends the sessions that were given up, before the connection is used for anything else.
    async fn end_given_up(&self, connection: &mut Connection) -> Result<(), sqlx::Error> {
        let sessions = self.line().take_given_up(Moment::now());
        if sessions.is_empty() {
            return Ok(());
        }
        let mut asked = Asked {
            pool: self,
            sessions: sessions.len(),
            left: sessions.clone(),
        };
        asked.left = connection.kill(sessions).await?;
        if !asked.left.is_empty() {
            tracing::debug!(
                sessions = asked.left.len(),
                "ended sessions that did not answer in time"
            );
        }
        Ok(())
    }

    /// Gives a connection to the first who waits for one; hands it back if nobody does.
    pub(super) fn pass_on(&self, mut connection: Connection) -> Option<Connection> {
        connection.used = Moment::now();
        loop {
            // Not in the `match`: what is closed there takes the lock itself.
            let spare = self.line().spare();
            match spare {
                Spare::Keep => return Some(connection),
                Spare::Close => return None,
                Spare::Give(first) => match first.send(connection) {
                    Ok(()) => return None,
                    Err(back) => connection = back,
                },
            }
        }
    }

    /// Whether those who have a connection share it with the others.
    pub(super) fn is_short(&self) -> bool {
        self.line().is_short(Moment::now())
    }

    /// Waits until somebody stands in line.
    pub(super) async fn wanted(&self) {
        let mut wanted = pin!(self.wanted.notified());
        loop {
            // From here on a notification is not missed.
            wanted.as_mut().enable();
            if self.line().is_wanted() {
                return;
            }
            wanted.as_mut().await;
            wanted.set(self.wanted.notified());
        }
    }
}

/// Sessions that are asked for: those of which nobody said that they are gone are still there, also when asking is cut off.
struct Asked<'p> {
    pool: &'p Pool,
    sessions: usize,
    left: Vec<SessionId>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let left = std::mem::take(&mut self.left);
        let mut line = self.pool.line();
        line.still_there(self.sessions, left, Moment::now());
    }
}

/// What counts a connection off, however it ends.
struct CountGuard {
    pool: Arc<Pool>,
    how: CountOff,
}

enum CountOff {
    /// It was never open.
    NeverOpened,
    Closed,
    /// It was counted off before.
    Already,
    /// The server may still have it.
    GivenUp(SessionId),
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        let mut line = self.pool.line();
        match std::mem::replace(&mut self.how, CountOff::Already) {
            CountOff::NeverOpened => line.failed(Moment::now()),
            CountOff::Closed => line.leave(Moment::now()),
            CountOff::Already => {}
            CountOff::GivenUp(session) => line.give_up(session),
        }
    }
}

/// A connection, with its place among those of its client.
pub(super) struct Connection {
    // Fields are dropped in this order: the session is closed before the connection is counted off.
    session: Session,
    counted: CountGuard,
    used: Moment,
    /// Somebody has had it before.
    pub(super) is_passed_on: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.session.in_flight && self.session.id.can_be_killed() {
            self.counted.how = CountOff::GivenUp(self.session.id.clone());
        }
    }
}

impl Connection {
    fn with_limit(mut self, limit: Duration) -> Self {
        self.session.limit = limit;
        self
    }

    /// How long it has carried nothing.
    pub(super) fn idle(&self) -> Duration {
        Moment::now().since(self.used)
    }
}

impl Deref for Connection {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}
