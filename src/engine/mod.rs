//! The engine: requests go in, batches go to the server, answers come out.
//!
//! Database work happens in tasks of the engine, never in a caller's future: a caller that goes away
//! leaves no half-sent packet and no open transaction. The engine knows rows and operations, not
//! guards.

pub(crate) mod backoff;
#[cfg(test)]
mod cost;
mod lane;
pub(crate) mod outcome;
mod pool;
#[cfg(test)]
mod properties;
mod queue;
mod reader;
pub(crate) mod request;
mod server_clock;
pub(crate) mod session;
mod settle;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlRow};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::lane::Lane;
use self::outcome::Answer;
use self::pool::Pool;
use self::queue::LaneQueue;
use self::reader::{Look, Reading};
use self::request::{Member, Reply, Request};
use self::server_clock::ServerClock;
use crate::clock::Moment;
use crate::error::Error;
use crate::sql::operation::RowKey;
use crate::sql::packet::Mode;
use crate::sql::reply::{self, RowState};

/// How many connections may wait aside for rows that transactions hold.
const ASIDE: usize = 2;
/// How late a lane may be to say that a request's time is over.
const LATE: Duration = Duration::from_secs(1);
/// How many requests may wait before a caller has to.
const CAPACITY: usize = 65_536;

/// How the engine works.
#[derive(Clone)]
pub(crate) struct EngineOptions {
    pub(crate) connect: MySqlConnectOptions,
    /// How many connections the account may have; 0 if nothing limits them.
    pub(crate) account_limit: i64,
    pub(crate) lanes: usize,
    /// How long a packet may take.
    pub(crate) packet_limit: Duration,
    /// How long a request may take, all attempts together.
    pub(crate) request_limit: Duration,
}

/// What the engine's tasks share.
pub(crate) struct Shared {
    options: EngineOptions,
    lanes: Vec<Arc<LaneQueue>>,
    /// Operations whose rows are held by transactions.
    aside: Arc<LaneQueue>,
    pool: Arc<Pool>,
    clock: ServerClock,
    /// The engine takes no more requests; then, nothing runs any more.
    closing: CancellationToken,
    closed: CancellationToken,
    runtime: tokio::runtime::Handle,
    /// Lanes and settlements; then those that serve them.
    tasks: Mutex<Vec<JoinHandle<()>>>,
    helpers: Mutex<Vec<JoinHandle<()>>>,
}

impl Shared {
    /// The lane of a row: two lanes of one process never want the same stripe, but for what is created aside.
    fn lane_of(&self, key: &RowKey) -> &LaneQueue {
        &self.lanes[key.stripe().index() % self.lanes.len()]
    }

    fn observe(&self, reply: &reply::Reply, sent: Moment) {
        if let Some(step) = self.clock.observe(reply.server_now, sent, Moment::now()) {
            tracing::warn!(
                microseconds = step,
                "the server's clock was stepped: leases without fencing are not safe across it"
            );
        }
    }

    /// Keeps the lanes from ending as long as something may still be put back.
    fn hold(self: &Arc<Self>) -> Hold {
        for queue in self.lanes.iter().chain([&self.aside]) {
            queue.hold();
        }
        Hold(Arc::clone(self))
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let handle = self.runtime.spawn(task);
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|task| !task.is_finished());
        tasks.push(handle);
    }

    fn spawn_helper(&self, task: impl Future<Output = ()> + Send + 'static) {
        let handle = self.runtime.spawn(task);
        let mut helpers = self.helpers.lock().unwrap_or_else(PoisonError::into_inner);
        helpers.push(handle);
    }
}

/// A settlement that is under way.
struct Hold(Arc<Shared>);

impl Drop for Hold {
    fn drop(&mut self) {
        for queue in self.0.lanes.iter().chain([&self.0.aside]) {
            queue.let_go();
        }
    }
}

/// The engine of one client.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    readings: mpsc::UnboundedSender<Reading>,
    capacity: Arc<Semaphore>,
}

impl Engine {
    /// Starts the lanes on the current runtime.
    pub(crate) fn start(options: EngineOptions) -> Self {
        let lanes = (0..options.lanes.max(1))
            .map(|_| Arc::new(LaneQueue::default()))
            .collect();
        let most = pool::most(options.account_limit);
        let pool = Pool::new(options.connect.clone(), options.packet_limit, most);
        let shared = Arc::new(Shared {
            options,
            lanes,
            aside: Arc::new(LaneQueue::default()),
            pool: Arc::new(pool),
            clock: ServerClock::default(),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
            runtime: tokio::runtime::Handle::current(),
            tasks: Mutex::default(),
            helpers: Mutex::default(),
        });
        for queue in &shared.lanes {
            shared.spawn(Lane::new(Arc::clone(&shared), Arc::clone(queue), Mode::Skip).run());
        }
        for _ in 0..ASIDE {
            let queue = Arc::clone(&shared.aside);
            shared.spawn_helper(Lane::new(Arc::clone(&shared), queue, Mode::Wait).run());
        }
        let (readings, receiver) = mpsc::unbounded_channel();
        shared.spawn_helper(reader::read(Arc::clone(&shared), receiver));
        Self {
            shared,
            readings,
            capacity: Arc::new(Semaphore::new(CAPACITY)),
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
        self.shared.lane_of(&key).push(key, member);
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

    /// After how long a request that was sent has an answer, or an error that says why not.
    pub(crate) fn answer_limit(&self) -> Duration {
        // A packet, and a look at the rows that it skipped.
        self.shared.options.request_limit + 2 * self.shared.options.packet_limit + LATE
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
        for lane in &self.shared.lanes {
            lane.close();
        }
        // Time for the packet in flight, and then for a settlement: to connect, to settle, to read.
        let options = &self.shared.options;
        let settled = options.request_limit.max(3 * options.packet_limit);
        let end = Moment::now().after(options.packet_limit).after(settled);
        self.join(&self.shared.tasks, end).await;
        // What the lanes sent aside was sent by now.
        self.shared.aside.close();
        self.shared.closed.cancel();
        // The packets in flight there wait for rows, and look at those that are missing.
        let end = Moment::now()
            .after(2 * options.packet_limit)
            .after(lane::ROW_WAIT);
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
        for lane in &self.shared.lanes {
            lane.close();
        }
        self.shared.aside.close();
        self.shared.closed.cancel();
    }
}
