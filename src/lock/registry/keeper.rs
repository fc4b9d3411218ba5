//! Renews all leases of a client, through the lanes, and notices when one has run out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Locks;
use super::lease::{Lease, Way};
use crate::clock::Moment;
use crate::engine::outcome::{Answer, Outcome};
use crate::engine::request::{ReplyTo, Request};
use crate::engine::supervise::survives;
use crate::error::Error;
use crate::mutant::{self, Mutant};
use crate::sql::operation::{Operation, Renew};
use crate::sql::row::Kind;
use crate::telemetry;

#[derive(Default)]
struct Dates {
    /// By time, and by the lease's number for those of one time.
    map: BTreeMap<(Moment, u64), Arc<Lease>>,
    closed: bool,
}

/// The dates of all leases.
#[derive(Default)]
pub(crate) struct Keeper {
    dates: Mutex<Dates>,
    /// A date came before the earliest one.
    pub(crate) earlier: Arc<Notify>,
}

impl Keeper {
    fn lock(&self) -> MutexGuard<'_, Dates> {
        self.dates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a lease: renewed at a third of its ttl, later while it idles, or watched until its end.
    ///
    /// False when the client was closed: nobody keeps it any more.
    pub(crate) fn add(&self, lease: &Arc<Lease>) -> bool {
        lease.set_date(next_date(lease));
        let at = lease.date();
        let mut dates = self.lock();
        if dates.closed {
            return false;
        }
        let first = dates
            .map
            .first_key_value()
            .is_none_or(|(key, _)| at < key.0);
        dates.map.insert((at, lease.number), Arc::clone(lease));
        drop(dates);
        if first {
            self.earlier.notify_one();
        }
        true
    }

    /// The lease has ended: no renewal from here on.
    pub(crate) fn remove(&self, lease: &Lease) {
        self.lock().map.remove(&(lease.date(), lease.number));
    }

    /// The leases whose date has come.
    fn take_due(&self, now: Moment) -> Vec<Arc<Lease>> {
        let mut dates = self.lock();
        let later = dates.map.split_off(&(now, u64::MAX));
        std::mem::replace(&mut dates.map, later)
            .into_values()
            .collect()
    }

    fn next(&self) -> Option<Moment> {
        self.lock().map.first_key_value().map(|(key, _)| key.0)
    }

    /// Forgets all leases and gives them out, and takes no more.
    pub(crate) fn close(&self) -> Vec<Arc<Lease>> {
        let mut dates = self.lock();
        dates.closed = true;
        std::mem::take(&mut dates.map).into_values().collect()
    }
}

/// Renewals fall on this many dates in a ttl.
const GRID: u32 = 20;
/// The shortest pause between two looks at a lease.
const SHORTEST: Duration = Duration::from_millis(5);

/// Idle leases that were granted together are renewed in so many groups, one after the other: a release would wait for thousands of them.
const GROUPS: u64 = 6;
/// An idle lease is renewed at least so long before it could not be taken again.
const IN_TIME: Duration = Duration::from_millis(300);

/// How long the lease of this number and ttl, trusted for so long, need not be renewed while it idles: nobody relies on it, and whoever takes
/// it again wants a third of its ttl. `None` if that is no time.
fn rest(number: u64, trusted: Duration, ttl: Duration) -> Option<Duration> {
    let group = u32::try_from(number % GROUPS).unwrap_or(0);
    // From two fifths of its ttl to two thirds.
    let least = ttl / 5 * 2 + ttl / GRID * group;
    let rest = trusted.saturating_sub(least.max(ttl / 3 + IN_TIME));
    (rest > ttl / GRID).then_some(rest)
}

/// Whether a lease that idled is to be renewed when it is taken: one that does not idle was trusted for longer then.
pub(super) fn has_rested(lease: &Lease, now: Moment) -> bool {
    lease.terms.is_asked_about()
        && lease.trusted_until() < now.after(lease.terms.ttl / 5 * 3)
        && !lease.is_being_renewed()
}

fn rest_of(lease: &Lease) -> Option<Duration> {
    lease.idle_since()?;
    rest(lease.number, lease.trusted_for(), lease.terms.ttl)
}

/// When the lease needs attention next.
fn next_date(lease: &Lease) -> Moment {
    let now = Moment::now();
    let mut end = now.after(lease.trusted_for());
    if mutant::on(Mutant::LocalDeadlineIgnored) {
        end = end.max(now.after(lease.terms.ttl / 3));
    }
    if lease.terms.is_asked_about() {
        // Less than a third may be left, if the last answer came late: half of it leaves time for one.
        let pause =
            rest_of(lease).unwrap_or_else(|| (lease.terms.ttl / 3).min(lease.trusted_for() / 2));
        let date = now.after(pause.max(SHORTEST));
        // On a grid, so that leases of one ttl travel together, hundreds in a packet.
        let together = date.rounded_down(lease.terms.ttl / GRID);
        end.min(if together > now { together } else { date })
    } else {
        end
    }
}

/// Runs until the client is closed or gone.
pub(crate) async fn run(locks: Weak<Locks>, earlier: Arc<Notify>, stopped: CancellationToken) {
    loop {
        let next = {
            let Some(locks) = locks.upgrade() else { return };
            for lease in locks.keeper.take_due(Moment::now()) {
                let attends = async { attend(&locks, &lease) };
                if !survives("the keeper of leases", attends).await && !locks.keeper.add(&lease) {
                    locks.close_lease(&lease);
                }
            }
            locks.keeper.next()
        };
        // Timers stand still while the machine sleeps; the clock that counts does not.
        let pause = next.map(|next| next.left().min(Moment::RECHECK));
        tokio::select! {
            () = stopped.cancelled() => return,
            () = earlier.notified() => {}
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
        }
    }
}

/// Tells whoever works under a lease that nobody keeps any more that it has run out.
pub(super) async fn watch_the_end(lease: Arc<Lease>) {
    loop {
        let left = lease.trusted_for();
        if left.is_zero() || lease.has_ended() {
            lease.lose();
            return;
        }
        tokio::time::sleep(left.min(Moment::RECHECK)).await;
    }
}

/// Renews a lease whose time has come, or finds that it has run out.
fn attend(locks: &Arc<Locks>, lease: &Arc<Lease>) {
    let revives = mutant::on(Mutant::RenewalAfterRelease);
    if lease.is_lost() || (lease.has_ended() && !revives) {
        return;
    }
    if lease.trusted_for().is_zero() && !mutant::on(Mutant::LocalDeadlineIgnored) {
        locks.lose(lease);
        return;
    }
    if lease.terms.is_asked_about() && rest_of(lease).is_none() {
        renew(locks, lease);
    }
    if !locks.keeper.add(lease) {
        locks.close_lease(lease);
    }
    // It may have ended between the look above and here.
    if lease.has_ended() && !revives {
        locks.keeper.remove(lease);
    }
}

/// Sends one renewal: by its lane, or, when that has not answered the one before, as a rescue. Two may be under way, since token, fence and
/// status guard each of them, and none makes a lease shorter. One that extends nothing tells how long the lease is.
pub(super) fn renew(locks: &Arc<Locks>, lease: &Arc<Lease>) {
    let Some(most) = lease.renewal(lease.terms.ttl) else {
        return;
    };
    let ttl = if lease.terms.auto_renew { most } else { 0 };
    // Before the renewal begins: a subscriber that takes in the span may panic, and then none has begun.
    let span = telemetry::renew(&lease.name);
    let Some(way) = lease.begin_renewal() else {
        return;
    };
    let until = lease.level_until();
    let operation = Operation::Renew(Renew {
        token: lease.token,
        fence: lease.fence,
        ttl,
        until,
    });
    let expires = lease.trusted_until();
    let (locks_again, kept) = (Arc::clone(locks), Arc::clone(lease));
    let reply = ReplyTo::client(move |result| {
        kept.end_renewal(way);
        // Another one may have succeeded meanwhile.
        if result.is_ok() || kept.trusted_until() <= expires {
            span.in_scope(|| renewed(&locks_again, &kept, (most, until), result));
        }
    });
    let key = lease.key();
    let request = Request::Operation(operation);
    match way {
        Way::Lane => locks.engine.submit(key, request, expires, reply),
        Way::Rescue => locks.engine.rescue(key, request, expires, reply),
    }
}

/// Renewed, lost, or unknown. Busy shows as the deadline that stands. It is trusted for `most` microseconds at the most. `until` is what
/// was said of an owner's level.
pub(crate) fn renewed(
    locks: &Arc<Locks>,
    lease: &Arc<Lease>,
    (most, until): (i64, Option<i64>),
    result: Result<Answer, Error>,
) {
    match result {
        Ok(Answer {
            outcome:
                Outcome::Leased {
                    remaining,
                    until: told,
                    wanted,
                    renewed,
                },
            sent,
            ..
        }) => {
            lease.extend(sent, remaining.min(most));
            lease.told(told);
            if renewed {
                lease.found_held(sent);
            }
            telemetry::renewed(&lease.name, lease.trusted_for());
            lease.set_wanted(wanted > 0);
            if wanted > 0 && !mutant::on(Mutant::BellUnheard) {
                let _ = locks.stop_lingering(lease);
            }
        }
        // No transaction releases an owner's level; and the slot of a job that is free, and not done, was given back by its lease's end.
        Ok(Answer {
            outcome: Outcome::Released { done, .. },
            ..
        }) if lease.terms.owner.is_none() && (done || lease.kind != Kind::Job) => {
            locks.released_in_transaction(lease);
        }
        // What it said of the level was out of date when it came to the row: another one has renewed it.
        Ok(_) if lease.level_until() > until => {}
        Ok(_) => locks.lose(lease),
        // Unknown: neither lost nor extended; the next date tries again, or finds the end.
        Err(error) => telemetry::renewal_failed(&lease.name, &error, locks.engine.is_out()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the keeper goes through it: a lease that idles is renewed before it could not be taken again, and not before a third of its ttl is over.
    #[test]
    fn who_idles_is_renewed_late_and_in_time() {
        for ttl in [100, 1_500, 3_000, 30_000, 86_400_000].map(Duration::from_millis) {
            for number in 0..GROUPS {
                let mut trusted = ttl;
                let mut looks = 0;
                while let Some(rest) = rest(number, trusted, ttl) {
                    // Rounded down to the grid.
                    trusted -= rest - ttl / GRID / 2;
                    looks += 1;
                }
                assert!(trusted > ttl / 3 + ttl / 20, "{trusted:?} of {ttl:?}");
                // A short one is renewed as one that does not idle.
                assert!(
                    trusted < ttl / 3 * 2 + ttl / 20 || trusted == ttl && ttl < IN_TIME * 2,
                    "{trusted:?} of {ttl:?}"
                );
                assert!(
                    looks == 0 || trusted >= ttl / 3 + IN_TIME - ttl / GRID,
                    "{trusted:?}"
                );
                assert!(looks < 3, "{looks}");
            }
        }
        assert_eq!(rest(0, Duration::ZERO, Duration::from_secs(1)), None);
    }
}
