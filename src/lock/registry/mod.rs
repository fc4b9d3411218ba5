//! All locks of one client: who waits, who holds, and what is on its way.

#[cfg(test)]
mod cost;
pub(crate) mod door;
pub(crate) mod ending;
pub(crate) mod in_use;
pub(crate) mod keeper;
pub(crate) mod lease;
mod linger;
mod pace;
mod permits;
mod place;
mod places;
mod rotation;
pub(crate) mod semaphore;
mod shared;
pub(crate) mod slot;
mod ticket;
pub(crate) mod together;
pub(crate) mod turn;
mod watcher;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use self::keeper::Keeper;
use self::lease::Lease;
use self::linger::Lingering;
use self::place::{Action, Asking, Place, Question, Waiter};
use self::places::Places;
use self::semaphore::AllPermits;
use self::shared::AllReaders;
pub(crate) use self::ticket::Entered;
use self::ticket::{Entering, Line, Ticket};
use super::terms::{Terms, Wait};
use crate::clock::{Moment, micros};
use crate::engine::Engine;
use crate::engine::outcome::{Answer, Outcome};
use crate::engine::request::{ReplyTo, Request};
use crate::error::Error;
use crate::mutant::{self, Mutant};
use crate::name::Name;
use crate::sql::operation::{Acquire, Operation, Want};
use crate::sql::reply::{ACTIVE, RowState};
use crate::sql::row::RowKey;
use crate::sql::wish::GivesWay;
use crate::telemetry;
use crate::timing::{LOCK_WAIT, LOOK_STANDING_BY};
use crate::token::Token;

/// What became of an acquire that was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InVain {
    /// The lock is held, or somebody has it next.
    Held,
    /// The wait is over, and nothing was heard of the lock for a while.
    NoNews,
    /// The wait is over, and its question was not answered.
    NoAnswer,
}

/// The locks of one client.
pub(crate) struct Locks {
    pub(crate) engine: Arc<Engine>,
    /// Who the client is, for others to see.
    held_by: Arc<str>,
    /// What our tokens begin with.
    client: u32,
    places: Mutex<Places>,
    all_permits: Mutex<AllPermits>,
    readers: Mutex<AllReaders>,
    pub(crate) keeper: Keeper,
    lingering: Lingering,
    /// A place has a new time to look.
    pub(crate) watch: Arc<Notify>,
    /// A semaphore has a new time to look.
    watch_permits: Arc<Notify>,
    /// Somebody who waits for a shared hold has a new time to look.
    watch_readers: Arc<Notify>,
    pub(crate) stopped: CancellationToken,
    next_id: AtomicU64,
    keep_at_close: AtomicBool,
}

impl Locks {
    pub(crate) fn start(engine: Arc<Engine>, held_by: &str) -> Arc<Self> {
        let client = rand::random();
        let locks = Arc::new(Self {
            engine,
            held_by: held_by.into(),
            client,
            lingering: Lingering::new(client),
            places: Mutex::default(),
            all_permits: Mutex::default(),
            readers: Mutex::default(),
            keeper: Keeper::default(),
            watch: Arc::default(),
            watch_permits: Arc::default(),
            watch_readers: Arc::default(),
            stopped: CancellationToken::new(),
            next_id: AtomicU64::new(1),
            keep_at_close: AtomicBool::new(false),
        });
        let (weak, stopped) = (Arc::downgrade(&locks), locks.stopped.clone());
        let earlier = Arc::clone(&locks.keeper.earlier);
        let keep = move || keeper::run(weak.clone(), Arc::clone(&earlier), stopped.clone());
        locks.engine.keep_running("the keeper of leases", keep);
        let (weak, stopped) = (Arc::downgrade(&locks), locks.stopped.clone());
        let changed = Arc::clone(&locks.watch);
        let watch = move || watcher::run(weak.clone(), Arc::clone(&changed), stopped.clone());
        locks.engine.keep_running("the watcher of locks", watch);
        let (weak, stopped) = (Arc::downgrade(&locks), locks.stopped.clone());
        let changed = Arc::clone(&locks.watch_permits);
        let watch = move || semaphore::run(weak.clone(), Arc::clone(&changed), stopped.clone());
        locks.engine.keep_running("the watcher of permits", watch);
        let (weak, stopped) = (Arc::downgrade(&locks), locks.stopped.clone());
        let changed = Arc::clone(&locks.watch_readers);
        let watch = move || shared::run(weak.clone(), Arc::clone(&changed), stopped.clone());
        locks
            .engine
            .keep_running("the watcher of shared holds", watch);
        let (weak, stopped) = (Arc::downgrade(&locks), locks.stopped.clone());
        let some = Arc::clone(&locks.lingering.some);
        let linger = move || linger::run(weak.clone(), Arc::clone(&some), stopped.clone());
        locks
            .engine
            .keep_running("the keeper of idle leases", linger);
        locks
    }

    /// What our tokens begin with.
    pub(crate) fn client(&self) -> u32 {
        self.client
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        // No place is left half changed: decisions do not panic.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Asks for a lock, or waits for it behind others. What it gives says how the wait ends.
    pub(crate) fn enter<'l>(
        self: &'l Arc<Self>,
        name: &'l Name,
        terms: Terms,
        wait: Wait,
        now: Moment,
    ) -> Result<Entered<'l>, Error> {
        let id = self.next_id();
        let hears = terms.may_linger() && self.lingering.hears(now);
        let mut actions = Vec::new();
        let enter = |place: &mut Place| {
            if let Some(turn) = place.take(&terms, hears, now) {
                self.lingering.wakes(&turn.lease);
                // A ring may be lost.
                if turn.lease.look_is_due(now, LOOK_STANDING_BY) {
                    actions.push(Action::LookForOthers(Arc::clone(&turn.lease)));
                }
                if keeper::has_rested(&turn.lease, now) {
                    actions.push(Action::Renew(Arc::clone(&turn.lease)));
                }
                return Entering::Taken(turn);
            }
            let (reply, receiver) = oneshot::channel();
            let waiter = Waiter {
                id,
                terms,
                once: wait == Wait::Not,
                asks: false,
                until: match wait {
                    Wait::Not => Some(now),
                    Wait::For(wait) => Some(now.after(wait)),
                    Wait::Forever => None,
                },
                reply,
            };
            match place.enter(waiter, now, &mut actions) {
                Some(_) => Entering::Refused,
                None => Entering::Waits(receiver),
            }
        };
        let entered = self.lock().change_or_make(name, self.client, now, enter);
        let entered = entered.ok_or(Error::Closed)?;
        self.carry_out(name, actions);
        let receiver = match entered {
            Entering::Taken(turn) => return Ok(Entered::Taken(turn)),
            Entering::Refused => return Ok(Entered::Refused),
            Entering::Waits(receiver) => receiver,
        };
        // From here on, dropping it takes the waiter out of the queue.
        Ok(Entered::Waits(Ticket {
            locks: self,
            line: Line::Place(name),
            wait,
            id,
            receiver,
            queued: true,
        }))
    }

    /// Changes a place, if there is one, and carries out what follows from that.
    fn change<T>(
        self: &Arc<Self>,
        name: &Name,
        change: impl FnOnce(&mut Place, &mut Vec<Action>) -> T,
    ) -> Option<T> {
        let mut actions = Vec::new();
        let result = self
            .lock()
            .change(name, |place| change(place, &mut actions))?;
        self.carry_out(name, actions);
        Some(result)
    }

    /// Changes the place of a lease. A permit and the slot of a job have none.
    fn change_of<T>(
        self: &Arc<Self>,
        lease: &Lease,
        change: impl FnOnce(&mut Place, &mut Vec<Action>) -> T,
    ) -> Option<T> {
        if !lease.has_place() {
            return None;
        }
        self.change(&lease.name, change)
    }

    fn carry_out(self: &Arc<Self>, name: &Name, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Ask(question) => self.ask(name, question),
                Action::Release { lease, announce } => self.release(&lease, announce, None),
                Action::Waits => telemetry::waits(),
                Action::Want(wait, ring) => {
                    telemetry::wished(name);
                    self.want(name, wait, ring);
                }
                Action::Ring(client) => self.ring(client, name),
                Action::NoLongerWant => self.want(name, Duration::ZERO, None),
                Action::Watch => self.watch.notify_one(),
                Action::LookForOthers(lease) => self.look_for_others(lease),
                Action::Renew(lease) => keeper::renew(self, &lease),
            }
        }
    }

    /// Sends an acquire; its answer comes back to the place.
    fn ask(self: &Arc<Self>, name: &Name, question: Question) {
        let terms = &question.terms;
        let token = terms.owner.unwrap_or_else(|| Token::of_client(self.client));
        let acquire = Acquire {
            token,
            ttl: micros(terms.lease()),
            block: terms.block(),
            level: terms.owner.map(|_| rand::random()),
            idles: terms.may_linger(),
            gives_way: if mutant::on(Mutant::NobodyGivesWay) {
                GivesWay::TO_NONE
            } else {
                question.gives_way
            },
            queues: matches!(question.asking, Asking::AtRow(_)),
            description: Arc::clone(&terms.description),
            held_by: Arc::clone(&self.held_by),
        };
        let operation = Operation::Acquire(acquire.clone());
        let mut limit = Moment::now().after(self.engine.request_limit());
        let mut shortened = false;
        if let Asking::AtRow(Some(until)) = question.asking {
            shortened = until < limit;
            limit = limit.min(until);
        }
        let (locks, place) = (Arc::clone(self), name.clone());
        let reply = ReplyTo::client(move |result| {
            // Its time was the first waiter's: the others go on.
            let result = match result {
                Err(_) if shortened && limit.has_passed() => Ok(None),
                other => other.map(Some),
            };
            locks.asked(&place, (token, acquire), question, result);
        });
        self.engine.submit(
            RowKey::lock(name.clone()),
            Request::Operation(operation),
            limit,
            reply,
        );
    }

    /// The answer to an acquire; `None` if it was not carried out before its time was over.
    fn asked(
        self: &Arc<Self>,
        name: &Name,
        (token, acquire): (Token, Acquire),
        question: Question,
        result: Result<Option<Answer>, Error>,
    ) {
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => return self.not_taken(name, &question, Err(error)),
        };
        match answer {
            Some(Answer {
                outcome: outcome @ Outcome::Granted { .. },
                sent,
                ..
            }) => self.took(name, token, question, &outcome, sent),
            Some(Answer {
                outcome: Outcome::Held(row),
                ..
            }) if row.is_shared() => self.shut(name, (token, acquire), question, row),
            Some(Answer {
                outcome: Outcome::Held(row),
                ..
            }) => self.not_taken(name, &question, Ok(Some(row))),
            _ => self.not_taken(name, &question, Ok(None)),
        }
    }

    /// An acquire was granted.
    fn took(
        self: &Arc<Self>,
        name: &Name,
        token: Token,
        question: Question,
        outcome: &Outcome,
        sent: Moment,
    ) {
        let Outcome::Granted {
            fence,
            remaining,
            until,
            wanted,
        } = outcome
        else {
            return;
        };
        let Question { terms, entrant, .. } = question;
        let lease = Lease::new(
            Arc::downgrade(self),
            RowKey::lock(name.clone()),
            (token, *fence),
            terms,
            (sent, *remaining, *until),
            *wanted > 0,
        );
        self.granted(Arc::new(lease), entrant, Moment::now());
    }

    /// An acquire was not granted: by this row, or since that was locked (`None`), or by an error.
    fn not_taken(
        self: &Arc<Self>,
        name: &Name,
        question: &Question,
        why: Result<Option<RowState>, Error>,
    ) {
        let now = Moment::now();
        let waits = self.change(name, |place, actions| {
            match (&why, question.entrant) {
                (Err(error), Some(id)) => place.fail_entrant(id, error),
                (Err(error), None) => place.fail(error, now, actions),
                (Ok(row), Some(id)) => place.not_entered(id, row.as_ref(), now, actions),
                (Ok(row), None) => place.refused(row.as_ref(), now, actions),
            }
            place.next_look().is_some()
        });
        if let Ok(Some(row)) = why
            && waits == Some(true)
        {
            self.drain(name, &row);
        }
    }

    fn granted(self: &Arc<Self>, lease: Arc<Lease>, entrant: Option<u64>, now: Moment) {
        self.keeper.add(&lease);
        if lease.terms.may_linger() {
            self.lingering.add(&lease);
        }
        let granted = Arc::clone(&lease);
        let known = self.change(&lease.name, |place, actions| match entrant {
            Some(id) => place.entered(id, granted, now, actions),
            None => place.granted(granted, now, actions),
        });
        // The client was closed meanwhile, or the place is gone: nobody is there to take it.
        if known.is_none() && lease.end() {
            self.release(&lease, false, None);
        }
    }

    /// Says in the row that this process waits for so long, so that its holder does not keep it in memory; then rings that client, whose
    /// lease may idle.
    pub(crate) fn want(self: &Arc<Self>, name: &Name, wait: Duration, ring: Option<u32>) {
        // What is taken back later than this does no more good than its own end.
        let most = if wait.is_zero() {
            LOCK_WAIT
        } else {
            Duration::MAX
        };
        // If it fails, the wait is longer, and no less safe.
        let told = match ring {
            None => ReplyTo::client(drop),
            Some(client) => {
                let (locks, name) = (Arc::clone(self), name.clone());
                ReplyTo::client(move |wished| {
                    if wished.is_ok() {
                        locks.ring(client, &name);
                    }
                })
            }
        };
        self.engine.submit(
            RowKey::lock(name.clone()),
            Request::Operation(Operation::Want(Want { wait: micros(wait) })),
            Moment::now().after(self.engine.request_limit().min(most)),
            told,
        );
    }

    fn look_for_others(self: &Arc<Self>, lease: Arc<Lease>) {
        let locks = Arc::clone(self);
        self.engine.runtime().spawn(async move {
            let seen = locks.engine.look(vec![lease.key()]);
            if let Ok(seen) = seen.await
                && let Some(row) = seen.first().copied().flatten()
            {
                locks.saw(&lease, &row);
            }
        });
    }

    /// What was seen of the row of a lease that is ours.
    fn saw(self: &Arc<Self>, lease: &Arc<Lease>, row: &RowState) {
        lease.set_wanted(row.wanted > 0);
        // Released by force, or granted to somebody else: no more turns of it. An older row than ours is what
        // another node of a cluster shows that is behind.
        if row.fence > lease.fence || (row.fence == lease.fence && row.status != ACTIVE) {
            self.lose(lease);
        } else if row.wanted > 0 {
            let _ = self.stop_lingering(lease);
        }
    }

    /// The names to look at now, and when to look next. A question to the server takes so long: `distance`.
    fn due(self: &Arc<Self>, now: Moment, distance: Duration) -> (Vec<Name>, Option<Moment>) {
        let (mut due, next) = self.lock().due(now);
        due.retain(|name| {
            let looks = self.change(name, |place, actions| place.is_due(distance, now, actions));
            looks.unwrap_or(false)
        });
        (due, next)
    }

    /// No look can succeed: whoever waits is told why.
    fn cannot_look(self: &Arc<Self>, names: &[Name], error: &Error) {
        let now = Moment::now();
        for name in names {
            let _ = self.change(name, |place, actions| {
                if place.next_look().is_some() {
                    place.fail(error, now, actions);
                }
            });
        }
    }

    /// What the watcher saw.
    fn looked(self: &Arc<Self>, names: &[Name], seen: &[Option<RowState>]) {
        let now = Moment::now();
        for (name, seen) in names.iter().zip(seen) {
            let waits = self.change(name, |place, actions| {
                place.looked(seen.as_ref(), now, actions);
                place.next_look().is_some()
            });
            if let Some(row) = seen
                && waits == Some(true)
            {
                self.drain(name, row);
            }
        }
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        self.stopped.cancel();
    }
}
