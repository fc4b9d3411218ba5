//! Whether the server can be reached: so that a client tells once that it cannot, and once that it can again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Moment;

/// For so long after the last failure nothing is said to be over: longer than a lane pauses between two attempts, so that one lane that
/// fails beside others that work is one outage.
const CALM: Duration = Duration::from_secs(2);

/// An outage that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Over {
    pub(super) lasted: Duration,
    /// How many attempts failed.
    pub(super) failures: u64,
}

#[derive(Clone, Copy, Debug)]
struct State {
    began: Moment,
    failures: u64,
    failed: Moment,
    /// The first success behind the last failure.
    up: Option<Moment>,
}

/// The outage of a client's server, if there is one.
#[derive(Debug, Default)]
pub(super) struct Outage {
    state: Mutex<Option<State>>,
    /// There is one: all others need not look.
    on: AtomicBool,
}

impl Outage {
    fn state(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// An attempt failed. Whether an outage begins with that.
    pub(super) fn failed(&self, now: Moment) -> bool {
        let mut state = self.state();
        // Attempts have succeeded since, and then there were none for a while: that one is over.
        let over = |state: &State| state.up.is_some() && now.since(state.failed) >= CALM;
        if state.as_ref().is_some_and(over) {
            *state = None;
        }
        let begins = state.is_none();
        let state = state.get_or_insert(State {
            began: now,
            failures: 0,
            failed: now,
            up: None,
        });
        state.failures += 1;
        (state.failed, state.up) = (now, None);
        self.on.store(true, Ordering::Relaxed);
        begins
    }

    /// An attempt succeeded. What it was, if an outage is over with that.
    pub(super) fn succeeded(&self, now: Moment) -> Option<Over> {
        if !self.is_on() {
            return None;
        }
        let mut state = self.state();
        let outage = state.as_mut()?;
        let up = *outage.up.get_or_insert(now);
        if now.since(outage.failed) < CALM {
            return None;
        }
        let over = Over {
            lasted: up.since(outage.began),
            failures: outage.failures,
        };
        *state = None;
        self.on.store(false, Ordering::Relaxed);
        Some(over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_beginning_and_one_end() {
        let outage = Outage::default();
        let start = Moment::now();
        let at = |millis| start.after(Duration::from_millis(millis));
        assert_eq!(outage.succeeded(at(0)), None);
        assert!(outage.failed(at(1_000)));
        assert!(!outage.failed(at(1_500)));
        // Another lane still works.
        assert_eq!(outage.succeeded(at(1_600)), None);
        assert!(!outage.failed(at(3_000)));
        assert_eq!(outage.succeeded(at(4_000)), None);
        let over = outage.succeeded(at(9_000)).expect("it is over");
        // Until it could be reached, not until that was noticed.
        assert_eq!(over.lasted, Duration::from_secs(3));
        assert_eq!(over.failures, 3);
        assert_eq!(outage.succeeded(at(9_000)), None);
        assert!(outage.failed(at(9_001)));
        assert_eq!(outage.succeeded(at(9_010)), None);
        assert!(outage.failed(at(3_600_000)), "a later one");
    }
}
