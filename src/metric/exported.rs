//! With the feature `metrics`: what is told to the process's recorder.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::list::{ALL, Kind};
use crate::clock::{Moment, from_micros};
use crate::quietly::quietly;

/// Counts `how_many` of what `metric` names.
pub(crate) fn count(metric: &'static str, how_many: usize) {
    let how_many = u64::try_from(how_many).unwrap_or(u64::MAX);
    quietly(|| metrics::counter!(metric).increment(how_many));
}

/// Adds a time to a histogram.
pub(crate) fn record(metric: &'static str, took: Duration) {
    quietly(|| metrics::histogram!(metric).record(took));
}

/// Adds the time since then to a histogram.
pub(crate) fn record_since(metric: &'static str, since: Moment) {
    record(metric, Moment::now().since(since));
}

/// The server has answered, or could not be connected.
pub(crate) fn reachable(reachable: bool) {
    let value = if reachable { 1.0 } else { 0.0 };
    quietly(|| metrics::gauge!("tag_lock_server_reachable").set(value));
}

/// Tells the recorder what each metric means. Counters begin at zero, before there is anything to count: whoever asks how much one
/// has risen would miss the first increment otherwise.
pub(crate) fn describe() {
    for metric in ALL {
        let (name, unit, meaning) = (metric.name, metric.kind.unit(), metric.meaning);
        quietly(|| match metric.kind {
            Kind::Counter => {
                metrics::describe_counter!(name, unit, meaning);
                metrics::counter!(name).increment(0);
            }
            Kind::Gauge => metrics::describe_gauge!(name, unit, meaning),
            Kind::Seconds => metrics::describe_histogram!(name, unit, meaning),
        });
    }
}

impl Kind {
    fn unit(self) -> metrics::Unit {
        match self {
            Self::Counter | Self::Gauge => metrics::Unit::Count,
            Self::Seconds => metrics::Unit::Seconds,
        }
    }
}

/// An acquire that has no answer yet, also if it never gets one because its future is dropped.
pub(crate) struct Waiting(());

impl Waiting {
    pub(crate) fn begin() -> Self {
        quietly(|| metrics::gauge!("tag_lock_waiting").increment(1.0));
        Self(())
    }

    /// It has one.
    pub(crate) fn end(self) {}
}

impl Drop for Waiting {
    fn drop(&mut self) {
        quietly(|| metrics::gauge!("tag_lock_waiting").decrement(1.0));
    }
}

/// Since when a task holds a lease, and since when none does, in microseconds; 0 if that is not so.
///
/// A lease is held by one task at a time. Each hold is ended by the first of those who notice: the task itself, or whoever finds that
/// the lease is over.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    held_since: AtomicI64,
    free_since: AtomicI64,
}

impl Hold {
    /// A task has the lease: if another one had it before, it was handed over in memory.
    pub(crate) fn begin(&self) {
        let now = Moment::now();
        let free_since = self.free_since.swap(0, Ordering::Relaxed);
        if free_since != 0 {
            record("tag_lock_handover_seconds", past(free_since, now));
        }
        if self.held_since.swap(now.as_micros(), Ordering::Relaxed) == 0 {
            quietly(|| metrics::gauge!("tag_lock_held").increment(1.0));
        }
    }

    /// The task is done with it, or has lost it.
    pub(crate) fn end(&self) {
        let held_since = self.held_since.swap(0, Ordering::Relaxed);
        if held_since == 0 {
            return;
        }
        let now = Moment::now();
        record("tag_lock_hold_seconds", past(held_since, now));
        quietly(|| metrics::gauge!("tag_lock_held").decrement(1.0));
        self.free_since.store(now.as_micros(), Ordering::Relaxed);
    }
}

impl Hold {
    /// Nobody has it for a while: what comes next is no hand-over.
    pub(crate) fn rests(&self) {
        self.free_since.store(0, Ordering::Relaxed);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.end();
    }
}

fn past(since: i64, now: Moment) -> Duration {
    from_micros(now.as_micros() - since)
}

#[cfg(test)]
mod tests {
    use metrics::{
        Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    };

    use super::*;

    struct Panics;

    impl Recorder for Panics {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
            panic!("the recorder's")
        }

        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
            panic!("the recorder's")
        }

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
            panic!("the recorder's")
        }

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            panic!("the recorder's")
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            panic!("the recorder's")
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            panic!("the recorder's")
        }
    }

    #[test]
    fn a_recorder_that_panics_undoes_nothing() {
        metrics::with_local_recorder(&Panics, || {
            describe();
            count("tag_lock_waits_total", 1);
            reachable(true);
            drop(Waiting::begin());
            let hold = Hold::default();
            hold.begin();
            hold.end();
            hold.begin();
        });
    }
}
