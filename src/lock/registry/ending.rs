//! How leases end: released, lost, or closed with their client.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;
use tracing::Instrument;

use super::lease::Lease;
use super::place::{Action, Place, TurnOver};
use super::{Locks, keeper};
use crate::clock::{Moment, from_micros};
use crate::engine::outcome::{Answer, Outcome};
use crate::engine::request::{ReplyTo, Request};
use crate::error::Error;
use crate::mutant::{self, Mutant};
use crate::name::Name;
use crate::sql::operation::{Operation, Release};
use crate::sql::row::Kind;
use crate::telemetry;

/// Who releases, and hears whether the lock was still ours. It may have gone away.
pub(super) type Told = oneshot::Sender<Result<(), Error>>;

/// How a lease ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Its row is free. Its place may wait to hear.
    Free { announce: bool },
    /// The slot of a job: it is done.
    Done,
}

impl End {
    fn is_announced(self) -> bool {
        self == Self::Free { announce: true }
    }
}

pub(super) fn lock_lost(name: &Name) -> Error {
    Error::LockLost {
        name: name.to_string(),
    }
}

/// What became of a turn that has ended.
pub(crate) enum TurnEnd {
    /// It went without a statement, or the lease was over before.
    Known(Result<(), Error>),
    /// The lease is being released: whether it was still ours is told here.
    Sent(oneshot::Receiver<Result<(), Error>>),
}

impl Locks {
    /// Ends a task's turn. `last`: no other task has the lease together with this one; `hears`: somebody waits to hear how.
    pub(crate) fn end_turn(
        locks: &Arc<Self>,
        lease: &Arc<Lease>,
        last: bool,
        hears: bool,
    ) -> TurnEnd {
        if !lease.is_joint() {
            lease.hold.end();
        }
        let now = Moment::now();
        // The holder was told that the lease is lost, and is told so again without waiting for the server. A release is sent all the same: if
        // the lease is not lost, that frees the lock.
        let was_lost = lease.is_lost() && !lease.was_released();
        let mut actions = Vec::new();
        let heard = lease.terms.may_linger() && locks.lingering.hears(now);
        let end = |place: &mut Place| {
            let over = place.end_turn(lease, heard, now, &mut actions);
            if over == TurnOver::Lingers {
                locks.lingering.idles(lease, now);
                lease.hold.rests();
            }
            over
        };
        let over = if lease.has_place() {
            locks.lock().change(&lease.name, end)
        } else if lease.kind == Kind::Shared {
            locks.end_shared(lease, &mut actions)
        } else {
            locks.end_permit(lease, now, &mut actions)
        };
        // The client is closed: others who have it together with this task keep it, if they do.
        let alone = last || lease.parts().is_empty();
        let over = over.or((!alone).then_some(TurnOver::Shared));
        // The client is closed, or it is the slot of a job. Whoever ends the lease releases it, once: an owner's levels are counted.
        if over.is_none() && lease.end() {
            actions.push(Action::Release {
                lease: Arc::clone(lease),
                announce: false,
            });
        }
        let mut sent = None;
        for action in actions {
            match action {
                Action::Release { lease, announce } => {
                    let told = (hears && !was_lost).then(|| {
                        let (told, receiver) = oneshot::channel();
                        sent = Some(receiver);
                        told
                    });
                    locks.release(&lease, announce, told);
                }
                other => locks.carry_out(&lease.name, vec![other]),
            }
        }
        match over {
            Some(TurnOver::HandedOn) => {
                telemetry::handed_on(&lease.name);
                return TurnEnd::Known(Ok(()));
            }
            Some(TurnOver::Lingers | TurnOver::Shared) if !was_lost => {
                return TurnEnd::Known(Ok(()));
            }
            Some(TurnOver::Over | TurnOver::Lingers | TurnOver::Shared) | None => {}
        }
        match sent {
            Some(receiver) => TurnEnd::Sent(receiver),
            None if lease.was_released() => TurnEnd::Known(Ok(())),
            // Another one of its tasks releases it.
            None if lease.is_joint() && !was_lost => TurnEnd::Known(Ok(())),
            None => TurnEnd::Known(Err(lock_lost(&lease.name))),
        }
    }

    /// Sends a release. It is tried until it is known, or the lease has ended by itself. `announce`: its place waits to hear.
    pub(super) fn release(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        announce: bool,
        told: Option<Told>,
    ) {
        self.end_with(lease, End::Free { announce }, told);
    }

    /// The same of a lease that ends so.
    pub(super) fn end_with(self: &Arc<Self>, lease: &Arc<Lease>, end: End, told: Option<Told>) {
        // A transaction that used the lease may be open: whoever waits is told that first, since it may be his own.
        self.send_release(lease, end, told, !lease.was_in_transaction());
    }

    /// `queues`: it waits for a transaction that holds the row.
    fn send_release(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        end: End,
        told: Option<Told>,
        queues: bool,
    ) {
        if !mutant::on(Mutant::RenewalAfterRelease) {
            self.keeper.remove(lease);
        }
        self.lingering.remove(lease);
        let operation = Operation::Release(Release {
            token: lease.token,
            fence: lease.fence,
            used: lease.current_turn(),
            hold: lease.hold_left(),
            level: lease.terms.owner.map(|_| rand::random()),
            until: lease.told_until(),
            queues,
            finishes: end == End::Done,
        });
        let expires = Moment::now()
            .after(lease.trusted_for())
            .after(self.engine.request_limit());
        let (locks, ended) = (Arc::clone(self), Arc::clone(lease));
        let held = Moment::now().since(lease.granted);
        let reply = ReplyTo::client(move |result| {
            if !queues && matches!(&result, Ok(answer) if answer.outcome == Outcome::Busy) {
                locks.release_is_busy(&ended, end, told);
                return;
            }
            if end.is_announced() {
                locks.announce(&ended, &result);
            }
            let result = match result {
                Ok(Answer {
                    outcome: Outcome::Released { done, .. },
                    ..
                }) => {
                    if done {
                        // By this, or before by a transaction of the holder's.
                        ended.note_release();
                        telemetry::finished(&ended.name, held);
                    } else {
                        telemetry::released(&ended.name, held);
                    }
                    Ok(())
                }
                // Nobody acquires a slot that is done.
                Ok(_) if end == End::Done => Err(lock_lost(&ended.name)),
                // The reply was lost, and somebody else has acquired the lock since. It ran before the lease
                // ended, when the lock was still ours.
                Ok(answer) if answer.settled && !ended.trusted_for().is_zero() => Ok(()),
                Ok(_) => Err(lock_lost(&ended.name)),
                Err(error) => Err(error),
            };
            match (told, result) {
                (Some(told), result) => drop(told.send(result)),
                (None, Err(error)) => telemetry::release_failed(&ended.name, &error),
                (None, Ok(())) => {}
            }
        });
        self.engine
            .submit(lease.key(), Request::Operation(operation), expires, reply);
        if mutant::on(Mutant::RenewalAfterRelease) {
            keeper::renew(self, lease);
        }
    }

    /// Waits to hear how a release ended.
    pub(crate) async fn until_released(
        &self,
        lease: &Lease,
        receiver: oneshot::Receiver<Result<(), Error>>,
    ) -> Result<(), Error> {
        let limit = lease.trusted_for() + self.engine.answer_limit();
        let answer = pin!(async { receiver.await.map_err(|_| Error::Closed)? });
        let waiting = tokio::time::timeout(limit, self.engine.driven(answer));
        match waiting.instrument(telemetry::release(&lease.name)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::OutcomeUnknown {
                name: lease.name.to_string(),
            }),
        }
    }

    /// A transaction holds the row of a lease that is to be released: that is told, and waited for behind the scenes.
    fn release_is_busy(self: &Arc<Self>, lease: &Arc<Lease>, end: End, told: Option<Told>) {
        if let Some(told) = told {
            let name = lease.name.to_string();
            drop(told.send(Err(Error::Busy { name })));
        }
        if end.is_announced() {
            // A closed client has no places any more.
            let _ = self.change_of(lease, |place, _| place.release_is_busy());
            let now = Moment::now();
            self.change_seat(lease, |permits, slot, actions| {
                permits.release_is_busy(slot, now, actions);
            });
        }
        self.send_release(lease, end, None, true);
    }

    /// The place, or the semaphore, goes on after a release.
    fn announce(self: &Arc<Self>, lease: &Lease, result: &Result<Answer, Error>) {
        let (wanted, fence) = match result {
            Ok(Answer {
                outcome: Outcome::Released { fence, wanted, .. },
                ..
            }) => (*wanted, Some(*fence)),
            _ => (0, None),
        };
        let now = Moment::now();
        // A closed client has no places any more.
        let _ = self.change_of(lease, |place, actions| {
            place.released(from_micros(wanted), fence, now, actions);
        });
        self.change_seat(lease, |permits, slot, actions| {
            permits.released(slot, wanted > 0, now, actions);
        });
        self.forget_shared(lease);
    }

    /// A renewal, or the clock, found that the lease is not ours any more.
    pub(crate) fn lose(self: &Arc<Self>, lease: &Arc<Lease>) {
        if lease.idle_since().is_some() && mutant::on(Mutant::IdleAfterTrust) {
            return;
        }
        // If it idles, there is nobody to tell.
        let lost = self.change_of(lease, |place, actions| {
            !place.stop_lingering(lease, actions) && lease.lose()
        });
        if !lost.unwrap_or_else(|| lease.lose()) {
            return;
        }
        self.lingering.remove(lease);
        telemetry::lost(&lease.name, Moment::now().since(lease.granted));
        self.move_on(lease);
    }

    /// The lease is over while its guard is alive: the others ask the table.
    pub(super) fn move_on(self: &Arc<Self>, lease: &Arc<Lease>) {
        let now = Moment::now();
        let _ = self.change_of(lease, |place, actions| place.lost(lease, now, actions));
        self.change_seat(lease, |permits, slot, actions| {
            permits.lost(slot, lease, now, actions);
        });
        self.forget_shared(lease);
    }

    /// A transaction of the holder's released the lease, and has committed.
    pub(crate) fn released_in_transaction(self: &Arc<Self>, lease: &Arc<Lease>) {
        lease.note_release();
        lease.end();
        self.keeper.remove(lease);
        self.lingering.remove(lease);
        self.move_on(lease);
    }

    /// Stops, once: who waits is told, and who holds is released or kept.
    pub(crate) fn close(self: &Arc<Self>, release: bool) {
        let Some(places) = self.lock().close() else {
            return;
        };
        // What idles is nobody's, whatever is kept.
        let idle: Vec<Arc<Lease>> = places.filter_map(Place::close).collect();
        self.all_permits().close();
        self.readers().close();
        self.keep_at_close.store(!release, Ordering::Release);
        for lease in idle {
            if lease.end() {
                self.release(&lease, false, None);
            }
        }
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
        if lease.end() {
            self.release(lease, false, None);
        }
    }
}
