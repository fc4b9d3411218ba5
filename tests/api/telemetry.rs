//! What the client tells through `tracing`: a span for each step of a lease's life, with the lock's name and no secret.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tag_lock::LockClient;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use crate::support::{TestDatabase, eventually, in_own_process};

/// All that was told.
#[derive(Clone, Default)]
struct Told {
    spans: Arc<Mutex<HashSet<(String, String)>>>,
    text: Arc<Mutex<String>>,
}

impl Told {
    fn has(&self, span: &str, lock: &str) -> bool {
        let wanted = (span.to_owned(), lock.to_owned());
        self.spans.lock().unwrap().contains(&wanted)
    }
}

/// The fields of a span or an event.
#[derive(Default)]
struct Fields {
    lock: String,
    text: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "lock" {
            self.lock = format!("{value:?}");
        }
        self.text.push_str(&format!(" {field}={value:?}"));
    }
}

impl<S: Subscriber> Layer<S> for Told {
    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        if span.metadata().target().starts_with("tag_lock") {
            let mut fields = Fields::default();
            span.record(&mut fields);
            self.text.lock().unwrap().push_str(&fields.text);
            let name = span.metadata().name().to_owned();
            self.spans.lock().unwrap().insert((name, fields.lock));
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target().starts_with("tag_lock") {
            let mut fields = Fields::default();
            event.record(&mut fields);
            self.text.lock().unwrap().push_str(&fields.text);
        }
    }
}

#[tokio::test]
async fn each_step_of_a_lease_is_a_span() {
    // A process has one subscriber.
    if in_own_process("each_step_of_a_lease_is_a_span").await {
        return;
    }
    let told = Told::default();
    // For all threads: renewals and losses are told by the lanes.
    let subscriber = tracing_subscriber::registry().with(told.clone());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let database = TestDatabase::new().await;
    let client = LockClient::connect(&database.url).await.unwrap();

    let guard = client.lock("report").acquire().await.unwrap();
    assert!(told.has("acquire", "report") && !told.has("release", "report"));
    let other = client.clone();
    let next = tokio::spawn(async move { other.lock("report").acquire().await.unwrap() });
    eventually("the second one waits", async || {
        client.lock("report").try_acquire().await.unwrap().is_none() && told.has("wait", "report")
    })
    .await;
    guard.release().await.unwrap();
    assert!(told.has("release", "report"));
    next.await.unwrap().release().await.unwrap();

    let ttl = Duration::from_millis(900);
    let kept = client.lock("kept").ttl(ttl).acquire().await.unwrap();
    eventually("it is renewed", async || told.has("renew", "kept")).await;
    assert!(!told.has("lose", "kept"));
    assert!(client.force_release("kept").await.unwrap());
    kept.lost().await;
    eventually("the loss is told", async || told.has("lose", "kept")).await;

    let text = told.text.lock().unwrap().clone();
    let secret = database.url.split([':', '@']).nth(2).unwrap();
    assert!(!secret.is_empty() && !text.contains(secret), "{text}");
    assert!(text.contains("waited=") && text.contains("held="), "{text}");
    drop(kept);
    database.remove().await;
}
