//! Leases that idle: released here, and still this process's on the server, so that the next acquire here costs no statement.
//!
//! Whoever wants such a lease elsewhere says so in the lock's row and rings the bell of this client ([`crate::sql::bell`]), which is read
//! every few milliseconds as long as there are leases that may idle. What was rung for is looked at, and given back if it is wanted.
//!
//! An idle lease is taken again only if the bell was heard a moment ago: who is cut off must not take what others may have freed by force.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sqlx::Row;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Locks;
use super::lease::Lease;
use crate::clock::Moment;
use crate::error::Error;
use crate::mutant::{self, Mutant};
use crate::name::Name;
use crate::sql::bell::{self, Rung};
use crate::sql::reply::RowState;
use crate::timing::{HEARD, LANE_AGE, LIVELY, TICK, TICK_AT_REST};
use crate::token::Token;

/// So many leases of a client idle at the most.
const MOST: usize = 16_384;
/// When there are more, so many of them are given back at once.
const AT_ONCE: usize = 1_024;
/// So many rows are looked at at once.
const ROWS: usize = 1_024;

/// The leases of a client that may idle.
pub(crate) struct Lingering {
    bell: Token,
    leases: Mutex<HashMap<u64, Arc<Lease>>>,
    idle: AtomicUsize,
    /// When the last reading of the bell was sent that was answered, in microseconds of [`Moment`].
    heard: AtomicI64,
    /// When the first of them has idled for long enough, in microseconds of [`Moment`]; or sooner.
    sweep: AtomicI64,
    /// There is a lease that may idle.
    pub(crate) some: Arc<Notify>,
}

impl Lingering {
    pub(super) fn new(client: u32) -> Self {
        Self {
            bell: Token::bell_of(client),
            leases: Mutex::default(),
            idle: AtomicUsize::new(0),
            heard: AtomicI64::new(i64::MIN),
            sweep: AtomicI64::new(i64::MAX),
            some: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Lease>>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lease that may idle was granted.
    pub(super) fn add(&self, lease: &Arc<Lease>) {
        let mut leases = self.lock();
        leases.insert(lease.number, Arc::clone(lease));
        if leases.len() == 1 {
            self.some.notify_one();
        }
    }

    /// It is over.
    pub(super) fn remove(&self, lease: &Lease) {
        if self.lock().remove(&lease.number).is_some() {
            self.wakes(lease);
        }
    }

    /// It idles from now on.
    pub(super) fn idles(&self, lease: &Lease, now: Moment) {
        if lease.set_idle_since(Some(now)).is_none() {
            self.idle.fetch_add(1, Ordering::Relaxed);
        }
        let end = now.after(lease.terms.linger).as_micros();
        if self.sweep.load(Ordering::Relaxed) > end {
            self.sweep.fetch_min(end, Ordering::Relaxed);
        }
    }

    /// It idles no more.
    pub(super) fn wakes(&self, lease: &Lease) {
        if lease.set_idle_since(None).is_some() {
            self.idle.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the bell was heard a moment before `now`.
    pub(super) fn hears(&self, now: Moment) -> bool {
        let heard = self.heard.load(Ordering::Acquire);
        heard != i64::MIN && now.since(Moment::from_micros(heard)) <= HEARD
    }

    fn which(&self, which: impl Fn(&Lease) -> bool) -> Vec<Arc<Lease>> {
        let leases = self.lock();
        leases
            .values()
            .filter(|lease| which(lease))
            .cloned()
            .collect()
    }

    fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Those that have idled for as long as they may; and those that idle longest, if there are too many.
    fn over(&self, now: Moment) -> Vec<Arc<Lease>> {
        if self.idle.load(Ordering::Relaxed) > MOST {
            let mut idle = self.which(|lease| lease.idle_since().is_some());
            idle.sort_by_key(|lease| lease.idle_since());
            idle.truncate((idle.len() + AT_ONCE).saturating_sub(MOST));
            return idle;
        }
        if self.sweep.load(Ordering::Relaxed) > now.as_micros() {
            return Vec::new();
        }
        // Who begins to idle meanwhile makes it sooner.
        self.sweep.store(i64::MAX, Ordering::Relaxed);
        let end = |lease: &Lease| Some(lease.idle_since()?.after(lease.terms.linger));
        let over = self.which(|lease| end(lease).is_some_and(|end| end <= now));
        let rest = self.lock().values().filter_map(|lease| end(lease)).min();
        if let Some(rest) = rest {
            self.sweep.fetch_min(rest.as_micros(), Ordering::Relaxed);
        }
        over
    }
}

/// What the bell said last.
#[derive(Default)]
struct Ear {
    times: Option<u64>,
}

impl Ear {
    /// Those leases for which it was rung since it was read last.
    fn rung_for(&mut self, rung: &Rung, lingering: &Lingering) -> Vec<Arc<Lease>> {
        let before = self.times.replace(rung.times);
        match before.and_then(|before| rung.since(before)) {
            Some([]) => Vec::new(),
            Some(names) => lingering.which(|lease| names.contains(&bell::hash(&lease.name))),
            // All of them, perhaps.
            None => lingering.which(|_| true),
        }
    }
}

/// Runs until the client is closed or gone.
pub(crate) async fn run(locks: Weak<Locks>, some: Arc<Notify>, stopped: CancellationToken) {
    let mut ear = Ear::default();
    let mut made: Option<Moment> = None;
    let mut rung = Moment::now();
    loop {
        let Some(strong) = locks.upgrade() else {
            return;
        };
        let lingering = &strong.lingering;
        if lingering.is_empty() {
            drop(strong);
            tokio::select! {
                () = stopped.cancelled() => return,
                () = some.notified() => continue,
            }
        }
        let now = Moment::now();
        // A purge takes what nobody has used for long.
        if made.is_none_or(|made| now.since(made) > LANE_AGE / 4) {
            made = strong
                .engine
                .query_once(bell::make(lingering.bell))
                .await
                .is_ok()
                .then_some(now);
        }
        match strong.hear().await {
            Ok(Some(said)) => {
                let mut meant = ear.rung_for(&said, lingering);
                if mutant::on(Mutant::BellUnheard) {
                    meant.clear();
                }
                // Nobody takes them again before they were looked at.
                meant.iter().for_each(|lease| lease.set_wanted(true));
                if !meant.is_empty() {
                    rung = now;
                }
                for some in meant.chunks(ROWS) {
                    if !strong.look_at(some).await {
                        ear.times = None;
                    }
                }
                lingering.heard.store(now.as_micros(), Ordering::Release);
            }
            // Somebody took it: it is made again, and all is looked at.
            Ok(None) => (made, ear.times) = (None, None),
            Err(error) => {
                // What was freed by force meanwhile, nobody rings for again.
                ear.times = None;
                tracing::debug!(%error, "cannot hear whether an idle lease is wanted");
            }
        }
        let now = Moment::now();
        for lease in lingering.over(now) {
            let _ = strong.stop_lingering(&lease);
        }
        let tick = if now.since(rung) < LIVELY {
            TICK
        } else {
            TICK_AT_REST
        };
        drop(strong);
        tokio::select! {
            () = stopped.cancelled() => return,
            () = tokio::time::sleep(tick) => {}
        }
    }
}

impl Locks {
    /// Reads this client's bell; `None` if it is not there.
    async fn hear(&self) -> Result<Option<Rung>, Error> {
        let rows = self
            .engine
            .query_once(bell::read(self.lingering.bell))
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let text: String = row.try_get_unchecked(0).map_err(Error::from_sqlx)?;
        // One that cannot be read is one of which nothing is known.
        Ok(Rung::decode(&text))
    }

    /// Looks at the rows of leases that were rung for, perhaps. Whether they were seen.
    async fn look_at(self: &Arc<Self>, leases: &[Arc<Lease>]) -> bool {
        let key = |lease: &Arc<Lease>| lease.key();
        let Ok(seen) = self.engine.look(leases.iter().map(key).collect()).await else {
            return false;
        };
        for (lease, row) in leases.iter().zip(seen) {
            match row {
                Some(row) => self.saw(lease, &row),
                // Deleted by hand.
                None => {
                    let _ = self.stop_lingering(lease);
                }
            }
        }
        true
    }

    /// A lease that idles is given back, since it is wanted, or nobody has needed it for long.
    /// Whether it idled.
    pub(super) fn stop_lingering(self: &Arc<Self>, lease: &Arc<Lease>) -> bool {
        let stopped = self.change_of(lease, |place, actions| place.stop_lingering(lease, actions));
        stopped == Some(true)
    }

    /// Gives back what idles here of a name, and waits for that: what comes next cannot use it. Whether it is known to be free.
    pub(crate) async fn wake(self: &Arc<Self>, name: &Name) -> bool {
        let Some(lease) = self.change(name, |place, _| place.wake()).flatten() else {
            return false;
        };
        let (told, known) = tokio::sync::oneshot::channel();
        self.release(&lease, true, Some(told));
        let known = pin!(async { known.await.map_err(|_| Error::Closed)? });
        let limit = self.engine.request_limit();
        let answer = tokio::time::timeout(limit, self.engine.driven(known)).await;
        // However it ended: what comes next finds out.
        matches!(answer, Ok(Ok(())))
    }

    /// Says in a row that was seen that somebody waits for so long; or, if that is known, rings again if its lease may idle. Where the lock
    /// is held shared, no more is to be.
    pub(crate) fn ask_for(self: &Arc<Self>, name: &Name, row: &RowState, wait: Duration) {
        self.drain(name, row);
        match row.rung_client() {
            ring if row.wanted == 0 => self.want(name, wait, ring),
            Some(client) => self.ring(client, name),
            None => {}
        }
    }

    /// Rings for a lock whose holder's lease may idle. It is no loss if that fails: who waits rings again.
    pub(crate) fn ring(self: &Arc<Self>, client: u32, name: &Name) {
        let (locks, name) = (Arc::clone(self), name.clone());
        let ring = async move { locks.ring_once(client, &name).await };
        self.engine.runtime().spawn(ring);
    }

    /// The same, and waits for it.
    pub(crate) async fn ring_once(&self, client: u32, name: &Name) {
        let ring = bell::ring(Token::bell_of(client), name);
        if let Err(error) = self.engine.query_once(ring).await {
            tracing::debug!(%error, "cannot ring for a lock");
        }
    }
}
