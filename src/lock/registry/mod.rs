//! All locks of one client: who waits, who holds, and what is on its way.

#[cfg(test)]
mod cost;
pub(crate) mod keeper;
pub(crate) mod lease;
mod pace;
mod place;
mod rotation;
pub(crate) mod turn;
mod watcher;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::keeper::Keeper;
use self::lease::Lease;
use self::place::{Action, Asking, Place, State, Unanswered, Waiter, give_back_quietly};
use self::turn::Turn;
use super::terms::{Terms, Wait};
use crate::clock::{Moment, from_micros, micros};
use crate::engine::Engine;
use crate::engine::outcome::{Answer, Outcome};
use crate::engine::request::{Reply, Request};
use crate::error::Error;
use crate::mutant::{self, Mutant};
use crate::name::Name;
use crate::sql::operation::{Acquire, Operation, Release, Want};
use crate::sql::reply::{ACTIVE, RowState};
use crate::sql::row::RowKey;
use crate::telemetry;
use crate::timing::WANT;
use crate::token::Token;

/// The place of a name; requests of an owner have one each, since they do not exclude each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PlaceKey {
    pub(crate) name: Name,
    alone: Option<u64>,
}

#[derive(Default)]
struct Places {
    map: HashMap<PlaceKey, Place>,
    /// Those that look at their row from time to time.
    watching: HashSet<PlaceKey>,
    /// What places knew that are gone, as long as it is of use.
    unanswered: HashMap<PlaceKey, Unanswered>,
    closed: bool,
}

/// More of them are looked through for those that are of no use any more.
const MOST_UNANSWERED: usize = 1_024;

impl Places {
    /// Changes a place, if there is one, and keeps the books about it.
    fn change<T>(&mut self, key: &PlaceKey, change: impl FnOnce(&mut Place) -> T) -> Option<T> {
        let place = self.map.get_mut(key)?;
        let watched = matches!(place.state, State::Watching);
        let result = change(place);
        let (done, watching) = (place.is_done(), matches!(place.state, State::Watching));
        if done && let Some(place) = self.map.remove(key) {
            let now = Moment::now();
            let unanswered = place.watch.unanswered;
            if !unanswered.is_over(now) {
                if self.unanswered.len() >= MOST_UNANSWERED {
                    self.unanswered.retain(|_, other| !other.is_over(now));
                }
                self.unanswered.insert(key.clone(), unanswered);
            }
        }
        if watching && !watched {
            self.watching.insert(key.clone());
        } else if watched && !watching {
            self.watching.remove(key);
        }
        Some(result)
    }
}

/// The locks of one client.
pub(crate) struct Locks {
    pub(crate) engine: Arc<Engine>,
    /// Who the client is, for others to see.
    held_by: Arc<str>,
    /// What our tokens begin with.
    client: u32,
    places: Mutex<Places>,
    pub(crate) keeper: Keeper,
    /// A place has a new time to look.
    pub(crate) watch: Arc<Notify>,
    pub(crate) stopped: CancellationToken,
    next_id: AtomicU64,
    keep_at_close: AtomicBool,
}

impl Locks {
    pub(crate) fn start(engine: Arc<Engine>, held_by: &str) -> Arc<Self> {
        let runtime = engine.runtime().clone();
        let locks = Arc::new(Self {
            engine,
            held_by: held_by.into(),
            client: rand::random(),
            places: Mutex::default(),
            keeper: Keeper::default(),
            watch: Arc::default(),
            stopped: CancellationToken::new(),
            next_id: AtomicU64::new(0),
            keep_at_close: AtomicBool::new(false),
        });
        runtime.spawn(keeper::run(
            Arc::downgrade(&locks),
            Arc::clone(&locks.keeper.earlier),
            locks.stopped.clone(),
        ));
        runtime.spawn(watcher::run(
            Arc::downgrade(&locks),
            Arc::clone(&locks.watch),
            locks.stopped.clone(),
        ));
        locks
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        // No place is left half changed: decisions do not panic.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires a lock; `None` when it is held and the wait is over.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        name: Name,
        terms: Terms,
        wait: Wait,
    ) -> Result<Option<Turn>, Error> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let key = PlaceKey {
            name,
            alone: terms.owner.map(|_| id),
        };
        let now = Moment::now();
        let (reply, mut receiver) = oneshot::channel();
        let waiter = Waiter {
            id,
            terms,
            once: wait == Wait::Not,
            until: match wait {
                Wait::Not => Some(now),
                Wait::For(wait) => Some(now.after(wait)),
                Wait::Forever => None,
            },
            reply,
        };
        let mut actions = Vec::new();
        let refused = {
            let mut places = self.lock();
            if places.closed {
                return Err(Error::Closed);
            }
            let Places {
                map, unanswered, ..
            } = &mut *places;
            let place = map.entry(key.clone());
            place.or_insert_with(|| Place::new(self.client, now, unanswered.remove(&key)));
            let refused = places.change(&key, |place| place.enter(waiter, &mut actions));
            refused.flatten().is_some()
        };
        self.carry_out(&key, actions);
        if refused {
            return Ok(None);
        }
        // From here on, dropping this future takes the waiter out of the queue.
        let mut ticket = Ticket {
            locks: self,
            key: &key,
            id,
            queued: true,
        };
        let longest = match wait {
            Wait::Not => Duration::ZERO,
            Wait::For(wait) => wait,
            Wait::Forever => {
                let answer = (&mut receiver).instrument(telemetry::wait(&key.name)).await;
                ticket.queued = false;
                return answer.map_err(|_| Error::Closed)?;
            }
        };
        let waiting = tokio::time::timeout(longest, &mut receiver);
        if let Ok(answer) = waiting.instrument(telemetry::wait(&key.name)).await {
            ticket.queued = false;
            return answer.map_err(|_| Error::Closed)?;
        }
        // An answer that is on its way is waited for: a short wait is one attempt.
        if !ticket.leave(true) {
            return Ok(None);
        }
        match tokio::time::timeout(self.engine.answer_limit(), &mut receiver).await {
            Ok(answer) => answer.map_err(|_| Error::Closed)?,
            Err(_) if ticket.leave(false) => receiver.await.map_err(|_| Error::Closed)?,
            // The place goes on: a grant that comes is the next one's, or is given back.
            Err(_) => Err(Error::OutcomeUnknown {
                name: key.name.to_string(),
            }),
        }
    }

    /// Changes a place, if there is one, and carries out what follows from that.
    fn change<T>(
        self: &Arc<Self>,
        key: &PlaceKey,
        change: impl FnOnce(&mut Place, &mut Vec<Action>) -> T,
    ) -> Option<T> {
        let mut actions = Vec::new();
        let result = self
            .lock()
            .change(key, |place| change(place, &mut actions))?;
        self.carry_out(key, actions);
        Some(result)
    }

    fn carry_out(self: &Arc<Self>, key: &PlaceKey, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Ask(terms, asking) => self.ask(key, terms, asking),
                Action::Release { lease, announce } => {
                    self.release(announce.then(|| key.clone()), &lease, None);
                }
                Action::Want => {
                    telemetry::waiting(&key.name);
                    self.want(&key.name, WANT);
                }
                Action::NoLongerWant => self.want(&key.name, Duration::ZERO),
                Action::Watch => self.watch.notify_one(),
                Action::LookForOthers(lease) => self.look_for_others(lease),
            }
        }
    }

    /// Sends an acquire; its answer comes back to the place.
    fn ask(self: &Arc<Self>, key: &PlaceKey, terms: Terms, asking: Asking) {
        let token = terms.owner.unwrap_or_else(|| Token::of_client(self.client));
        let operation = Operation::Acquire(Acquire {
            token,
            ttl: micros(terms.lease()),
            block: terms.block(),
            level: terms.owner.map(|_| rand::random()),
            gives_way: asking == Asking::New,
            queues: matches!(asking, Asking::AtRow(_)),
            description: Arc::clone(&terms.description),
            held_by: Arc::clone(&self.held_by),
        });
        let mut limit = Moment::now().after(self.engine.request_limit());
        let mut shortened = false;
        if let Asking::AtRow(Some(until)) = asking {
            shortened = until < limit;
            limit = limit.min(until);
        }
        let (locks, place) = (Arc::clone(self), key.clone());
        let reply = Reply::client(move |result| {
            locks.asked(&place, (token, shortened), terms, result);
        });
        self.engine.submit(
            RowKey::lock(key.name.clone()),
            Request::Operation(operation),
            limit,
            reply,
        );
    }

    /// The answer to an acquire.
    fn asked(
        self: &Arc<Self>,
        key: &PlaceKey,
        (token, shortened): (Token, bool),
        terms: Terms,
        result: Result<Answer, Error>,
    ) {
        let now = Moment::now();
        let mut lease = None;
        if let Ok(Answer {
            outcome:
                Outcome::Granted {
                    fence,
                    remaining,
                    wanted,
                },
            sent,
            ..
        }) = &result
        {
            let granted = Arc::new(Lease::new(
                Arc::downgrade(self),
                key.name.clone(),
                (token, *fence),
                terms,
                (*sent, *remaining),
                *wanted > 0,
            ));
            self.keeper.add(&granted);
            lease = Some(granted);
        }
        let granted = lease.clone();
        let known = self.change(key, |place, actions| match (&result, lease) {
            (Ok(_), Some(lease)) => place.granted(lease, now, actions),
            (Ok(answer), None) => {
                let row = match &answer.outcome {
                    Outcome::Held(row) => Some(row),
                    _ => None,
                };
                place.refused(row, now, actions);
            }
            // Its time was the first waiter's: the others go on.
            (Err(_), _) if shortened => place.refused(None, now, actions),
            (Err(error), _) => place.fail(error, now, actions),
        });
        // The client was closed meanwhile, or the place is gone: nobody is there to take it.
        if known.is_none()
            && let Some(lease) = granted
        {
            lease.end();
            self.release(None, &lease, None);
        }
    }

    /// Ends a task's turn. `told` learns whether the lock was still ours.
    pub(crate) fn end_turn(
        locks: &Arc<Self>,
        lease: &Arc<Lease>,
        told: Option<oneshot::Sender<Result<(), Error>>>,
    ) {
        let key = PlaceKey {
            name: lease.name.clone(),
            alone: None,
        };
        let now = Moment::now();
        let mut told = told;
        let mut actions = Vec::new();
        let passed = {
            let mut places = locks.lock();
            let alone = lease.terms.owner.is_none();
            let passed = alone
                .then(|| places.change(&key, |place| place.end_turn(lease, now, &mut actions)));
            passed.flatten().unwrap_or_else(|| {
                if !lease.has_ended() {
                    actions.push(give_back_quietly(lease));
                }
                false
            })
        };
        if passed {
            telemetry::handed_on(&lease.name);
            if let Some(told) = told.take() {
                // Who releases may have gone away.
                drop(told.send(Ok(())));
            }
        }
        for action in actions {
            match action {
                Action::Release { lease, announce } => {
                    locks.release(announce.then(|| key.clone()), &lease, told.take());
                }
                other => locks.carry_out(&key, vec![other]),
            }
        }
        if let Some(told) = told {
            let result = if lease.was_released() {
                Ok(())
            } else {
                Err(Error::LockLost {
                    name: lease.name.to_string(),
                })
            };
            drop(told.send(result));
        }
    }

    /// Sends a release. It is tried until it is known, or the lease has ended by itself.
    fn release(
        self: &Arc<Self>,
        key: Option<PlaceKey>,
        lease: &Arc<Lease>,
        told: Option<oneshot::Sender<Result<(), Error>>>,
    ) {
        // A transaction that used the lease may be open: whoever waits is told that first, since it may be his own.
        self.send_release(key, lease, told, !lease.was_in_transaction());
    }

    /// `queues`: it waits for a transaction that holds the row.
    fn send_release(
        self: &Arc<Self>,
        key: Option<PlaceKey>,
        lease: &Arc<Lease>,
        told: Option<oneshot::Sender<Result<(), Error>>>,
        queues: bool,
    ) {
        if !mutant::on(Mutant::RenewalAfterRelease) {
            self.keeper.remove(lease);
        }
        let operation = Operation::Release(Release {
            token: lease.token,
            fence: lease.fence,
            used: lease.current_turn(),
            hold: lease.hold_left(),
            level: lease.terms.owner.map(|_| rand::random()),
            queues,
        });
        let expires = Moment::now()
            .after(lease.trusted_for())
            .after(self.engine.request_limit());
        let (locks, name) = (Arc::clone(self), lease.name.clone());
        let held = Moment::now().since(lease.granted);
        let ended = Arc::clone(lease);
        let reply = Reply::client(move |result| {
            if !queues && matches!(&result, Ok(answer) if answer.outcome == Outcome::Busy) {
                locks.release_is_busy(key, &ended, told);
                return;
            }
            let (wanted, fence) = match &result {
                Ok(Answer {
                    outcome: Outcome::Released { fence, wanted },
                    ..
                }) => (*wanted, Some(*fence)),
                _ => (0, None),
            };
            if let Some(key) = key {
                let now = Moment::now();
                // A closed client has no places any more.
                let _ = locks.change(&key, |place, actions| {
                    place.released(from_micros(wanted), fence, now, actions);
                });
            }
            let result = match result {
                Ok(Answer {
                    outcome: Outcome::Released { .. },
                    ..
                }) => {
                    telemetry::released(&name, held);
                    Ok(())
                }
                // The reply was lost, and somebody else has acquired the lock since. It ran before the lease
                // ended, when the lock was still ours.
                Ok(answer) if answer.settled && !ended.trusted_for().is_zero() => Ok(()),
                Ok(_) => Err(Error::LockLost {
                    name: name.to_string(),
                }),
                Err(error) => Err(error),
            };
            match told {
                Some(told) => drop(told.send(result)),
                None => {
                    if let Err(error) = result {
                        telemetry::release_failed(&name, &error);
                    }
                }
            }
        });
        self.engine.submit(
            RowKey::lock(lease.name.clone()),
            Request::Operation(operation),
            expires,
            reply,
        );
        if mutant::on(Mutant::RenewalAfterRelease) {
            keeper::renew(self, lease);
        }
    }

    /// A transaction holds the row of a lease that is to be released: that is told, and waited for behind the scenes.
    fn release_is_busy(
        self: &Arc<Self>,
        key: Option<PlaceKey>,
        lease: &Arc<Lease>,
        told: Option<oneshot::Sender<Result<(), Error>>>,
    ) {
        if let Some(told) = told {
            let name = lease.name.to_string();
            // Who releases may have gone away.
            drop(told.send(Err(Error::Busy { name })));
        }
        if let Some(key) = &key {
            // A closed client has no places any more.
            let _ = self.change(key, |place, _| place.release_is_busy());
        }
        self.send_release(key, lease, None, true);
    }

    /// Says in the row that this process waits for so long, so that its holder does not keep it in memory.
    pub(crate) fn want(&self, name: &Name, wait: Duration) {
        self.engine.submit(
            RowKey::lock(name.clone()),
            Request::Operation(Operation::Want(Want { wait: micros(wait) })),
            Moment::now().after(self.engine.request_limit()),
            // If it fails, the wait is longer, and no less safe.
            Reply::client(drop),
        );
    }

    fn look_for_others(self: &Arc<Self>, lease: Arc<Lease>) {
        let locks = Arc::clone(self);
        self.engine.runtime().spawn(async move {
            let seen = locks.engine.look(vec![RowKey::lock(lease.name.clone())]);
            if let Ok(seen) = seen.await
                && let Some(row) = seen.first().copied().flatten()
            {
                lease.set_wanted(row.wanted > 0);
                // Released by force, or granted to somebody else: no more turns of it. An older row than ours is what
                // another node of a cluster shows that is behind.
                if row.fence > lease.fence || (row.fence == lease.fence && row.status != ACTIVE) {
                    locks.lose(&lease);
                }
            }
        });
    }

    /// A renewal, or the clock, found that the lease is not ours any more.
    pub(crate) fn lose(self: &Arc<Self>, lease: &Arc<Lease>) {
        if !lease.lose() {
            return;
        }
        telemetry::lose(&lease.name).in_scope(|| {
            telemetry::lost(&lease.name, Moment::now().since(lease.granted));
            self.move_on(lease);
        });
    }

    /// The lease is over while its guard is alive: the others ask the table.
    fn move_on(self: &Arc<Self>, lease: &Arc<Lease>) {
        let key = PlaceKey {
            name: lease.name.clone(),
            alone: None,
        };
        let _ = self.change(&key, |place, actions| place.lost(lease, actions));
    }

    /// A transaction of the holder's released the lease, and has committed.
    pub(crate) fn released_in_transaction(self: &Arc<Self>, lease: &Arc<Lease>) {
        lease.note_release();
        lease.end();
        self.keeper.remove(lease);
        self.move_on(lease);
    }

    /// The names to look at now, and when to look next.
    pub(crate) fn due(&self, now: Moment) -> (Vec<PlaceKey>, Option<Moment>) {
        let places = self.lock();
        let mut due = Vec::new();
        let mut next: Option<Moment> = None;
        for key in &places.watching {
            let Some(place) = places.map.get(key) else {
                continue;
            };
            if place.watch.next <= now {
                due.push(key.clone());
            } else {
                next = Some(next.map_or(place.watch.next, |next| next.min(place.watch.next)));
            }
        }
        (due, next)
    }

    /// What the watcher saw.
    pub(crate) fn looked(self: &Arc<Self>, keys: Vec<PlaceKey>, seen: &[Option<RowState>]) {
        let now = Moment::now();
        for (key, seen) in keys.iter().zip(seen) {
            let _ = self.change(key, |place, actions| {
                place.looked(seen.as_ref(), now, actions);
            });
        }
    }

    /// Stops: who waits is told, and who holds is released or kept.
    pub(crate) fn close(self: &Arc<Self>, release: bool) {
        let map = {
            let mut places = self.lock();
            places.closed = true;
            std::mem::take(&mut places.map)
        };
        for (_, mut place) in map {
            place.fail(&Error::Closed, Moment::now(), &mut Vec::new());
        }
        self.keep_at_close.store(!release, Ordering::Release);
        for lease in self.keeper.close() {
            self.close_lease(&lease);
        }
        self.stopped.cancel();
    }

    /// The client is closed: the lease is released, or left to its end, of which its signal still tells.
    pub(crate) fn close_lease(self: &Arc<Self>, lease: &Arc<Lease>) {
        if lease.has_ended() {
            return;
        }
        if self.keep_at_close.load(Ordering::Acquire) {
            self.engine
                .runtime()
                .spawn(keeper::watch_the_end(Arc::clone(lease)));
            return;
        }
        lease.lose();
        lease.end();
        self.release(None, lease, None);
    }
}

/// A waiter's place in the queue, given up on drop.
struct Ticket<'l> {
    locks: &'l Arc<Locks>,
    key: &'l PlaceKey,
    id: u64,
    /// As far as the waiter knows.
    queued: bool,
}

impl Ticket<'_> {
    /// Leaves the queue. Whether an answer is on its way, if that is to be waited for.
    fn leave(&self, stay: bool) -> bool {
        self.locks
            .change(self.key, |place, actions| {
                place.leave(self.id, stay, Moment::now(), actions)
            })
            .unwrap_or(true)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.queued {
            self.leave(false);
        }
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        self.stopped.cancel();
    }
}
