//! The server's clock as seen from here: what it will show, and whether it was stepped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{Moment, micros};

/// A difference that neither scheduling nor the network explains.
const STEP: i64 = 1_000_000;

/// The difference between the server's clock and ours, in microseconds.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    last: Mutex<Option<Observation>>,
    steps: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Observation {
    offset: i64,
    /// How much greater the offset may be, since the packet took so long.
    slack: i64,
}

impl ServerClock {
    fn last(&self) -> MutexGuard<'_, Option<Observation>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what the server's clock showed at some time between `sent` and `received`. Gives the
    /// difference if that cannot be explained by the time the packet took: the clock was stepped.
    pub(crate) fn observe(&self, server_now: i64, sent: Moment, received: Moment) -> Option<i64> {
        let new = Observation {
            offset: server_now.saturating_sub(received.as_micros()),
            slack: micros(received.since(sent)),
        };
        let old = self.last().replace(new)?;
        let difference = new.offset.saturating_sub(old.offset);
        // This packet's slack explains a lower offset than before, the last one's a greater one.
        let explained = if difference < 0 { new.slack } else { old.slack };
        if difference.saturating_abs() <= STEP.saturating_add(explained) {
            return None;
        }
        self.steps.fetch_add(1, Ordering::Relaxed);
        Some(difference)
    }

    /// Microseconds since 1970 that the server's clock will show `ahead` from now; the end of time as
    /// long as it is not known.
    pub(crate) fn ahead(&self, ahead: Duration) -> i64 {
        let last = *self.last();
        last.map_or(i64::MAX, |last| {
            let then = Moment::now().after(ahead).as_micros();
            then.saturating_add(last.offset)
        })
    }

    /// How often the server's clock was stepped.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_told_from_a_slow_packet() {
        let clock = ServerClock::default();
        assert_eq!(clock.ahead(Duration::ZERO), i64::MAX);
        let sent = Moment::now();
        let at = |seconds| sent.after(Duration::from_secs(seconds));
        let server = |seconds: i64| 1_790_000_000_000_000 + sent.as_micros() + seconds * 1_000_000;
        assert_eq!(clock.observe(server(0), sent, at(0)), None);
        // Answered at once, but received five seconds later.
        assert_eq!(clock.observe(server(0), sent, at(5)), None);
        // The next one is punctual, and so is not late by that time.
        assert_eq!(clock.observe(server(6), at(6), at(6)), None);
        assert_eq!(clock.observe(server(7), at(6), at(7)), None);
        assert_eq!(clock.steps(), 0);
        let hour = clock.observe(server(3_608), at(8), at(8)).expect("a step");
        assert!((3_599_000_000..3_601_000_000).contains(&hour), "{hour}");
        assert_eq!(clock.steps(), 1);
        let back = clock.observe(server(9), at(9), at(9)).expect("a step back");
        assert!(back < -3_599_000_000, "{back}");
    }
}
