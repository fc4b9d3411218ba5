//! How long the reader waits for an answer.
//!
//! All who wait in a client ask over one connection. If it falls silent, all of them wait for it, though the server would answer over
//! another. So a connection that was open before has a fraction of the limit, and what was asked in vain is asked over a fresh one, which has
//! the whole. Where the server is what is slow, a fresh connection is no quicker, and costs: after an answer that took longer than the
//! fraction, or did not come, each has the whole limit for a while.

use std::time::Duration;

use crate::clock::Moment;
use crate::timing::{SLOW, SOON};

/// What a connection that was open before has of the limit: one part of so many, and never less than [`SOON`].
const FRACTION: u32 = 8;

#[derive(Debug)]
pub(super) struct ReaderPatience {
    whole: Duration,
    fraction: Duration,
    /// Until when the server may be slow.
    slow_until: Option<Moment>,
}

impl ReaderPatience {
    /// For answers that may take `limit` each, and come at once from a server that is well.
    pub(super) fn quick(limit: Duration) -> Self {
        Self {
            whole: limit,
            fraction: (limit / FRACTION).max(SOON).min(limit),
            slow_until: None,
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
    pub(super) fn limit(&self, connection: Age, now: Moment) -> Duration {
        let is_slow = self.slow_until.is_some_and(|until| now < until);
        match connection {
            Age::Open if !is_slow => self.fraction,
            Age::Open | Age::Fresh => self.whole,
        }
    }

    /// An answer came after so long, or did not come within that.
    pub(super) fn waited(&mut self, time: Duration, now: Moment) {
        if time >= self.fraction {
            self.slow_until = Some(now.after(SLOW));
        }
    }
}

/// Whether a connection may have fallen silent while nobody looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// It was opened for this question.
    Fresh,
    /// It has answered before, whoever asked.
    Open,
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Duration = Duration::from_secs(40);
    const FRACTION: Duration = Duration::from_secs(5);

    fn at(seconds: u64) -> Moment {
        Moment::from_micros(0).after(Duration::from_secs(seconds))
    }

    #[test]
    fn a_silent_connection_costs_a_fraction_of_the_limit() {
        let mut patience = ReaderPatience::quick(WHOLE);
        assert_eq!(patience.limit(Age::Fresh, at(0)), WHOLE);
        assert_eq!(patience.limit(Age::Open, at(0)), FRACTION);
        // It says nothing; the fresh one answers at once.
        patience.waited(FRACTION, at(5));
        assert_eq!(patience.limit(Age::Fresh, at(5)), WHOLE);
        patience.waited(Duration::from_millis(1), at(5));
        // A while later the next one may fall silent.
        assert_eq!(patience.limit(Age::Open, at(6)), WHOLE);
        assert_eq!(patience.limit(Age::Open, at(5).after(SLOW)), FRACTION);
    }

    #[test]
    fn a_slow_server_is_waited_for() {
        let mut patience = ReaderPatience::quick(WHOLE);
        for second in 1..5 {
            patience.waited(FRACTION, at(second));
            patience.waited(Duration::from_millis(1), at(second));
            assert_eq!(patience.limit(Age::Open, at(second)), WHOLE);
        }
    }

    /// Who waits for a table that somebody has locked is told so by the server, and not cut off before.
    #[test]
    fn an_answer_has_longer_than_the_server_waits_for_a_table() {
        let short = Duration::from_secs(2);
        assert_eq!(ReaderPatience::quick(short).limit(Age::Open, at(0)), SOON);
        let shorter = Duration::from_millis(100);
        assert_eq!(
            ReaderPatience::quick(shorter).limit(Age::Open, at(0)),
            shorter
        );
    }

    #[test]
    fn what_takes_its_time_has_the_whole_limit() {
        assert_eq!(
            ReaderPatience::unhurried(WHOLE).limit(Age::Open, at(0)),
            WHOLE
        );
    }
}
