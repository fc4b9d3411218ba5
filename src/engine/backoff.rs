//! How long to wait before the next attempt.

use std::time::Duration;

/// Doubles from the first delay to the last, each time with jitter, so that those who failed
/// together do not come back together.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    next: Duration,
    first: Duration,
    last: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, last: Duration) -> Self {
        Self {
            next: first,
            first,
            last,
        }
    }

    /// After a failed attempt to connect.
    pub(crate) fn connecting() -> Self {
        Self::new(Duration::from_millis(20), Duration::from_secs(1))
    }

    /// After a conflict with another transaction.
    pub(crate) fn conflict() -> Self {
        Self::new(Duration::from_millis(1), Duration::from_millis(100))
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }

    /// Between half of the delay and all of it.
    pub(crate) fn delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).min(self.last);
        delay.mul_f64(rand::random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_last_and_starts_again() {
        let (first, last) = (Duration::from_millis(10), Duration::from_millis(35));
        let mut backoff = Backoff::new(first, last);
        for expected in [10, 20, 35, 35] {
            let expected = Duration::from_millis(expected);
            let delay = backoff.delay();
            assert!(delay >= expected / 2 && delay <= expected, "{delay:?}");
        }
        backoff.reset();
        assert!(backoff.delay() <= first);
    }
}
