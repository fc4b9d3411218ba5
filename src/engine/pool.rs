//! The connections of a client: each task keeps its own as long as there are enough of them.
//!
//! A server or an account may have too few (`max_connections`, `max_user_connections`). Whoever cannot open one then stands in
//! line, and whoever has one gives it to the first in line after each packet, or at once if it is idle. What moves is
//! the connection, never the work: each lane still writes its own batches, from its own queue and under its own number,
//! and a connection carries one packet at a time.
//!
//! A session that did not answer in time is given up, and the server may keep it, with its locks, for as long as its `COMMIT` hangs. The
//! next connection ends it before it does anything else. Until the server has it no more it counts, so that a client never
//! has more connections than [`client_most`] says, however long that takes.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;
use tokio::sync::{Notify, oneshot};

use super::session::{Session, SessionId};
use crate::clock::Moment;
use crate::sql::server_error::{TOO_MANY_CONNECTIONS, code_of};
use crate::sql::session::Commit;

/// How long after a refusal no further connection is tried while there is one to share.
const REFUSED: Duration = Duration::from_secs(1);

/// Who has a connection and who waits for one, as plain data.
#[derive(Debug)]
struct Line<C> {
    /// How many connections there are; one that is being opened counts.
    open: usize,
    /// How many of them are being opened.
    opening: usize,
    /// How many there may be.
    most: usize,
    /// When the server last refused one.
    refused: Option<Moment>,
    waiting: VecDeque<oneshot::Sender<C>>,
    /// Sessions that were given up, and that the server may still have; and how many those are with those that are asked for
    /// just now. They count as open.
    given_up: Vec<SessionId>,
    lingering: usize,
    /// When they were last asked for.
    asked_for: Option<Moment>,
}

/// What somebody does who wants a connection.
#[derive(Debug)]
enum Turn<C> {
    /// Opens one; it is counted already.
    Open,
    /// Waits until he is given one, or until the sender is dropped: then he asks again.
    Wait(oneshot::Receiver<C>),
}

/// What becomes of a connection between two packets.
#[derive(Debug)]
enum Spare<C> {
    Keep,
    /// There are more than the account can spare.
    Close,
    /// The first in line is given it; if he has gone away, the next one.
    Give(oneshot::Sender<C>),
}

impl<C> Line<C> {
    fn new(most: usize) -> Self {
        Self {
            open: 0,
            opening: 0,
            most,
            refused: None,
            waiting: VecDeque::new(),
            given_up: Vec::new(),
            lingering: 0,
            asked_for: None,
        }
    }

    /// Whether one more may be opened: the first one always, since nobody else could be given its place.
    /// And now and then one that asks whether those that were given up have ended.
    fn admits(&self, now: Moment) -> bool {
        let asks =
            !self.given_up.is_empty() && self.asked_for.is_none_or(|at| now.since(at) >= REFUSED);
        let alone = self.open == self.lingering && self.open <= self.most;
        alone || !self.is_short(now) || asks
    }

    /// A session was given up while it carried something.
    fn give_up(&mut self, session: SessionId) {
        self.given_up.push(session);
        self.lingering += 1;
    }

    /// Those that were given up, for a connection that ends them.
    fn take_given_up(&mut self, now: Moment) -> Vec<SessionId> {
        self.asked_for = Some(now);
        std::mem::take(&mut self.given_up)
    }

    /// Of `asked` sessions the server still has these.
    fn still_there(&mut self, asked: usize, left: Vec<SessionId>, now: Moment) {
        self.lingering -= asked - left.len();
        for _ in left.len()..asked {
            self.leave(now);
        }
        self.given_up.extend(left);
    }

    /// Whether those who have a connection share it with the others.
    fn is_short(&self, now: Moment) -> bool {
        let refused = self.refused.is_some_and(|at| now.since(at) < REFUSED);
        refused || self.open.max(1) >= self.most
    }

    fn ask(&mut self, now: Moment) -> Turn<C> {
        if self.admits(now) {
            self.open += 1;
            self.opening += 1;
            return Turn::Open;
        }
        self.stand()
    }

    fn stand(&mut self) -> Turn<C> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.push_back(sender);
        Turn::Wait(receiver)
    }

    /// One that was being opened is there.
    fn opened(&mut self, most: usize) {
        self.opening -= 1;
        self.most = most;
    }

    /// One that was being opened is not to be had.
    fn failed(&mut self, now: Moment) {
        self.opening -= 1;
        self.leave(now);
    }

    /// What somebody does whom the server has refused one. `None` if there is no other that could be shared.
    fn refused(&mut self, now: Moment) -> Option<Turn<C>> {
        self.refused = Some(now);
        self.failed(now);
        (self.open > self.opening + self.lingering).then(|| self.stand())
    }

    /// A connection is gone: the first in line may open one in its place.
    fn leave(&mut self, now: Moment) {
        self.open -= 1;
        if self.admits(now) {
            self.waiting.retain(|waiting| !waiting.is_closed());
            self.waiting.pop_front();
        }
    }

    /// What becomes of a connection that can be spared for a moment.
    fn spare(&mut self) -> Spare<C> {
        if self.open > self.most {
            return Spare::Close;
        }
        self.waiting.pop_front().map_or(Spare::Keep, Spare::Give)
    }

    /// Whether somebody waits.
    fn is_wanted(&self) -> bool {
        self.waiting.iter().any(|waiting| !waiting.is_closed())
    }
}

/// The connections of a client.
pub(super) struct Pool {
    connect: MySqlConnectOptions,
    limit: Duration,
    /// How many connections there may be, whatever the account may have.
    ceiling: usize,
    line: Mutex<Line<Connection>>,
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
            line: Mutex::new(Line::new(most(account_limit).min(ceiling))),
            wanted: Notify::new(),
        }
    }

    fn line(&self) -> MutexGuard<'_, Line<Connection>> {
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
                Turn::Open => match self.open().await {
                    Ok(connection) => return Ok(connection.with_limit(limit)),
                    Err((error, Some(turn))) => {
                        cause = error;
                        turn
                    }
                    Err((error, None)) => return Err(error),
                },
                turn => turn,
            };
            if let Turn::Wait(given) = turn {
                self.wanted.notify_waiters();
                match tokio::time::timeout(end.left(), given).await {
                    Ok(Ok(connection)) => return Ok(connection.with_limit(limit)),
                    Ok(Err(_)) if !end.has_passed() => {}
                    _ => return Err(cause),
                }
            }
        }
    }

    /// Opens a connection that was counted. With the error: the place in line, if others have one to share.
    async fn open(self: &Arc<Self>) -> Result<Connection, (sqlx::Error, Option<Turn<Connection>>)> {
        let mut seat = Seat {
            pool: Arc::clone(self),
            end: End::Failed,
        };
        match Session::open(&self.connect, Commit::Explicit, self.limit).await {
            Ok(session) => {
                let most = most(session.account_limit).min(self.ceiling);
                self.line().opened(most);
                seat.end = End::Closed;
                let mut connection = Connection {
                    session,
                    seat,
                    used: Moment::now(),
                };
                match self.end_given_up(&mut connection).await {
                    Ok(()) => Ok(connection),
                    Err(error) => Err((error, None)),
                }
            }
            Err(error) => {
                let code = code_of(&error);
                if !code.is_some_and(|code| TOO_MANY_CONNECTIONS.contains(&code)) {
                    return Err((error, None));
                }
                seat.end = End::Counted;
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
        let asked = sessions.len();
        let (left, result) = match connection.kill(sessions.clone()).await {
            Ok(left) => (left, Ok(())),
            Err(error) => (sessions, Err(error)),
        };
        if !left.is_empty() {
            tracing::debug!(
                sessions = left.len(),
                "ended sessions that did not answer in time"
            );
        }
        self.line().still_there(asked, left, Moment::now());
        result
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

/// How many connections a client takes of those that its account may have (0: as many as it likes): half of them, so that a
/// second process and the application find some too.
pub(super) fn most(account_limit: i64) -> usize {
    match usize::try_from(account_limit) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(limit) => (limit / 2).max(1),
    }
}

/// The most connections that a client with so many lanes ever has, but for one that asks whether others have ended.
pub(super) fn client_most(lanes: usize) -> usize {
    2 * lanes + 12
}

/// What counts a connection off, however it ends.
struct Seat {
    pool: Arc<Pool>,
    end: End,
}

enum End {
    /// It was never open.
    Failed,
    Closed,
    /// It was counted off before.
    Counted,
    /// The server may still have it.
    GivenUp(SessionId),
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut line = self.pool.line();
        match std::mem::replace(&mut self.end, End::Counted) {
            End::Failed => line.failed(Moment::now()),
            End::Closed => line.leave(Moment::now()),
            End::Counted => {}
            End::GivenUp(session) => line.give_up(session),
        }
    }
}

/// A connection, with its place among those of its client.
pub(super) struct Connection {
    // Closed before its place is free.
    session: Session,
    seat: Seat,
    used: Moment,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.session.in_flight && self.session.id.can_be_killed() {
            self.seat.end = End::GivenUp(self.session.id.clone());
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn half_of_what_the_account_may_have() {
        for (limit, half) in [
            (1, 1),
            (2, 1),
            (3, 1),
            (4, 2),
            (9, 4),
            (-1, usize::MAX),
            (0, usize::MAX),
        ] {
            assert_eq!(most(limit), half, "of {limit}");
        }
    }

    #[test]
    fn after_a_refusal_what_there_is_is_shared_for_a_while() {
        let now = Moment::now();
        let mut line = Line::<u32>::new(usize::MAX);
        assert!(matches!(line.ask(now), Turn::Open));
        line.opened(usize::MAX);
        assert!(matches!(line.ask(now), Turn::Open));
        let Some(Turn::Wait(mut given)) = line.refused(now) else {
            panic!("the other one is not shared");
        };
        assert!(
            matches!(line.ask(now), Turn::Wait(_)),
            "it was refused a moment ago"
        );
        let Spare::Give(first) = line.spare() else {
            panic!("nobody is first");
        };
        assert_eq!(first.send(7), Ok(()));
        assert_eq!(given.try_recv(), Ok(7));
        assert!(matches!(line.ask(now.after(REFUSED)), Turn::Open));
    }

    #[test]
    fn who_is_alone_is_told_what_the_server_said() {
        let now = Moment::now();
        let mut line = Line::<u32>::new(1);
        assert!(matches!(line.ask(now), Turn::Open));
        let Turn::Wait(mut given) = line.ask(now) else {
            panic!("there is one already");
        };
        assert!(line.refused(now).is_none());
        // And the next one asks the server himself.
        let woken = oneshot::error::TryRecvError::Closed;
        assert_eq!(given.try_recv(), Err(woken));
        assert!(matches!(line.ask(now), Turn::Open));
    }

    #[test]
    fn what_is_only_being_opened_is_not_waited_for() {
        let now = Moment::now();
        let mut line = Line::<u32>::new(usize::MAX);
        assert!(matches!(line.ask(now), Turn::Open));
        assert!(matches!(line.ask(now), Turn::Open));
        assert!(
            line.refused(now).is_none(),
            "the other one may be refused as well"
        );
        assert!(line.refused(now).is_none());
        assert_eq!((line.open, line.opening), (0, 0));
    }

    /// What a task of the model does with connections.
    enum Task {
        Out,
        Opening,
        Waiting(oneshot::Receiver<()>),
        Has,
    }

    proptest! {
        /// Tasks that want connections again and again, a server that has a few, and connections that break.
        #[test]
        fn everybody_has_his_turn(
            tasks in 1_usize..6, server in 1_usize..5, account in 0_i64..8, steps in prop::collection::vec((0_usize..6, 0..10), 400..800)
        ) {
            let mut line = Line::new(most(account));
            let mut now = Moment::now();
            let mut all: Vec<Task> = (0..tasks).map(|_| Task::Out).collect();
            let mut served = vec![0; tasks];
            let ask = |line: &mut Line<()>, now| match line.ask(now) {
                Turn::Open => Task::Opening,
                Turn::Wait(given) => Task::Waiting(given),
            };
            for (who, chance) in steps {
                now = now.after(REFUSED / 20);
                let who = who % tasks;
                let had = line.open - line.opening;
                all[who] = match std::mem::replace(&mut all[who], Task::Out) {
                    Task::Out => ask(&mut line, now),
                    Task::Opening if had < server => {
                        line.opened(most(account));
                        Task::Has
                    }
                    Task::Opening => match line.refused(now) {
                        Some(Turn::Wait(given)) => Task::Waiting(given),
                        _ => Task::Out,
                    },
                    Task::Waiting(mut given) => match given.try_recv() {
                        Ok(()) => Task::Has,
                        Err(oneshot::error::TryRecvError::Closed) => ask(&mut line, now),
                        Err(oneshot::error::TryRecvError::Empty) => Task::Waiting(given),
                    },
                    Task::Has => {
                        served[who] += 1;
                        // Now and then it breaks.
                        let spare = if chance == 0 { Spare::Close } else { line.spare() };
                        match spare {
                            Spare::Keep => Task::Has,
                            Spare::Give(first) => {
                                prop_assert_eq!(first.send(()), Ok(()));
                                Task::Out
                            }
                            Spare::Close => {
                                line.leave(now);
                                Task::Out
                            }
                        }
                    }
                };
                let given = all.iter_mut().filter(|task| match task {
                    Task::Waiting(given) => !given.is_empty(),
                    Task::Opening | Task::Has => true,
                    Task::Out => false,
                });
                prop_assert_eq!(line.open, given.count());
                prop_assert!(line.open <= line.most);
            }
            prop_assert!(served.iter().all(|&served| served > 0), "{:?}", served);
        }
    }
}
