//! How often the clients met conflicts and unknown outcomes, from their events.

use std::fmt;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

static CONFLICTS: AtomicU64 = AtomicU64::new(0);
static UNKNOWN: AtomicU64 = AtomicU64::new(0);

/// What was counted since the program began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) conflicts: u64,
    pub(crate) unknown: u64,
}

/// Counts from now on; what it has counted.
pub(crate) fn counted() -> Counted {
    static START: Once = Once::new();
    START.call_once(|| {
        let subscriber = tracing_subscriber::registry().with(Counter);
        tracing::subscriber::set_global_default(subscriber).expect("nobody else listens");
    });
    Counted {
        conflicts: CONFLICTS.load(Ordering::Relaxed),
        unknown: UNKNOWN.load(Ordering::Relaxed),
    }
}

struct Counter;

impl<S: Subscriber> Layer<S> for Counter {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target() == "tag_lock::telemetry" && *metadata.level() <= Level::DEBUG
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut Message);
    }
}

struct Message;

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() != "message" {
            return;
        }
        let message = format!("{value:?}");
        if message.starts_with("conflict") {
            CONFLICTS.fetch_add(1, Ordering::Relaxed);
        } else if message.contains("outcome is unknown") {
            UNKNOWN.fetch_add(1, Ordering::Relaxed);
        }
    }
}
