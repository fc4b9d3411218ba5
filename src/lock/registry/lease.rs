//! A lease that this process holds: what it is of, whose turn it is, and how it ends.

mod in_transaction;
mod renewal;
mod trust;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub(crate) use self::renewal::Way;
use super::Locks;
use super::semaphore::Seat;
use super::turn::Part;
use crate::clock::{Moment, micros};
use crate::lock::terms::Terms;
use crate::metric::Hold;
use crate::mutant::{self, Mutant};
use crate::name::Name;
use crate::sql::row::{Kind, RowKey};
use crate::timing::{LOOK_FOR_WRITERS, SLICE};
use crate::token::Token;

/// No [`Moment`].
const NEVER: i64 = i64::MIN;

/// A granted lease.
pub(crate) struct Lease {
    /// The way back, for a turn that is dropped.
    pub(crate) locks: Weak<Locks>,
    /// Tells leases of this process apart.
    pub(crate) number: u64,
    pub(crate) name: Name,
    /// A lock, a permit, the slot of a job, or a shared hold; and which one of those.
    pub(crate) kind: Kind,
    slot: u32,
    /// Of a permit, which one it is.
    pub(crate) seat: Option<Seat>,
    /// It was taken together with others: its name's place knows nothing of it.
    together: bool,
    pub(crate) token: Token,
    /// The last fencing token of the block that the grant reserved.
    pub(crate) fence: u64,
    pub(crate) terms: Terms,
    /// When the packet was sent that brought the grant: trust and the longest hold count from here.
    pub(crate) granted: Moment,
    /// When this process learned of it: the minimum hold and the turns of its tasks count from here.
    pub(crate) answered: Moment,
    /// Microseconds of [`Moment`] until which the holder may trust it.
    trusted_until: AtomicI64,
    /// Until when it runs as the server last told, in microseconds since 1970 on the server.
    told_until: AtomicI64,
    /// The fencing token of the current turn.
    turn: AtomicU64,
    /// The signal of the current turn. A turn that ended normally never fires.
    signal: Mutex<CancellationToken>,
    /// Of the tasks that have it together.
    pub(super) parts: Mutex<Vec<Arc<Part>>>,
    lost: AtomicBool,
    ended: AtomicBool,
    /// A guard of it has reached its caller: from then on the minimum hold counts.
    reached: AtomicBool,
    /// It was given back already: by a transaction of the caller's, by a downgrade, or as the slot of a job that is done.
    released: AtomicBool,
    /// By way, whether a renewal is on it.
    renewing: [AtomicBool; 2],
    /// An operation inside a caller's transaction has used it: it passes in memory no more.
    in_transaction: AtomicBool,
    /// When a transaction of the caller's released it, in microseconds of [`Moment`], as long as nobody knows whether that
    /// has committed; [`NEVER`] otherwise.
    release_open_since: AtomicI64,
    /// Another process waits for the lock.
    wanted: AtomicBool,
    /// When to look again whether another process waits, in microseconds of [`Moment`].
    next_look: AtomicI64,
    /// Since when it idles, in microseconds of [`Moment`]; [`NEVER`] if it does not.
    idle_since: AtomicI64,
    /// Its date with the keeper, in microseconds of [`Moment`].
    date: AtomicI64,
    /// For metrics: whether a task has it.
    pub(crate) hold: Hold,
}

impl Lease {
    /// A grant whose packet was sent at `sent`, asked for a lease on `terms`, and found `remaining` microseconds left: `until`
    /// then by the server's clock.
    pub(crate) fn new(
        locks: Weak<Locks>,
        RowKey { name, kind, slot }: RowKey,
        (token, fence): (Token, u64),
        terms: Terms,
        (sent, remaining, until): (Moment, i64, i64),
        wanted: bool,
    ) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        // One token: the release of a shared hold does not change the door, so it could not give back there what is left of a block.
        let block = if kind == Kind::Shared {
            1
        } else {
            terms.block()
        };
        let first = fence - u64::from(block.saturating_sub(1));
        let answered = Moment::now();
        let first_look = if kind == Kind::Shared {
            LOOK_FOR_WRITERS
        } else {
            SLICE
        };
        let lease = Self {
            locks,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            name,
            kind,
            slot,
            seat: None,
            together: false,
            token,
            fence,
            terms,
            granted: sent,
            answered,
            trusted_until: AtomicI64::new(0),
            told_until: AtomicI64::new(until),
            turn: AtomicU64::new(first),
            signal: Mutex::default(),
            parts: Mutex::default(),
            lost: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            reached: AtomicBool::new(false),
            released: AtomicBool::new(false),
            renewing: Default::default(),
            in_transaction: AtomicBool::new(false),
            release_open_since: AtomicI64::new(NEVER),
            wanted: AtomicBool::new(wanted),
            next_look: AtomicI64::new(answered.after(first_look).as_micros()),
            idle_since: AtomicI64::new(NEVER),
            date: AtomicI64::new(0),
            hold: Hold::default(),
        };
        let asked = micros(lease.terms.lease());
        lease.extend(sent, remaining.min(asked));
        lease
    }

    /// It is a permit: this one.
    pub(crate) fn at(mut self, seat: Seat) -> Self {
        self.seat = Some(seat);
        self
    }

    /// The row that it is a lease of.
    pub(crate) fn key(&self) -> RowKey {
        RowKey {
            name: self.name.clone(),
            kind: self.kind,
            slot: self.slot,
        }
    }

    /// Which shared hold it is.
    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    /// Whether tasks of this process may have it together.
    pub(crate) fn is_joint(&self) -> bool {
        self.kind == Kind::Shared && self.terms.may_pass()
    }

    /// The same lease as one that was taken together with others.
    pub(crate) fn together(mut self) -> Self {
        self.together = true;
        self
    }

    /// Whether it stands in its name's place, with tasks that wait for it in memory: a lock does that was taken by itself; a permit and the
    /// slot of a job do not.
    pub(crate) fn has_place(&self) -> bool {
        self.kind == Kind::Lock && !self.together
    }

    /// The fencing token of the current turn.
    pub(crate) fn current_turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }

    /// The signal of the current turn.
    pub(crate) fn signal(&self) -> CancellationToken {
        self.lock_signal().clone()
    }

    fn lock_signal(&self) -> MutexGuard<'_, CancellationToken> {
        self.signal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its block has another turn.
    pub(crate) fn has_turns(&self) -> bool {
        self.current_turn() < self.fence
    }

    /// Begins the next turn of the block, with a signal of its own; `None` if the block is used up.
    pub(crate) fn next_turn(&self) -> Option<u64> {
        let turn = self.current_turn();
        if turn >= self.fence {
            return None;
        }
        let mut signal = self.lock_signal();
        // Lost in this moment: either it is seen here, or `lose` cancels the new signal. Used in a transaction: either it is
        // seen here, or the transaction's call sees the new turn.
        let used = self.was_in_transaction()
            && !mutant::on(Mutant::TurnAfterVerify)
            && !mutant::on(Mutant::LingerAfterVerify);
        if self.is_lost() || used {
            return None;
        }
        *signal = CancellationToken::new();
        if mutant::on(Mutant::TurnKeepsToken) {
            return Some(turn);
        }
        self.turn.store(turn + 1, Ordering::Release);
        Some(turn + 1)
    }

    /// The lease is not ours any more: fires the signal, once, and not after a normal end. Whether
    /// this call was the one.
    pub(crate) fn lose(&self) -> bool {
        if self.ended.load(Ordering::Acquire) || self.lost.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.lock_signal().cancel();
        for part in self.parts().iter() {
            part.signal().cancel();
        }
        self.hold.end();
        true
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// It is given back: no renewal, no signal from here on. Whether this call ended it.
    pub(crate) fn end(&self) -> bool {
        let first = !self.ended.swap(true, Ordering::AcqRel);
        self.hold.end();
        first
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether another process waits, as far as is known.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    pub(crate) fn set_wanted(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    /// Whether it is time to look whether another process waits; then the next time is set, after a pause.
    pub(crate) fn look_is_due(&self, now: Moment, pause: Duration) -> bool {
        if now.as_micros() < self.next_look.load(Ordering::Relaxed) {
            return false;
        }
        self.next_look
            .store(now.after(pause).as_micros(), Ordering::Relaxed);
        true
    }

    /// Since when it idles.
    pub(crate) fn idle_since(&self) -> Option<Moment> {
        moment(self.idle_since.load(Ordering::Relaxed))
    }

    /// It idles from then on, or no more. What it did before.
    pub(crate) fn set_idle_since(&self, since: Option<Moment>) -> Option<Moment> {
        let since = since.map_or(NEVER, Moment::as_micros);
        moment(self.idle_since.swap(since, Ordering::Relaxed))
    }

    /// A guard of it is in its caller's hands.
    pub(crate) fn reached_its_caller(&self) {
        self.reached.store(true, Ordering::Release);
    }

    /// What is left of the minimum hold, in microseconds: nothing, if its caller went away before it had the guard.
    pub(crate) fn hold_left(&self) -> i64 {
        if !self.reached.load(Ordering::Acquire) && !mutant::on(Mutant::KeptForNobody) {
            return 0;
        }
        micros(self.answered.after(self.terms.hold_at_least).left())
    }
}

fn moment(micros: i64) -> Option<Moment> {
    (micros != NEVER).then(|| Moment::from_micros(micros))
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("name", &self.name)
            .field("fence", &self.fence)
            .field("turn", &self.current_turn())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose clock went back finds more than was asked for.
    #[test]
    fn trust_is_no_longer_than_was_asked_for() {
        let ttl = Duration::from_secs(10);
        let terms = Terms {
            ttl,
            auto_renew: true,
            passes: true,
            hold_at_least: Duration::ZERO,
            max_hold: None,
            linger: Duration::ZERO,
            description: Arc::from(""),
            owner: None,
        };
        let name = Name::new("l").expect("a name");
        let block = u64::from(terms.block());
        let found = (Moment::now(), micros(Duration::from_secs(3_600)), 0);
        let lease = Lease::new(
            Weak::new(),
            RowKey::lock(name),
            (Token::random(), block),
            terms,
            found,
            false,
        );
        assert!(lease.trusted_for() <= ttl, "{:?}", lease.trusted_for());
        assert!(lease.is_held());
    }
}
