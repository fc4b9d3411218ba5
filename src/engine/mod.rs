//! The engine: requests go in, batches go to the server, answers come out.
//!
//! Database work happens in tasks of the engine, never in a caller's future: a caller that goes away
//! leaves no half-sent packet and no open transaction. The engine knows rows and operations, not
//! guards.

pub(crate) mod backoff;
#[cfg(test)]
mod cost;
mod group;
mod lane;
mod line;
mod link;
pub(crate) mod outcome;
mod pending;
mod pool;
#[cfg(test)]
mod properties;
mod queue;
mod reader;
pub(crate) mod request;
mod server_clock;
pub(crate) mod session;
mod settle;
mod shared;
mod stage;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::Row;
use sqlx::mysql::{MySqlConnectOptions, MySqlRow};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use self::lane::Lane;
use self::outcome::Answer;
use self::queue::LaneQueue;
use self::reader::{Look, Reading};
use self::request::{Member, Reply, Request};
use self::shared::Shared;
use self::stage::Waits;
use crate::clock::Moment;
use crate::error::Error;
use crate::sql::dialect::Dialect;
use crate::sql::reply::RowState;
use crate::sql::row::RowKey;
use crate::timing::{LATE, LOCK_WAIT};

/// How many connections may wait for stripes, and how many for rows.
const WAITING: usize = 2;
/// How many requests may wait before a caller has to.
const CAPACITY: usize = 65_536;

/// How the engine works.
#[derive(Clone)]
pub(crate) struct EngineOptions {
    pub(crate) connect: MySqlConnectOptions,
    /// How many connections the account may have; 0 if nothing limits them.
    pub(crate) account_limit: i64,
    pub(crate) lanes: usize,
    /// Each request takes its stripe.
    pub(crate) every_stripe: bool,
    /// How long a packet may take.
    pub(crate) packet_limit: Duration,
    /// How long a request may take, all attempts together.
    pub(crate) request_limit: Duration,
}

/// The engine of one client.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    readings: mpsc::UnboundedSender<Reading>,
    capacity: Arc<Semaphore>,
    dialect: OnceCell<Dialect>,
}

impl Engine {
    /// Starts the lanes on the current runtime.
    pub(crate) fn start(options: EngineOptions) -> Self {
        let shared = Arc::new(Shared::new(options));
        let lane = |queue: &Arc<LaneQueue>, waits| {
            Lane::new(Arc::clone(&shared), Arc::clone(queue), waits).run()
        };
        for queue in &shared.lanes {
            shared.spawn(lane(queue, Waits::Never));
        }
        for _ in 0..WAITING {
            shared.spawn(lane(&shared.stripes, Waits::ForStripe));
            shared.spawn(lane(&shared.rows, Waits::ForRow));
        }
        let (readings, receiver) = mpsc::unbounded_channel();
        shared.spawn_helper(reader::read(Arc::clone(&shared), receiver));
        Self {
            shared,
            readings,
            capacity: Arc::new(Semaphore::new(CAPACITY)),
            dialect: OnceCell::new(),
        }
    }

    /// Hands a request to its lane. Never waits; the reply comes from the lane.
    pub(crate) fn submit(&self, key: RowKey, request: Request, expires: Moment, reply: Reply) {
        self.push(key, request, expires, reply, None);
    }

    fn push(
        &self,
        key: RowKey,
        request: Request,
        expires: Moment,
        reply: Reply,
        place: Option<OwnedSemaphorePermit>,
    ) {
        let mut member = Member::new(request, expires, Some(reply));
        member.place = place;
        self.shared.push(key, member);
    }

    /// Hands a request to its lane and waits for the answer; first for a place, if the queues are
    /// full. Dropping this future does not take the request back.
    pub(crate) async fn call(&self, key: RowKey, request: Request) -> Result<Answer, Error> {
        // The request keeps it, also when this future is dropped.
        let place = Arc::clone(&self.capacity).acquire_owned().await;
        let place = place.map_err(|_| Error::Closed)?;
        let (sender, receiver) = oneshot::channel();
        let expires = Moment::now().after(self.shared.options.request_limit);
        let name = key.name.clone();
        self.push(key, request, expires, Reply::Caller(sender), Some(place));
        // Aborted on its way: with its runtime, or by a client that could not wait any longer.
        receiver.await.unwrap_or_else(|_| {
            let name = name.to_string();
            Err(Error::OutcomeUnknown { name })
        })
    }

    /// Reads rows as they are, without a lock.
    pub(crate) async fn look(&self, keys: Vec<RowKey>) -> Result<Vec<Option<RowState>>, Error> {
        let (reply, receiver) = oneshot::channel();
        self.readings
            .send(Reading::Look(Look {
                keys,
                end: Moment::now().after(self.shared.options.request_limit),
                reply,
            }))
            .map_err(|_| Error::Closed)?;
        receiver.await.map_err(|_| Error::Closed)?
    }

    /// All rows of a query that changes nothing.
    pub(crate) async fn query(&self, sql: String) -> Result<Vec<MySqlRow>, Error> {
        let (reply, receiver) = oneshot::channel();
        self.readings
            .send(Reading::Query {
                sql,
                end: Moment::now().after(self.shared.options.request_limit),
                reply,
            })
            .map_err(|_| Error::Closed)?;
        receiver.await.map_err(|_| Error::Closed)?
    }

    /// Which server it is: asked once.
    pub(crate) async fn dialect(&self) -> Result<Dialect, Error> {
        let ask = || async {
            let rows = self.query("SELECT VERSION()".to_owned()).await?;
            let row = rows.first().ok_or(Error::Closed)?;
            let version: String = row.try_get_unchecked(0).map_err(Error::from_sqlx)?;
            Ok(Dialect::of_version(&version))
        };
        self.dialect.get_or_try_init(ask).await.copied()
    }

    /// After how long a request that was sent has an answer, or an error that says why not.
    pub(crate) fn answer_limit(&self) -> Duration {
        // A packet that waits for locks, and a look at the rows that it did not have.
        let options = &self.shared.options;
        options.request_limit + 2 * options.packet_limit + LOCK_WAIT + LATE
    }

    pub(crate) fn request_limit(&self) -> Duration {
        self.shared.options.request_limit
    }

    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.shared.runtime
    }

    /// How often the server's clock was seen to be stepped.
    pub(crate) fn clock_steps(&self) -> u64 {
        self.shared.clock.steps()
    }

    /// Takes no more requests, and waits until those that came before have ended.
    pub(crate) async fn close(&self) {
        self.shared.closing.cancel();
        self.shared.close();
        // Time for the packets in flight, which may wait for locks; then for a settlement: to connect, to settle, to read; and
        // then for a release that follows.
        let options = &self.shared.options;
        let settled = options.request_limit.max(3 * options.packet_limit);
        let end = Moment::now()
            .after(2 * options.packet_limit)
            .after(LOCK_WAIT)
            .after(settled);
        self.join(&self.shared.tasks, end).await;
        self.shared.closed.cancel();
        let end = Moment::now().after(options.packet_limit);
        self.join(&self.shared.helpers, end).await;
    }

    /// Waits for tasks to end, until `end`.
    async fn join(&self, tasks: &Mutex<Vec<JoinHandle<()>>>, end: Moment) {
        let take = || tasks.lock().unwrap_or_else(PoisonError::into_inner).pop();
        while let Some(mut task) = take() {
            if tokio::time::timeout(end.left(), &mut task).await.is_err() {
                tracing::warn!("a task of the lock client did not end in time; it is aborted");
                task.abort();
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.close();
        self.shared.closed.cancel();
    }
}
