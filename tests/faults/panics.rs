//! A panic in code of the application that the client's tasks run, such as a writer of logs, ends none of them; and an outage is told
//! once when it begins and once when it ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::support::lateness::with_ttl;
use crate::support::processes::{in_own_process, in_own_processes};
use crate::support::proxy::Proxy;
use crate::support::{TestDatabase, connected, eventually, number};
use tag_lock::{AtClose, Error, LockClient};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// What is told, and what its writer cannot stand.
#[derive(Clone, Default)]
struct Writer(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    /// It panics at an event that contains this, so often.
    panics_at: Option<(&'static str, u32)>,
    panicked: u32,
    warnings: Vec<String>,
}

impl Writer {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn panic_at(&self, text: &'static str, times: u32) {
        let mut told = self.told();
        told.panicked = 0;
        told.panics_at = Some((text, times));
    }

    fn take_in(&self, text: &str, level: Level) {
        let mut told = self.told();
        if level == Level::WARN {
            told.warnings.push(text.to_owned());
        }
        if let Some((at, times)) = told.panics_at
            && text.contains(at)
        {
            told.panicked += 1;
            if told.panicked == times {
                told.panics_at = None;
            }
            drop(told);
            panic!("a writer of logs panics at {at:?}");
        }
    }

    /// Has panicked as often as it was to.
    async fn panicked(&self) {
        eventually("it panics", async || self.told().panics_at.is_none()).await;
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }
}

impl<S: Subscriber + for<'l> LookupSpan<'l>> Layer<S> for Writer {
    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        self.take_in(
            &format!("new span {}", span.metadata().name()),
            Level::TRACE,
        );
    }

    fn on_enter(&self, span: &Id, context: Context<'_, S>) {
        let name = context.span(span).unwrap().name();
        self.take_in(&format!("enter {name}"), Level::TRACE);
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !event.metadata().target().starts_with("tag_lock") {
            return;
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.take_in(&text.0, *event.metadata().level());
    }
}

/// One for a process: the client's tasks tell from other threads.
static WRITER: std::sync::LazyLock<Writer> = std::sync::LazyLock::new(|| {
    let writer = Writer::default();
    let subscriber = tracing_subscriber::registry().with(writer.clone());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    writer
});

const NAMES: usize = 40;

/// The client panics when it tells this, for the n-th time; then all names can be had, all leases are still held, and no addition was lost or
/// doubled. Each in a process of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_ends_no_task_of_the_client() {
    let places = [
        "1 a batch was committed",
        "3 a batch was committed",
        "1 renewed",
        "1 released",
        // In the keeper, and in the lane that has the answers of some of a batch.
        "1 new span renew",
        "1 enter renew",
        "3 enter renew",
    ];
    let place = in_own_processes("a_panic_ends_no_task_of_the_client", &places).await;
    let Some(place) = place else { return };
    let (times, at) = place.split_once(' ').unwrap();
    let (times, at) = (times.parse().unwrap(), &*at.to_owned().leak());
    with_ttl(Duration::from_secs(3), async |ttl| {
        panics(at, times, ttl).await
    })
    .await;
}

async fn panics(at: &'static str, times: u32, ttl: Duration) {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut guards = Vec::new();
    for name in 0..NAMES {
        let lock = client.lock(&format!("held {name}")).ttl(ttl);
        guards.push(lock.acquire().await.unwrap());
    }
    let dropped = client.lock("dropped").acquire().await.unwrap();
    WRITER.panic_at(at, times);
    drop(dropped);
    let mut sum = 0;
    for _ in 0..4 {
        match client.counter("n").add(1).await {
            Ok(value) => {
                sum += 1;
                assert_eq!(value, sum, "{at}");
            }
            // Its outcome is what the table says.
            Err(Error::OutcomeUnknown { .. }) => sum = client.counter("n").get().await.unwrap(),
            Err(error) => panic!("{at}: {error:?}"),
        }
    }
    WRITER.panicked().await;
    tokio::time::sleep(ttl * 2).await;
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    assert_eq!(held, NAMES, "{at}");
    for name in 0..NAMES {
        let lock = client.lock(&format!("new {name}"));
        let guard = lock.try_acquire().await.unwrap().expect("it is free");
        guard.release().await.unwrap();
    }
    assert_eq!(client.counter("n").add(1).await.unwrap(), sum + 1, "{at}");
    for guard in guards {
        guard.release().await.unwrap();
    }
    eventually("what was dropped is free", async || {
        client.list("", None, 10).await.unwrap().is_empty()
    })
    .await;
    let ended = client.close_within(AtClose::Release, Duration::from_secs(60));
    assert!(ended.await, "{at}");
    database.remove().await;
}

/// A panic at what is told between a decision and what follows from it: whoever waits gets the lock all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_keeps_nobody_waiting() {
    if in_own_process("a_panic_keeps_nobody_waiting").await {
        return;
    }
    let database = TestDatabase::new().await;
    let (client, other) = (database.client().await, database.client().await);
    let waiter = |name: &'static str| {
        let client = client.clone();
        tokio::spawn(async move { client.lock(name).acquire().await.unwrap() })
    };
    let guard = other.lock("held elsewhere").acquire().await.unwrap();
    WRITER.panic_at("waiting for another process", 1);
    let waiting = waiter("held elsewhere");
    WRITER.panicked().await;
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();

    for (name, at) in [("lost", "a lease was lost"), ("lost too", "new span lose")] {
        let ttl = Duration::from_secs(1);
        let guard = client.lock(name).ttl(ttl).acquire().await.unwrap();
        let waiting = waiter(name);
        WRITER.panic_at(at, 1);
        assert!(other.force_release(name).await.unwrap());
        WRITER.panicked().await;
        waiting.await.unwrap().release().await.unwrap();
        assert!(!guard.is_held());
    }

    WRITER.panic_at("released", 1);
    let guard = client.lock("dropped").acquire().await.unwrap();
    let waiting = waiter("dropped");
    drop(guard);
    waiting.await.unwrap().release().await.unwrap();
    WRITER.panicked().await;
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_told_once_when_it_begins_and_once_when_it_ends() {
    if in_own_process("an_outage_is_told_once_when_it_begins_and_once_when_it_ends").await {
        return;
    }
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let client = connected(
        LockClient::builder(proxy.url(&database.url).parse().unwrap())
            .request_timeout(Duration::from_secs(600)),
    )
    .await;
    let guard = client.lock("l").acquire().await.unwrap();
    let mut guards = Vec::new();
    for name in 0..10 {
        let lock = client.lock(&format!("held {name}"));
        guards.push(lock.ttl(Duration::from_secs(600)).acquire().await.unwrap());
    }
    let _writer = &*WRITER;
    WRITER.told().warnings.clear();
    proxy.refuse(true);
    proxy.cut_all();
    let others: Vec<_> = (0..8)
        .map(|name| {
            let client = client.clone();
            tokio::spawn(async move { client.counter(&format!("n {name}")).add(1).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    proxy.refuse(false);
    for other in others {
        assert_eq!(other.await.unwrap().unwrap(), 1);
    }
    eventually("it is told that it is over", async || {
        client.counter("n").add(1).await.unwrap();
        WRITER
            .told()
            .warnings
            .iter()
            .any(|text| text.contains("is over"))
    })
    .await;
    let warnings = std::mem::take(&mut WRITER.told().warnings);
    let about = |text: &str| warnings.iter().filter(|told| told.contains(text)).count();
    assert_eq!(about("an outage begins"), 1, "{warnings:#?}");
    assert_eq!(about("the outage is over"), 1, "{warnings:#?}");
    // A packet that was in flight is told for each lane.
    let others = warnings.len() - 2;
    assert!(others <= 2, "{others} others: {warnings:#?}");
    let over = warnings
        .iter()
        .find(|told| told.contains("is over"))
        .unwrap();
    assert!(
        over.contains("lasted=") && over.contains("failures="),
        "{over}"
    );
    assert!(guard.is_held());
    let mut connection = database.connection().await;
    let sum =
        "SELECT CAST(SUM(count) AS SIGNED) FROM t_tag_lock WHERE kind = 2 AND lock_name LIKE 'n %'";
    assert_eq!(number(&mut connection, sum).await, 8);
    database.remove().await;
}
