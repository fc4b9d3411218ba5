//! The server's clock as seen from here: what it will show, and whether it was stepped.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Moment, micros};

/// A difference that neither scheduling nor the network explains.
const STEP: i64 = 1_000_000;

const UNKNOWN: i64 = i64::MIN;

/// The difference between the server's clock and ours, in microseconds.
#[derive(Debug)]
pub(crate) struct ServerClock {
    offset: AtomicI64,
    steps: AtomicU64,
}

impl Default for ServerClock {
    fn default() -> Self {
        Self {
            offset: AtomicI64::new(UNKNOWN),
            steps: AtomicU64::new(0),
        }
    }
}

impl ServerClock {
    /// Takes in what the server's clock showed at some time between `sent` and `received`. Gives the
    /// difference if that cannot be explained by the time the packet took: the clock was stepped.
    pub(crate) fn observe(&self, server_now: i64, sent: Moment, received: Moment) -> Option<i64> {
        let new = server_now.saturating_sub(received.as_micros());
        let old = self.offset.swap(new, Ordering::Relaxed);
        if old == UNKNOWN {
            return None;
        }
        // Each observation is late by at most the time its packet took.
        let difference = new.saturating_sub(old);
        let allowed = STEP.saturating_add(micros(received.since(sent)));
        if difference.saturating_abs() <= allowed {
            return None;
        }
        self.steps.fetch_add(1, Ordering::Relaxed);
        Some(difference)
    }

    /// Microseconds since 1970 that the server's clock will show `ahead` from now; the end of time as
    /// long as it is not known.
    pub(crate) fn ahead(&self, ahead: Duration) -> i64 {
        match self.offset.load(Ordering::Relaxed) {
            UNKNOWN => i64::MAX,
            offset => Moment::now()
                .after(ahead)
                .as_micros()
                .saturating_add(offset),
        }
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
        assert_eq!(clock.observe(server(6), at(0), at(6)), None);
        assert_eq!(clock.steps(), 0);
        let hour = clock.observe(server(3_607), at(7), at(7)).expect("a step");
        assert!((3_599_000_000..3_601_000_000).contains(&hour), "{hour}");
        assert_eq!(clock.steps(), 1);
        let back = clock.observe(server(8), at(8), at(8)).expect("a step back");
        assert!(back < -3_599_000_000, "{back}");
    }
}
