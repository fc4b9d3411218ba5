//! How long the reader waits for an answer.
//!
//! All who wait in a client ask over one connection. If it falls silent, all of them wait for it, though the server would answer over
//! another. So a connection that was open before has a fraction of the limit, and what was asked in vain is asked over a fresh one, which has
//! the whole. Where the server is what is slow, a fresh connection is no quicker, and costs: after an answer that took longer than the
//! fraction, each has the whole limit, until one comes sooner.

use std::time::Duration;

/// What a connection that was open before has of the limit: one part of so many.
const FRACTION: u32 = 8;

#[derive(Debug)]
pub(super) struct ReaderPatience {
    whole: Duration,
    fraction: Duration,
    /// The last answer took longer than the fraction, or did not come.
    slow: bool,
}

impl ReaderPatience {
    /// For answers that may take `limit` each, and come at once from a server that is well.
    pub(super) fn quick(limit: Duration) -> Self {
        Self {
            whole: limit,
            fraction: limit / FRACTION,
            slow: false,
        }
    }

    /// For answers that may take `limit` each, however well the server is.
    pub(super) fn unhurried(limit: Duration) -> Self {
        Self {
            fraction: limit,
            ..Self::quick(limit)
        }
    }

    /// How long the next answer may take.
    pub(super) fn limit(&self, connection: Age) -> Duration {
        match connection {
            Age::Open if !self.slow => self.fraction,
            Age::Open | Age::Fresh => self.whole,
        }
    }

    /// An answer came after so long, or did not come within that.
    pub(super) fn waited(&mut self, time: Duration) {
        self.slow = time >= self.fraction;
    }
}

/// Whether a connection may have fallen silent while nobody looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// It was opened for this question.
    Fresh,
    /// It was open before.
    Open,
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Duration = Duration::from_secs(5);
    const FRACTION: Duration = Duration::from_millis(625);

    #[test]
    fn a_silent_connection_costs_a_fraction_of_the_limit() {
        let mut patience = ReaderPatience::quick(WHOLE);
        assert_eq!(patience.limit(Age::Fresh), WHOLE);
        assert_eq!(patience.limit(Age::Open), FRACTION);
        // It says nothing; the fresh one answers at once, and the next that falls silent costs no more.
        patience.waited(FRACTION);
        assert_eq!(patience.limit(Age::Fresh), WHOLE);
        patience.waited(Duration::from_millis(1));
        assert_eq!(patience.limit(Age::Open), FRACTION);
    }

    #[test]
    fn a_slow_server_is_waited_for() {
        let mut patience = ReaderPatience::quick(WHOLE);
        patience.waited(FRACTION);
        for _ in 0..3 {
            patience.waited(Duration::from_secs(2));
            assert_eq!(patience.limit(Age::Open), WHOLE);
        }
        patience.waited(FRACTION - Duration::from_millis(1));
        assert_eq!(patience.limit(Age::Open), FRACTION);
    }

    #[test]
    fn what_takes_its_time_has_the_whole_limit() {
        assert_eq!(ReaderPatience::unhurried(WHOLE).limit(Age::Open), WHOLE);
    }
}
