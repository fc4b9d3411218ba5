//! What an exporter is told: times, gauges and counts of what a client does.
//!
//! ```sh
//! scripts/with-mysql cargo test --features metrics --test api -- metrics::
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tag_lock::{AtClose, Error};

use crate::support::proxy::Proxy;
use crate::support::{TestDatabase, connected, eventually, in_own_process, patient};

/// All values of a histogram.
#[derive(Default)]
struct Times(Mutex<Vec<f64>>);

impl HistogramFn for Times {
    fn record(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }
}

/// All that was told, by name.
#[derive(Clone, Default)]
struct Told {
    described: Arc<Mutex<HashMap<String, Unit>>>,
    counters: Arc<Mutex<HashMap<String, Arc<AtomicU64>>>>,
    gauges: Arc<Mutex<HashMap<String, Arc<AtomicU64>>>>,
    times: Arc<Mutex<HashMap<String, Arc<Times>>>>,
}

impl Told {
    fn describe(&self, key: KeyName, unit: Option<Unit>, meaning: &str) {
        assert!(!meaning.is_empty(), "{key:?}");
        let mut described = self.described.lock().unwrap();
        described.insert(key.as_str().to_owned(), unit.expect("a unit"));
    }

    fn count(&self, name: &str) -> u64 {
        let counters = self.counters.lock().unwrap();
        counters.get(name).map_or(0, |value| value.load(Relaxed))
    }

    fn gauge(&self, name: &str) -> f64 {
        let gauges = self.gauges.lock().unwrap();
        f64::from_bits(gauges.get(name).expect(name).load(Relaxed))
    }

    fn times(&self, name: &str) -> Vec<f64> {
        let times = self.times.lock().unwrap();
        let values = |times: &Arc<Times>| times.0.lock().unwrap().clone();
        times.get(name).map(values).unwrap_or_default()
    }
}

fn handle<T: Default>(map: &Mutex<HashMap<String, Arc<T>>>, key: &Key) -> Arc<T> {
    let mut map = map.lock().unwrap();
    Arc::clone(map.entry(key.name().to_owned()).or_default())
}

impl Recorder for Told {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, meaning: SharedString) {
        self.describe(key, unit, &meaning);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, meaning: SharedString) {
        self.describe(key, unit, &meaning);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, meaning: SharedString) {
        self.describe(key, unit, &meaning);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(handle(&self.counters, key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(handle(&self.gauges, key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(handle(&self.times, key))
    }
}

const HELD: &str = "tag_lock_held";
const WAITING: &str = "tag_lock_waiting";
const REACHABLE: &str = "tag_lock_server_reachable";
const WAITS: &str = "tag_lock_waits_total";
const LOST: &str = "tag_lock_lost_total";
const ACQUIRE: &str = "tag_lock_acquire_seconds";
const HOLD: &str = "tag_lock_hold_seconds";
const HANDOVER: &str = "tag_lock_handover_seconds";
const COMMIT: &str = "tag_lock_commit_seconds";

/// How long a lock is held at least where that is measured.
const WORK: Duration = Duration::from_millis(50);

/// In one test: the process has one recorder.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_does_is_measured() {
    // A process has one recorder.
    if in_own_process("what_a_client_does_is_measured").await {
        return;
    }
    let told = Told::default();
    metrics::set_global_recorder(told.clone()).unwrap_or_else(|_| panic!("there is one"));
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let client = connected(patient(&proxy.url(&database.url))).await;

    // Counters are there before there is anything to count.
    assert!(told.counters.lock().unwrap().contains_key(LOST));
    assert_eq!(told.count(LOST), 0);

    // A free lock.
    let guard = client.lock("a").acquire().await.unwrap();
    assert_eq!((told.gauge(HELD), told.gauge(WAITING)), (1.0, 0.0));
    assert_eq!(told.times(ACQUIRE).len(), 1);
    assert_eq!(told.count(WAITS), 0);
    assert!(told.times(HOLD).is_empty());
    assert!(!told.times(COMMIT).is_empty());
    assert_eq!(told.gauge(REACHABLE), 1.0);
    assert_eq!(
        told.described.lock().unwrap().get(HOLD),
        Some(&Unit::Seconds)
    );
    assert_eq!(
        told.described.lock().unwrap().get(WAITS),
        Some(&Unit::Count)
    );

    // One that a task of this process holds: it passes in memory.
    let next = tokio::spawn({
        let client = client.clone();
        async move { client.lock("a").acquire().await.unwrap() }
    });
    eventually("it waits", async || told.count(WAITS) == 1).await;
    assert_eq!(told.gauge(WAITING), 1.0);
    // Who does not want to wait does not.
    assert!(client.lock("a").try_acquire().await.unwrap().is_none());
    assert_eq!(told.count(WAITS), 1);
    tokio::time::sleep(WORK).await;
    guard.release().await.unwrap();
    let guard = next.await.unwrap();
    assert_eq!((told.gauge(HELD), told.gauge(WAITING)), (1.0, 0.0));
    assert_eq!(told.times(HANDOVER).len(), 1);
    assert_eq!(told.times(ACQUIRE).len(), 2);
    let held = told.times(HOLD);
    assert!(held.len() == 1 && held[0] >= WORK.as_secs_f64(), "{held:?}");
    // What was waited is in the second one's time.
    assert!(told.times(ACQUIRE)[1] >= WORK.as_secs_f64());

    // One that another client holds: waited for once, however often it is looked at; and given up.
    let other = database.client().await;
    let waiting = other.lock("a").wait(Duration::from_secs(3)).acquire();
    let refused = waiting.await;
    assert!(matches!(refused, Err(Error::Timeout { .. })), "{refused:?}");
    assert_eq!(told.count(WAITS), 2);
    assert_eq!(told.gauge(WAITING), 0.0);
    // A future that is dropped waits no more.
    let waiting = tokio::time::timeout(WORK, other.lock("a").acquire()).await;
    waiting.unwrap_err();
    assert_eq!(told.gauge(WAITING), 0.0);

    // A drop ends a hold as well as a release, and a loss before both.
    drop(guard);
    assert_eq!((told.gauge(HELD), told.times(HOLD).len()), (0.0, 2));
    let guard = other
        .lock("b")
        .ttl(Duration::from_secs(4))
        .auto_renew(false);
    let guard = guard.acquire().await.unwrap();
    assert_eq!(told.gauge(HELD), 1.0);
    guard.lost().await;
    eventually("the loss is counted", async || told.count(LOST) == 1).await;
    eventually("the loss ends the hold", async || told.gauge(HELD) == 0.0).await;
    assert_eq!(told.times(HOLD).len(), 3);
    drop(guard);
    assert_eq!((told.gauge(HELD), told.times(HOLD).len()), (0.0, 3));
    // What passed through the table is no hand-over.
    assert_eq!(told.times(HANDOVER).len(), 1);

    // The server is away, and comes back.
    other.close(AtClose::Release).await;
    client.counter("c").add(1).await.unwrap();
    proxy.refuse(true);
    proxy.cut_all();
    let adding = tokio::spawn({
        let client = client.clone();
        async move { client.counter("c").add(1).await.unwrap() }
    });
    eventually("it is away", async || told.gauge(REACHABLE) == 0.0).await;
    proxy.refuse(false);
    adding.await.unwrap();
    eventually("it is back", async || {
        client.counter("c").add(1).await.unwrap();
        told.gauge(REACHABLE) == 1.0
    })
    .await;

    client.close(AtClose::Release).await;
    database.remove().await;
}
