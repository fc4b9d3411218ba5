//! What the engine's tasks share, and where a request goes.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::EngineOptions;
use super::fresh::Fresh;
use super::group::Group;
use super::manner::Suspicion;
use super::outage::{Outage, Over};
use super::outcome::Outcome;
use super::pending::{Pending, UnderWay};
use super::pool::Pool;
use super::queue::LaneQueue;
use super::request::{Course, Member};
use super::server_clock::ServerClock;
use super::stage::{LaneKind, Stage};
use crate::clock::Moment;
use crate::sql::operation::Operation;
use crate::sql::reply::{self, RowState};
use crate::sql::row::RowKey;
use crate::stripe::{STRIPES, StripeSet};
use crate::telemetry;

/// For how many packets requests stand in line at a stripe after one that found others at its row: they come again.
const CROWDED: u8 = 64;

/// What the engine's tasks share.
pub(crate) struct Shared {
    pub(super) options: EngineOptions,
    /// Of the lanes that never wait, each.
    pub(super) lanes: Vec<Arc<LaneQueue>>,
    pub(super) stripes: Arc<LaneQueue>,
    pub(super) rows: Arc<LaneQueue>,
    /// Renewals whose lane does not answer.
    pub(super) rescue: Arc<LaneQueue>,
    pending: Arc<Pending>,
    /// By stripe: for how many more packets of its line requests go there at once.
    crowded: [AtomicU8; STRIPES as usize],
    pub(super) fresh: Fresh,
    /// Whether somebody keeps a stripe.
    suspicion: Mutex<Suspicion>,
    pub(super) pool: Arc<Pool>,
    pub(super) clock: ServerClock,
    pub(super) outage: Outage,
    /// Somebody has begun to end the engine.
    pub(super) ending: AtomicBool,
    /// The engine takes no more requests; then, no lane runs any more; then nothing.
    pub(super) closing: CancellationToken,
    pub(super) closed: CancellationToken,
    pub(super) ended: CancellationToken,
    /// Not all that was under way had come to its end by then.
    pub(super) gave_up: AtomicBool,
    pub(super) runtime: Handle,
    /// Lanes and settlements; then those that serve them.
    pub(super) tasks: Mutex<Vec<JoinHandle<()>>>,
    pub(super) helpers: Mutex<Vec<JoinHandle<()>>>,
}

impl Shared {
    /// For tasks on `runtime`, until all has `ended`.
    pub(super) fn new(options: EngineOptions, runtime: Handle, ended: CancellationToken) -> Self {
        let pending = Arc::new(Pending::default());
        let queue = |kind| Arc::new(LaneQueue::new(kind, Arc::clone(&pending)));
        let connect = options.connect.clone();
        let (limit, lanes) = (options.packet_limit, options.lanes);
        let pool = Pool::new(connect, limit, lanes, options.account_limit);
        Self {
            lanes: (0..options.lanes.max(1))
                .map(|_| queue(LaneKind::NeverWaits))
                .collect(),
            stripes: queue(LaneKind::WaitsForStripe),
            rows: queue(LaneKind::WaitsForRow),
            rescue: queue(LaneKind::NeverWaits),
            pending,
            crowded: [const { AtomicU8::new(0) }; STRIPES as usize],
            options,
            fresh: Fresh::default(),
            suspicion: Mutex::default(),
            pool: Arc::new(pool),
            clock: ServerClock::default(),
            outage: Outage::default(),
            ending: AtomicBool::new(false),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
            ended,
            gave_up: AtomicBool::new(false),
            runtime,
            tasks: Mutex::default(),
            helpers: Mutex::default(),
        }
    }

    fn queues(&self) -> impl Iterator<Item = &Arc<LaneQueue>> {
        let others = [&self.stripes, &self.rows, &self.rescue];
        self.lanes.iter().chain(others)
    }

    /// Where a request waits that has come so far. Those of one row have one lane: it is nowhere at once with itself, but for renewals,
    /// which may be repeated. Additions that run once are where their counter is.
    fn queue(&self, course: Course, key: &RowKey, second: Option<&RowKey>) -> &LaneQueue {
        match course.stage.lane_kind() {
            LaneKind::NeverWaits if course.rescue => &self.rescue,
            LaneKind::NeverWaits => {
                let stripe = second.unwrap_or(key).stripe();
                &self.lanes[stripe.index() % self.lanes.len()]
            }
            LaneKind::WaitsForStripe => &self.stripes,
            LaneKind::WaitsForRow => &self.rows,
        }
    }

    /// Whether a group waits in this queue, if it waits.
    pub(super) fn is_in(&self, group: &Group, queue: &LaneQueue) -> bool {
        let its = self.queue(group.course, &group.key, group.operation.second());
        std::ptr::eq(its, queue)
    }

    /// Takes no more requests, but for releases as long as others are under way.
    pub(super) fn close(&self) {
        for queue in self.queues() {
            queue.close();
        }
        self.pending.close();
    }

    /// A request is under way that no lane has, until what this gives is dropped.
    pub(super) fn enter(&self) -> UnderWay {
        self.pending.enter()
    }

    /// Hands a request to its lane.
    pub(super) fn push(&self, key: RowKey, mut member: Member) {
        if member.under_way.is_none() {
            member.under_way = Some(self.pending.enter());
        }
        if member.course.stage == Stage::Try && member.request.may_stand_in_line() {
            let crowded = &self.crowded[key.stripe().index()];
            if self.options.every_stripe || crowded.load(Ordering::Relaxed) > 0 {
                member.course.stage = Stage::Stripe { create: false };
            } else if self.fresh.is_likely(&key) {
                member.course.stage = self.creation();
                member.course.guessed = true;
            }
        }
        let queue = self.queue(member.course, &key, member.request.second());
        queue.push(key, member);
    }

    /// Where a request goes whose row is missing.
    fn creation(&self) -> Stage {
        if self.others_create() {
            Stage::Stripe { create: true }
        } else {
            Stage::Create
        }
    }

    /// Whether other clients create rows all the time.
    pub(super) fn others_create(&self) -> bool {
        self.fresh.others_create(Moment::now())
    }

    /// A packet has waited for all of these, with success or in vain.
    pub(super) fn waited_for_all(&self, stripes: StripeSet, in_vain: bool) {
        let now = Moment::now();
        self.suspicion().waited(stripes, in_vain, now);
    }

    /// Whether packets wait for the stripes of one request at a time.
    pub(super) fn is_careful(&self) -> bool {
        self.suspicion().is_careful(Moment::now())
    }

    fn suspicion(&self) -> MutexGuard<'_, Suspicion> {
        self.suspicion
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands groups that have changed nothing to the lanes of their stages: before others where they were already.
    pub(super) fn put(&self, groups: impl IntoIterator<Item = Group>, from: Option<LaneKind>) {
        for group in groups {
            let queue = self.queue(group.course, &group.key, group.operation.second());
            match group.course.stage.lane_kind() {
                // Who tries to create its row again does so behind those that can be served.
                LaneKind::NeverWaits
                    if group.course.stage == Stage::Create && group.course.tries > 0 =>
                {
                    queue.join([group], false);
                }
                LaneKind::NeverWaits => queue.put_back([group]),
                kind => queue.join([group], from == Some(kind)),
            }
        }
    }

    /// Tells a group its outcome.
    pub(super) fn answer(&self, group: Group, outcome: &Outcome, sent: Moment, settled: bool) {
        let key = group.key.clone();
        for member in group.finish(outcome, sent, settled) {
            self.push(key.clone(), member);
        }
    }

    /// Takes in whether others were at a row: then those who come stand in line at its stripe at once.
    pub(super) fn note_crowd(&self, group: &Group, row: Option<&RowState>, server_now: i64) {
        let crowded = &self.crowded[group.key.stripe().index()];
        if let Stage::Stripe { .. } = group.course.stage {
            // It becomes 0 at the least.
            let less = |left: u8| left.checked_sub(1);
            let _ = crowded.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
        let Some(row) = row else {
            return;
        };
        let is_new = row.is_new(server_now);
        let denied = group.course.not_created;
        if is_new && (denied || group.course.stage == Stage::Create) {
            self.fresh.created(denied, Moment::now());
        }
        // Of the others it does not say whether their names are new.
        if matches!(
            group.operation,
            Operation::Acquire(_) | Operation::Count(_) | Operation::Init(_)
        ) {
            self.fresh.saw(&group.key, is_new);
        }
        let others = match &group.operation {
            Operation::Once(_) => false,
            Operation::Acquire(_) if !row.granted => true,
            // A packet did not have the row, so it was taken to be missing; but it is there: others had it locked.
            _ => group.course.stage.creates() && !group.course.guessed && !is_new,
        };
        if others {
            crowded.store(CROWDED, Ordering::Relaxed);
        }
    }

    /// Nothing could be asked of the server.
    pub(super) fn unreachable(&self, error: &dyn Display) {
        telemetry::offline(error);
        if self.outage.failed(Moment::now()) {
            telemetry::outage_began(error);
        }
    }

    /// The server has answered.
    pub(super) fn reached(&self) {
        if let Some(Over { lasted, failures }) = self.outage.succeeded(Moment::now()) {
            telemetry::outage_over(lasted, failures);
        }
    }

    pub(super) fn observe(&self, reply: &reply::Reply, sent: Moment) {
        if let Some(step) = self.clock.observe(reply.server_now, sent, Moment::now()) {
            tracing::warn!(
                microseconds = step,
                "the server's clock was stepped: leases without fencing are not safe across it"
            );
        }
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let handle = self.runtime.spawn(task);
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|task| !task.is_finished());
        tasks.push(handle);
    }

    pub(super) fn spawn_helper(&self, task: impl Future<Output = ()> + Send + 'static) {
        let handle = self.runtime.spawn(task);
        let mut helpers = self.helpers.lock().unwrap_or_else(PoisonError::into_inner);
        helpers.push(handle);
    }
}
