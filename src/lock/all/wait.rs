//! Waiting for several locks: first for all at once, then for one after the other.

use std::time::Duration;

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
use crate::sql::row::RowKey;
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
    /// It takes the locks one by one, until then, if its wait ends.
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

/// The position of a row that is in the way.
fn in_the_way(rows: &[Option<RowState>]) -> usize {
    let held = |row: &Option<RowState>| row.is_some_and(|row| !row.admits(true));
    let passed_over = || rows.iter().position(Option::is_none);
    let held = rows.iter().position(held);
    held.or_else(passed_over).unwrap_or_default()
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
        for name in names {
            // What idles in this very client is nobody's.
            self.locks.wake(name).await;
        }
        let mut waits = false;
        loop {
            let rows = match self.locks.take_together(names, terms, waits).await? {
                Attempt::Granted(turns) => {
                    let guard = |turn: Turn| {
                        turn.lease.hold.begin();
                        telemetry::acquired(&turn.lease.name, turn.fence, start);
                        self.guard(turn)
                    };
                    return Ok(Some(turns.into_iter().map(guard).collect()));
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
        let keys: Vec<RowKey> = names.iter().cloned().map(RowKey::lock).collect();
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
            rows = self.engine.look(keys.clone()).await?;
            let is_free = |row: &Option<RowState>| row.is_none_or(|row| row.admits(true));
            if rows.iter().all(is_free) {
                return Ok(());
            }
        }
    }

    /// Takes the locks one by one, and holds what it has; until `end`, if there is one. Dropping this future releases them.
    async fn acquire_in_order(
        &self,
        names: &[Name],
        terms: &Terms,
        end: Option<Moment>,
    ) -> Result<Vec<LockGuard>, Error> {
        let mut guards = Vec::with_capacity(names.len());
        for name in names {
            let wait = end.map_or(Wait::Forever, |end| Wait::For(end.left()));
            match self.acquire(name.clone(), terms.clone(), wait).await {
                Ok(Some(guard)) => guards.push(guard),
                // Only a request that does not wait ends without a guard.
                Ok(None) => return Err(Error::Closed),
                Err(error) => {
                    // They go on if they take longer.
                    let released = release(guards);
                    drop(tokio::time::timeout(ANSWER, released).await);
                    return Err(error);
                }
            }
        }
        match guards.iter().find(|guard| !guard.is_held()) {
            // One was lost while it waited for the next.
            Some(lost) => Err(Error::LockLost {
                name: lost.name().to_owned(),
            }),
            None => Ok(guards),
        }
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
