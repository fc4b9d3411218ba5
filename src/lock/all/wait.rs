//! Waiting for several locks: first for all at once, then for one at a time, in their order.

use std::time::Duration;

use futures_util::future::join_all;

use super::PATIENCE;
use crate::client::inner::Inner;
use crate::clock::Moment;
use crate::error::Error;
use crate::lock::LockGuard;
use crate::lock::registry::InVain;
use crate::lock::registry::together::Attempt;
use crate::lock::registry::turn::Turn;
use crate::lock::terms::{Terms, Wait};
use crate::name::Name;
use crate::sql::reply::RowState;
use crate::sql::wish::GivesWay;
use crate::telemetry;
use crate::timing::{ANSWER, WANT, WANT_AGAIN};

/// The first and the longest pause between two looks.
const FIRST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(50);

/// What a request does next that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It looks again until then, and asks when the locks seem to be free.
    Look(Moment),
    /// It takes the locks in their order, and waits for each in its turn; until then, if its wait ends.
    InOrder(Option<Moment>),
    /// Its wait is over.
    Over,
}

/// What a request does at `now` that began at `start`, and was refused.
fn next(wait: Wait, start: Moment, now: Moment) -> Next {
    let end = match wait {
        Wait::Not => return Next::Over,
        Wait::For(wait) => Some(start.after(wait)),
        Wait::Forever => None,
    };
    let patience = start.after(PATIENCE);
    if end.is_some_and(|end| end <= now) {
        Next::Over
    } else if now < patience {
        Next::Look(end.map_or(patience, |end| end.min(patience)))
    } else {
        Next::InOrder(end)
    }
}

fn is_held(row: RowState) -> bool {
    !row.admits(GivesWay::of(true))
}

/// The position of a row that is in the way: one that is held, or else one that was passed over.
fn in_the_way(rows: &[Option<RowState>]) -> usize {
    let held = rows.iter().position(|row| row.is_some_and(is_held));
    held.unwrap_or_else(|| free_before(rows))
}

/// How many rows are free before the first one that is not, or of which nothing is known. None if all are: somebody is at them.
fn free_before(rows: &[Option<RowState>]) -> usize {
    let first = rows.iter().position(|row| row.is_none_or(is_held));
    first.unwrap_or_default()
}

impl Inner {
    /// Acquires all locks for a [`LockAllRequest`](super::LockAllRequest), or none: `None` if they are not free, and it does not wait.
    pub(super) async fn acquire_all(
        &self,
        names: &[Name],
        terms: &Terms,
        wait: Wait,
    ) -> Result<Option<Vec<LockGuard>>, Error> {
        let start = Moment::now();
        let acquired = self.all_or_none(names, terms, wait, start);
        match wait {
            // When it is over, the last question is answered, and what was taken before goes back.
            Wait::For(longest) => {
                tokio::time::timeout(longest.saturating_add(2 * ANSWER), acquired)
                    .await
                    .unwrap_or_else(|_| Err(Error::no_answer()))
            }
            Wait::Not | Wait::Forever => acquired.await,
        }
    }

    /// Dropping this future releases what it has.
    async fn all_or_none(
        &self,
        names: &[Name],
        terms: &Terms,
        wait: Wait,
        start: Moment,
    ) -> Result<Option<Vec<LockGuard>>, Error> {
        // What idles in this very client is nobody's.
        join_all(names.iter().map(|name| self.locks.wake(name))).await;
        let mut waits = false;
        loop {
            let rows = match self.locks.take_together(names, terms, waits).await? {
                Attempt::Granted(turns) => {
                    let guards = turns.into_iter().map(|turn| self.taken(turn, start));
                    let guards: Vec<_> = guards.collect();
                    if guards.iter().all(LockGuard::is_held) {
                        return Ok(Some(guards));
                    }
                    // They came too late to be trusted, or the client is closed. They go on if they take longer.
                    drop(tokio::time::timeout(ANSWER, release(guards)).await);
                    if self.locks.stopped.is_cancelled() {
                        return Err(Error::Closed);
                    }
                    Vec::new()
                }
                Attempt::Refused(rows) => rows,
            };
            if !waits {
                telemetry::waits();
            }
            waits = true;
            match next(wait, start, Moment::now()) {
                Next::Look(until) => self.until_they_seem_free(names, rows, until).await?,
                Next::InOrder(end) => {
                    let guards = self.acquire_in_order(names, terms, end).await?;
                    return Ok(Some(guards));
                }
                Next::Over => {
                    let name = &names[in_the_way(&rows)];
                    telemetry::refused(name, start);
                    return match wait {
                        Wait::Not => Ok(None),
                        _ => Err(Box::pin(self.timed_out(name, InVain::Held)).await),
                    };
                }
            }
        }
    }

    /// Looks until all locks seem to be free, or until then; and tells those who hold one that somebody waits.
    async fn until_they_seem_free(
        &self,
        names: &[Name],
        mut rows: Vec<Option<RowState>>,
        until: Moment,
    ) -> Result<(), Error> {
        let mut pause = FIRST;
        let mut told: Option<Moment> = None;
        loop {
            let again = told.is_none_or(|told| told.after(WANT_AGAIN).has_passed());
            if again {
                told = Some(Moment::now());
                for (name, row) in names.iter().zip(&rows) {
                    if let Some(row) = row.filter(|row| !row.is_free()) {
                        self.locks.ask_for(name, &row, WANT);
                    }
                }
            }
            let jitter = rand::random_range(0.5..=1.0);
            tokio::time::sleep(pause.mul_f64(jitter).min(until.left())).await;
            if until.has_passed() {
                return Ok(());
            }
            pause = (pause * 2).min(LONGEST);
            rows = self.locks.look_at_locks(names).await?;
            if !rows.iter().any(|row| row.is_some_and(is_held)) {
                return Ok(());
            }
        }
    }

    /// Takes the locks in their order, and holds what it has; until `end`, if there is one. Dropping this future releases them.
    async fn acquire_in_order(
        &self,
        names: &[Name],
        terms: &Terms,
        end: Option<Moment>,
    ) -> Result<Vec<LockGuard>, Error> {
        let mut guards = Vec::with_capacity(names.len());
        if let Err(error) = self.acquire_rest(names, terms, end, &mut guards).await {
            // They go on if they take longer.
            drop(tokio::time::timeout(ANSWER, release(guards)).await);
            return Err(error);
        }
        match guards.iter().find(|guard| !guard.is_held()) {
            // One was lost while it waited for the next.
            Some(lost) => Err(Error::LockLost {
                name: lost.name().to_owned(),
            }),
            None => Ok(guards),
        }
    }

    /// Adds the locks that are left to those that it has. It waits for one at a time, and has all that come before that one.
    async fn acquire_rest(
        &self,
        mut left: &[Name],
        terms: &Terms,
        end: Option<Moment>,
        guards: &mut Vec<LockGuard>,
    ) -> Result<(), Error> {
        while !left.is_empty() {
            let asked = Moment::now();
            let free = match self.locks.take_together(left, terms, true).await? {
                Attempt::Granted(turns) => {
                    guards.extend(turns.into_iter().map(|turn| self.taken(turn, asked)));
                    return Ok(());
                }
                Attempt::Refused(rows) => free_before(&rows),
            };
            let mut next = 0;
            if free > 0
                && let Attempt::Granted(turns) =
                    self.locks.take_together(&left[..free], terms, true).await?
            {
                guards.extend(turns.into_iter().map(|turn| self.taken(turn, asked)));
                next = free;
            }
            let wait = end.map_or(Wait::Forever, |end| Wait::For(end.left()));
            let guard = self.acquire(&left[next], terms.clone(), wait).await?;
            // Only a request that does not wait ends without a guard.
            guards.push(guard.ok_or(Error::Closed)?);
            left = &left[next + 1..];
        }
        Ok(())
    }

    /// The guard of a lock that was taken together with others.
    fn taken(&self, turn: Turn, asked: Moment) -> LockGuard {
        turn.begin();
        telemetry::acquired(&turn.lease.name, turn.fence, asked);
        self.guard(turn)
    }
}

/// Releases locks, all at once: the first error, if there is one.
pub(super) async fn release(guards: Vec<LockGuard>) -> Result<(), Error> {
    let sent: Vec<_> = guards.into_iter().map(LockGuard::send_release).collect();
    let mut result = Ok(());
    for released in sent {
        result = result.and(released.known().await);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Moment, millis: u64) -> Moment {
        start.after(Duration::from_millis(millis))
    }

    #[test]
    fn who_does_not_wait_asks_once() {
        let start = Moment::now();
        assert_eq!(next(Wait::Not, start, start), Next::Over);
    }

    #[test]
    fn singles_may_pass_for_a_second() {
        let start = Moment::now();
        let patience = start.after(PATIENCE);
        let at = |millis| next(Wait::Forever, start, after(start, millis));
        assert_eq!(at(0), Next::Look(patience));
        assert_eq!(at(999), Next::Look(patience));
        assert_eq!(at(1_000), Next::InOrder(None));
    }

    #[test]
    fn the_first_that_is_not_free_is_in_the_way() {
        let free = RowState {
            at: 0,
            granted: false,
            status: 0,
            mine: false,
            fence: 0,
            remaining: -1,
            previous: 0,
            count: 0,
            wanted: 0,
            client: 0,
        };
        let held = RowState {
            status: 1,
            remaining: 1,
            ..free
        };
        let (free, held) = (Some(free), Some(held));
        assert_eq!(free_before(&[free, held, None]), 1);
        assert_eq!(free_before(&[free, None, held]), 1);
        assert_eq!(in_the_way(&[free, None, held]), 2);
        assert_eq!(in_the_way(&[free, None, free]), 1);
        // All were passed over, and were free behind the packet.
        for rows in [&[free, free][..], &[]] {
            assert_eq!((free_before(rows), in_the_way(rows)), (0, 0));
        }
    }

    #[test]
    fn a_wait_ends_when_it_says() {
        let start = Moment::now();
        let (short, long) = (Duration::from_millis(300), Duration::from_secs(3));
        let end = start.after(short);
        let next = |wait, millis| next(Wait::For(wait), start, after(start, millis));
        assert_eq!(next(short, 0), Next::Look(end));
        assert_eq!(next(short, 300), Next::Over);
        assert_eq!(next(long, 299), Next::Look(start.after(PATIENCE)));
        assert_eq!(next(long, 1_000), Next::InOrder(Some(start.after(long))));
        assert_eq!(next(long, 3_000), Next::Over);
    }
}
