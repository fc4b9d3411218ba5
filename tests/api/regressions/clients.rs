//! What a client answers at its end, and callers that go away.

use std::time::Duration;

use tag_lock::{AtClose, Error, LockClient};

use super::HANG;
use crate::support::proxy::{Fault, Proxy};
use crate::support::{TestDatabase, connected, patient};

/// A client whose runtime has ended answers, instead of letting its callers wait for ever.
#[test]
fn a_client_that_outlives_its_runtime_is_closed() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(async {
        let database = TestDatabase::new().await;
        database.client().await
    });
    drop(runtime);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let counter = client.counter("a");
        let added = tokio::time::timeout(HANG, counter.add(1)).await;
        assert!(matches!(added, Ok(Err(Error::Closed))), "{added:?}");
        let read = tokio::time::timeout(HANG, counter.get()).await;
        assert!(matches!(read, Ok(Err(Error::Closed))), "{read:?}");
        let lock = tokio::time::timeout(HANG, client.lock("a").acquire()).await;
        assert!(matches!(lock, Ok(Err(Error::Closed))), "{lock:?}");
    });
}

/// A grant that is on its way when the client is closed is released, not left to its ttl.
#[tokio::test]
async fn close_releases_what_is_on_its_way() {
    let database = TestDatabase::new().await;
    let other = database.client().await;
    for round in 0..20 {
        let client = database.client().await;
        let name = format!("c{round}");
        let acquiring = tokio::spawn({
            let (client, name) = (client.clone(), name.clone());
            async move { client.lock(&name).acquire().await.map(drop) }
        });
        tokio::time::sleep(Duration::from_micros(500 + 300 * round)).await;
        client.close(AtClose::Release).await;
        let _ = acquiring.await.unwrap();
        assert!(
            other.lock(&name).try_acquire().await.unwrap().is_some(),
            "round {round}: still taken"
        );
    }
    database.remove().await;
}

/// Callers that come and go without an end must not keep a lane from sending.
#[tokio::test(flavor = "current_thread")]
async fn callers_without_an_end_are_answered() {
    let database = TestDatabase::new().await;
    let client = connected(patient(&database.url).lanes(1)).await;
    let busy = {
        let client = client.clone();
        tokio::spawn(async move {
            loop {
                let counter = client.counter("busy");
                for _ in 0..4 {
                    drop(futures_util::FutureExt::now_or_never(counter.add(1)));
                }
                tokio::task::yield_now().await;
            }
        })
    };
    for value in 1..=3 {
        let added = tokio::time::timeout(HANG, client.counter("patient").add(1)).await;
        assert_eq!(added.expect("an answer").unwrap(), value);
    }
    busy.abort();
    client.close(AtClose::Release).await;
    database.remove().await;
}

/// Questions that nobody waits for any more keep nobody waiting.
#[tokio::test]
async fn questions_of_those_who_went_away_are_not_asked() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let builder = LockClient::builder(proxy.url(&database.url).parse().unwrap())
        .packet_timeout(Duration::from_secs(3))
        .request_timeout(Duration::from_secs(3));
    let client = connected(builder).await;
    proxy.on_command(|_| Fault::CutBefore);
    for _ in 0..40 {
        let asked = tokio::time::timeout(Duration::from_millis(1), client.inspect("a"));
        drop(asked.await);
    }
    // One after the other they would take two minutes.
    let read = tokio::time::timeout(HANG, client.counter("a").get()).await;
    read.expect("an answer").unwrap_err();
    database.remove().await;
}

/// Names that begin with a control character are listed too.
#[tokio::test]
async fn every_name_is_listed() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut guards = Vec::new();
    for name in ["\0", "\0a", "\t", "\n", "a", "é", "🎁"] {
        guards.push(client.lock(name).acquire().await.unwrap());
    }
    let mut names = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = client.list("", after.as_deref(), 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.name.clone());
        names.extend(page.into_iter().map(|info| info.name));
    }
    names.sort_unstable();
    assert_eq!(names, ["\0", "\0a", "\t", "\n", "a", "é", "🎁"]);
    database.remove().await;
}
