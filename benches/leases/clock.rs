//! `CLOCK_MONOTONIC`, which all processes of a machine read alike.

/// Nanoseconds since the machine started.
pub(crate) fn nanoseconds() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let rest = u64::try_from(time.tv_nsec).unwrap_or_default();
    seconds * 1_000_000_000 + rest
}

/// A difference of two readings in milliseconds.
pub(crate) fn milliseconds(from: u64, to: u64) -> f64 {
    let difference = i128::from(to) - i128::from(from);
    #[allow(clippy::cast_precision_loss, reason = "far below 2^53 nanoseconds")]
    let difference = difference as f64;
    difference / 1e6
}
