//! The holder's clock: it never steps, and it runs on while the machine sleeps.

use std::time::Duration;

/// A point in time on this machine's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    /// `CLOCK_BOOTTIME` on Linux, which counts the time in suspend; elsewhere the monotonic clock.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Self(Duration::new(
            u64::try_from(time.tv_sec).unwrap_or_default(),
            u32::try_from(time.tv_nsec).unwrap_or_default(),
        ))
    }

    /// `CLOCK_BOOTTIME` on Linux, which counts the time in suspend; elsewhere the monotonic clock.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn now() -> Self {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        Self(START.get_or_init(std::time::Instant::now).elapsed())
    }

    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// How long from `earlier` to here; zero if it is not earlier.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// How long from now to here; zero if it has passed.
    pub(crate) fn left(self) -> Duration {
        self.since(Self::now())
    }

    /// How often a sleeper looks at this clock: timers do not count the time in suspend.
    pub(crate) const RECHECK: Duration = Duration::from_secs(1);

    pub(crate) fn has_passed(self) -> bool {
        self <= Self::now()
    }

    pub(crate) fn as_micros(self) -> i64 {
        micros(self.0)
    }

    /// The last multiple of `grid` before here.
    pub(crate) fn rounded_down(self, grid: Duration) -> Self {
        let grid = micros(grid).max(1);
        Self::from_micros(self.as_micros() / grid * grid)
    }

    pub(crate) fn from_micros(micros: i64) -> Self {
        Self(from_micros(micros))
    }
}

/// A duration in microseconds, as the server counts; what does not fit is as long as fits.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// A number of microseconds as a duration; nothing below zero.
pub(crate) fn from_micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_order_and_subtract() {
        let now = Moment::now();
        let later = now.after(Duration::from_secs(3_600));
        assert!(later > now);
        assert_eq!(later.since(now), Duration::from_secs(3_600));
        assert_eq!(now.since(later), Duration::ZERO);
        assert!(now.has_passed());
        assert!(!later.has_passed());
    }

    #[test]
    fn micros_saturate() {
        assert_eq!(micros(Duration::MAX), i64::MAX);
        assert_eq!(from_micros(-1), Duration::ZERO);
    }
}
