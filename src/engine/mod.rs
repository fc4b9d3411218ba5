//! The engine: requests go in, batches go to the server, answers come out.
//!
//! Database work happens in tasks of the engine, never in a caller's future: a caller that goes away
//! leaves no half-sent packet and no open transaction. The engine knows rows and operations, not
//! guards.
//!
//! # A map of the modules
//!
//! | group | module | what it does |
//! |---|---|---|
//! | intake | [`request`] | what a caller asks of a row, who is told, and how far that has come |
//! | | [`group`] | merges the requests for one row into one operation, and tells each its own outcome |
//! | | [`queue`] | a lane's queue, shared between those who submit and the lanes that serve it |
//! | | [`waiting`] | what waits in a queue, as plain data, and which of it makes up the next batch |
//! | lane | [`lane`] | takes a batch, sends it as one packet, and ends or hands on its requests |
//! | | [`shared`] | what all tasks share, and to which lane's queue a request goes |
//! | which lane next | [`stage`] | decides what happens to a request after its packet, and which kind of lane has it next |
//! | | [`manner`] | decides for what a lane's packet waits, and how many requests it has |
//! | | [`serving`] | which lane serves which queue: with little to do one lane sends what waits in several |
//! | | [`fresh`] | whether a row is missing, most likely: then the first packet creates it |
//! | | [`gather`] | lets other tasks run before a lane sends, so that their requests go along |
//! | connection | [`session`] | one connection: makes its settings, sends a packet, reads its answer |
//! | | [`pool`] | opens the connections, counts them, and passes them on |
//! | | [`connection_queue`] | decides who has a connection, who opens one, and who waits for one |
//! | | [`link`] | a lane's connection, and the number of each batch under the lane's id |
//! | | [`record`] | how many rows fit into one TLS record |
//! | | [`reader`] | reads rows without a lock, and runs queries |
//! | | [`patience`] | how long the reader waits for an answer before it asks over a fresh connection |
//! | | [`server_clock`] | what the server's clock will show, and whether it was stepped |
//! | outcome | [`outcome`] | what a caller is told |
//! | | `lane::conclude` | what becomes of the requests of a packet that was committed |
//! | | [`settle`] | finds out what became of a batch whose reply was lost |
//! | | [`outage`] | whether the server can be reached |
//! | several rows | [`together`] | a request for several rows, all or none: a task for each |
//! | | [`load`] | decides which of these requests go together in one packet |
//! | | [`carrier`] | sends their packets, as lanes send batches |
//! | lifecycle | [`mod@supervise`] | runs a task again after a panic |
//! | | [`backoff`] | how long to pause before the next attempt |
//! | | [`pending`] | counts the requests under way: lanes end when there are none |
//! | | [`shutdown`] | ends the engine's tasks when the client closes |
//! | | [`own_thread`] | a thread with a runtime of its own for the engine's tasks |
//! | | [`driven`] | awaits a call from another runtime, and notices that the client's runtime runs no tasks |

pub(crate) mod backoff;
mod carrier;
mod connection_queue;
#[cfg(test)]
mod cost;
mod driven;
mod fresh;
mod gather;
mod group;
mod lane;
mod link;
mod load;
mod manner;
mod outage;
pub(crate) mod outcome;
mod own_thread;
mod patience;
mod pending;
mod pool;
#[cfg(test)]
mod properties;
mod queue;
mod reader;
mod record;
pub(crate) mod request;
mod server_clock;
mod serving;
pub(crate) mod session;
mod settle;
mod shared;
mod shutdown;
mod stage;
pub(crate) mod supervise;
pub(crate) mod together;
mod waiting;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sqlx::Row;
use sqlx::mysql::{MySqlConnectOptions, MySqlRow};
use tokio::runtime::Handle;
use tokio::sync::{
    Mutex, OnceCell, OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc, oneshot,
};
use tokio_util::sync::CancellationToken;

use self::carrier::Carriers;
use self::lane::Lane;
use self::outcome::Answer;
use self::reader::{Asker, Reading, RowRead};
use self::request::{Member, ReplyTo, Request};
use self::serving::{QueueStates, Serving};
use self::shared::Shared;
use self::stage::LaneKind;
use self::supervise::supervise;
use self::together::Together;
use crate::clock::Moment;
use crate::error::Error;
use crate::sql::home::{self, Home};
use crate::sql::reply::RowState;
use crate::sql::row::RowKey;
use crate::timing::{ANSWER, LATE, LOCK_WAIT};

/// How many lanes wait for stripes, how many for rows, and how many carriers wait for doors: each has a connection of its own.
const WAITING: usize = 2;
/// How many calls may be under way. Further callers wait until one of these is answered.
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
    /// Its tasks run on a thread of their own.
    pub(crate) own_thread: bool,
}

/// The engine of one client.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    readings: mpsc::UnboundedSender<Reading>,
    /// What people ask.
    questions: mpsc::UnboundedSender<Reading>,
    /// Packets of requests for several rows.
    carriers: Carriers,
    capacity: Arc<Semaphore>,
    home: OnceCell<Arc<Home>>,
}

impl Engine {
    /// Starts the lanes, on the current runtime or on a thread of their own.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if there can be no such thread.
    pub(crate) fn start(options: EngineOptions) -> Result<Self, Error> {
        let ended = CancellationToken::new();
        let runtime = if options.own_thread {
            own_thread::start(ended.clone())?
        } else {
            Handle::current()
        };
        let shared = Arc::new(Shared::new(options, runtime, ended));
        let lane = |serving, kind| Lane::new(Arc::clone(&shared), serving, kind).run();
        let states = QueueStates::new(shared.lanes.len());
        for own in 0..shared.lanes.len() {
            let serving = Serving::one_of(&states, &shared.lanes, own);
            shared.spawn(lane(serving, LaneKind::NeverWaits));
        }
        for _ in 0..WAITING {
            for (queue, kind) in [
                (&shared.stripes, LaneKind::WaitsForStripe),
                (&shared.rows, LaneKind::WaitsForRow),
            ] {
                shared.spawn(lane(Serving::alone(Arc::clone(queue)), kind));
            }
        }
        shared.spawn(Lane::rescuing(Arc::clone(&shared)).run());
        let reader = |asker| {
            let (readings, receiver) = mpsc::unbounded_channel();
            let (shared_too, receiver) = (Arc::clone(&shared), Arc::new(Mutex::new(receiver)));
            let closed = shared.closed.clone();
            let read = move || reader::read(Arc::clone(&shared_too), asker, Arc::clone(&receiver));
            let reads = supervise("a reader", read);
            // Once the client is closed nobody waits for an answer: the reader ends, whatever it is reading.
            shared.spawn_helper(async move {
                let _ = closed.run_until_cancelled(reads).await;
            });
            readings
        };
        Ok(Self {
            carriers: carrier::start(&shared),
            readings: reader(Asker::Program),
            questions: reader(Asker::People),
            capacity: Arc::new(Semaphore::new(CAPACITY)),
            home: OnceCell::new(),
            shared,
        })
    }

    /// Runs a task of the client's for as long as the client lives: after a panic anew.
    pub(crate) fn keep_running<F>(
        &self,
        task: &'static str,
        work: impl FnMut() -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        self.shared.spawn_helper(supervise(task, work));
    }

    /// Hands a request to its lane. Never waits; the reply comes from the lane.
    pub(crate) fn submit(&self, key: RowKey, request: Request, expires: Moment, reply: ReplyTo) {
        let member = Member::new(request, expires, Some(reply));
        self.shared.push(key, member);
    }

    /// The same for a renewal whose lane does not answer: it goes over a connection that is there for such.
    pub(crate) fn rescue(&self, key: RowKey, request: Request, expires: Moment, reply: ReplyTo) {
        let mut member = Member::new(request, expires, Some(reply));
        member.course.rescue = true;
        self.shared.push(key, member);
    }

    /// Takes several locks, all or none, in a task of its own.
    pub(crate) fn take_together(&self, together: Together) {
        let (shared, carriers) = (Arc::clone(&self.shared), self.carriers.clone());
        self.shared.spawn(together::run(shared, carriers, together));
    }

    /// Hands a request to its lane and waits for the answer. If too many calls are under way, it waits first until one is over.
    /// Dropping this future does not take the request back.
    pub(crate) async fn call(&self, key: RowKey, request: Request) -> Result<Answer, Error> {
        let capacity = match Arc::clone(&self.capacity).try_acquire_owned() {
            Ok(capacity) => capacity,
            // Boxed: it is rare, and the future of every call would have room for it.
            Err(TryAcquireError::NoPermits) => Box::pin(self.wait_for_capacity()).await?,
            Err(TryAcquireError::Closed) => return Err(Error::Closed),
        };
        let answer = self.send(key, request, capacity);
        self.driven(pin!(answer)).await
    }

    /// Waits until one more request may be under way.
    async fn wait_for_capacity(&self) -> Result<OwnedSemaphorePermit, Error> {
        let capacity = Arc::clone(&self.capacity).acquire_owned().await;
        capacity.map_err(|_| Error::Closed)
    }

    /// Hands a request to its lane. It counts as under way until it is answered, also when nobody waits for the answer any more.
    fn send(
        &self,
        key: RowKey,
        request: Request,
        capacity: OwnedSemaphorePermit,
    ) -> impl Future<Output = Result<Answer, Error>> + use<> {
        let (sender, receiver) = oneshot::channel();
        let expires = Moment::now().after(self.shared.options.request_limit);
        let name = key.name.clone();
        let mut member = Member::new(request, expires, Some(ReplyTo::Caller(sender)));
        member.capacity = Some(capacity);
        self.shared.push(key, member);
        // Without an answer it was dropped on its way: its runtime has ended, or the client closed and could not wait any longer.
        async move {
            receiver.await.unwrap_or_else(|_| {
                let name = name.to_string();
                Err(Error::OutcomeUnknown { name })
            })
        }
    }

    /// Reads rows as they are, without a lock.
    pub(crate) async fn look(&self, keys: Vec<RowKey>) -> Result<Vec<Option<RowState>>, Error> {
        let end = self.end();
        self.read(&self.readings, end, |reply| {
            let keys = keys.clone();
            Reading::Rows(RowRead { keys, end, reply })
        })
        .await
    }

    /// All rows of a query that changes nothing, and that is answered at once.
    pub(crate) async fn query(&self, sql: String) -> Result<Vec<MySqlRow>, Error> {
        self.ask(&self.readings, sql, self.end()).await
    }

    /// The same of a statement that is repeated if it matters: it has one answer's time.
    pub(crate) async fn query_once(&self, sql: String) -> Result<Vec<MySqlRow>, Error> {
        let end = Moment::now().after(ANSWER);
        self.ask(&self.readings, sql, end).await
    }

    /// All rows of a query for people, which may take its time: it has another connection.
    pub(crate) async fn show(&self, sql: String) -> Result<Vec<MySqlRow>, Error> {
        self.ask(&self.questions, sql, self.end()).await
    }

    async fn ask(
        &self,
        readings: &mpsc::UnboundedSender<Reading>,
        sql: String,
        end: Moment,
    ) -> Result<Vec<MySqlRow>, Error> {
        self.read(readings, end, |reply| {
            let sql = sql.clone();
            Reading::Query { sql, end, reply }
        })
        .await
    }

    fn end(&self) -> Moment {
        Moment::now().after(self.shared.options.request_limit)
    }

    async fn read<T>(
        &self,
        readings: &mpsc::UnboundedSender<Reading>,
        end: Moment,
        reading: impl Fn(oneshot::Sender<Result<T, Error>>) -> Reading,
    ) -> Result<T, Error> {
        let answer = async {
            loop {
                let (reply, receiver) = oneshot::channel();
                let sent = readings.send(reading(reply));
                sent.map_err(|_| Error::Closed)?;
                match receiver.await {
                    Ok(answer) => return answer,
                    // The reader has panicked and reads on: a read can be repeated.
                    Err(_) if !end.has_passed() && !self.shared.closed.is_cancelled() => {}
                    Err(_) => return Err(Error::Closed),
                }
            }
        };
        self.driven(pin!(answer)).await
    }

    /// Awaits a call that tasks of the client answer, on whatever runtime the caller is. (Pinned by reference, so that the future is not
    /// stored twice.)
    pub(crate) async fn driven<T>(
        &self,
        call: Pin<&mut impl Future<Output = Result<T, Error>>>,
    ) -> Result<T, Error> {
        if self.shared.options.own_thread {
            return call.await;
        }
        let pause = self.shared.options.request_limit + LATE;
        driven::driven(&self.shared.runtime, pause, call).await
    }

    /// Which server it is, and which of its databases: asked once.
    pub(crate) async fn home(&self) -> Result<Arc<Home>, Error> {
        let ask = || async {
            let rows = self.query(home::ASK.to_owned()).await?;
            let row = rows.first().ok_or(Error::Closed)?;
            let home = || {
                let version: String = row.try_get_unchecked(0)?;
                let database: Option<String> = row.try_get_unchecked(1)?;
                let compared: Option<String> = row.try_get_unchecked(2)?;
                let folded: i64 = row.try_get_unchecked(3)?;
                let (database, compared) = (database.unwrap_or_default(), compared);
                Ok(Home::new(
                    &version,
                    database,
                    compared.unwrap_or_default(),
                    folded != 0,
                ))
            };
            home().map(Arc::new).map_err(Error::from_sqlx)
        };
        self.home.get_or_try_init(ask).await.cloned()
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

    /// Whether the server cannot be reached, as far as is known.
    pub(crate) fn is_out(&self) -> bool {
        self.shared.outage.is_on()
    }

    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.shared.runtime
    }

    /// How often the server's clock was seen to be stepped.
    pub(crate) fn clock_steps(&self) -> u64 {
        self.shared.clock.steps()
    }

    /// Begins to end, once: takes no more requests, and goes on with those that came before.
    pub(crate) fn shut_down(&self) {
        shutdown::begin(&self.shared);
    }

    /// Waits until nothing of the engine runs any more. Whether all that was under way had come to its end.
    pub(crate) async fn ended(&self) -> bool {
        let ended = async {
            self.shared.ended.cancelled().await;
            Ok(())
        };
        self.driven(pin!(ended)).await.is_ok() && !self.shared.gave_up.load(Ordering::Acquire)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shut_down();
    }
}
