//! Clients, requests and counters as an application keeps them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::proxy::Proxy;
use crate::support::{TestDatabase, eventually, run};
use futures_util::FutureExt;
use sqlx::mysql::MySqlPool;
use tag_lock::{Counter, Error, LeaseView, LockClient, LockGuard, LockRequest};

const S: Duration = Duration::from_secs(1);

#[test]
fn bounds() {
    fn kept<T: Clone + Send + Sync + 'static>() {}
    fn handed_on<T: Send + Sync + 'static>() {}
    kept::<LockClient>();
    kept::<LockRequest>();
    kept::<Counter>();
    kept::<LeaseView>();
    kept::<Error>();
    handed_on::<LockGuard>();
}

/// The client that they come from need not be kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_and_a_counter_are_enough() {
    let database = TestDatabase::new().await;
    let (request, counter) = {
        let client = database.client().await;
        (client.lock("l").wait(600 * S), client.counter("c"))
    };
    assert_eq!(counter.name(), "c");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (request, counter) = (request.clone(), counter.clone());
        tasks.spawn(async move {
            let guard = request.acquire().await?;
            counter.add(1).await?;
            guard.release().await
        });
    }
    for result in tasks.join_all().await {
        result.expect("its turn");
    }
    assert_eq!(counter.get().await.expect("reads"), 8);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_starts_while_its_database_is_away() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    proxy.refuse(true);
    // Short, since a request waits for its end; longer than a machine may stand still.
    let builder = LockClient::builder(proxy.url(&database.url).parse().expect("a URL"))
        .packet_timeout(4 * S)
        .request_timeout(4 * S);
    let refused = builder.clone().connect().await.expect_err("no server");
    assert!(matches!(refused, Error::Unreachable { .. }), "{refused:?}");
    let client = builder.connect_lazy().expect("a client");
    let (request, counter) = (client.lock("l"), client.counter("c"));
    let (acquired, added) = tokio::join!(request.clone().acquire(), counter.add(1));
    for error in [
        acquired.expect_err("no server"),
        added.expect_err("no server"),
    ] {
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        assert!(error.is_retryable());
    }
    proxy.refuse(false);
    eventually("the server is there", async || counter.add(1).await.is_ok()).await;
    let guard = request.acquire().await.expect("acquires");
    guard.release().await.expect("ours");
    database.remove().await;
}

/// Nothing is sent: there is no server.
#[tokio::test]
async fn a_url_that_names_no_database_is_refused() {
    for url in [
        "mysql://user:secret@127.0.0.1:1",
        "mysql://user:secret@127.0.0.1:1/",
        "mysql://user:secret@127.0.0.1:1?charset=utf8mb4",
        "mysql://user:secret@127.0.0.1:port/shop",
        "user:secret",
    ] {
        let lazy = LockClient::connect_lazy(url).map(|_| ());
        for refused in [LockClient::connect(url).await.map(|_| ()), lazy] {
            let error = refused.expect_err("refused");
            assert!(
                matches!(error, Error::InvalidOption { option: "url", .. }),
                "{error:?}"
            );
            let said = format!("{error} {error:?}");
            assert!(
                said.contains("mysql://user:password@host:port/database"),
                "{said}"
            );
            assert!(!said.contains("secret"), "{said}");
        }
    }
}

/// A job that three machines start one after the other: the lock stays taken for longer than the job runs.
#[tokio::test]
async fn a_job_that_is_tried_runs_once() {
    let database = TestDatabase::new().await;
    let ran = AtomicUsize::new(0);
    for machine in 0..3 {
        let client = database.client().await;
        let job = client.lock("job").hold_at_least(600 * S);
        let result = job.try_run(async |lease| {
            ran.fetch_add(1, Ordering::Relaxed);
            assert!(lease.is_held());
            Ok::<_, Error>(machine)
        });
        let expected = (machine == 0).then_some(0);
        assert_eq!(result.await.expect("an answer"), expected);
    }
    assert_eq!(ran.into_inner(), 1);
    // What fails is told as it is, and is released.
    let client = database.client().await;
    let failed = client
        .lock("l")
        .try_run(async |_| Err::<(), _>(Box::<dyn std::error::Error>::from("no paper")));
    assert_eq!(failed.await.expect_err("it failed").to_string(), "no paper");
    let again = client
        .lock("l")
        .try_run(async |_| {})
        .await
        .expect("an answer");
    assert_eq!(again, Some(()));
    database.remove().await;
}

/// Work under a lock verifies its lease; a view that outlives it does not.
#[tokio::test(flavor = "multi_thread")]
async fn work_verifies_its_lease() {
    let database = TestDatabase::new().await;
    let (client, other) = (database.client().await, database.client().await);
    let pool = MySqlPool::connect(&database.url).await.expect("a pool");
    run(
        &mut database.connection().await,
        "CREATE TABLE done (n INT)",
    )
    .await;
    let work = client.lock("l").run(async |lease| {
        let mut tx = pool.begin().await?;
        lease.verify_in(&mut tx).await?;
        sqlx::query("INSERT INTO done VALUES (1)")
            .execute(&mut *tx)
            .await?;
        assert!(other.lock("l").try_acquire().await?.is_none());
        tx.commit().await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(lease)
    });
    let stale = work.await.expect("it was held");
    let mut tx = pool.begin().await.expect("begins");
    let refused = stale.verify_in(&mut tx).await;
    assert!(
        matches!(refused, Err(Error::LockLost { .. })),
        "{refused:?}"
    );
    tx.rollback().await.expect("rolls back");
    pool.close().await;
    database.remove().await;
}

/// While a view verifies, its guard's turn may end in another task: then it does not pass in memory, or the view is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_of_a_turn_that_has_passed_is_refused() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    let first = client.lock("l").acquire().await.expect("acquires");
    let view = first.view();
    let mut second = Box::pin(client.lock("l").acquire());
    // The place in the queue is taken with the first poll.
    assert!(second.as_mut().now_or_never().is_none());
    drop(first);
    let second = second.await.expect("acquires");
    run(&mut connection, "START TRANSACTION").await;
    let refused = view.verify_in(&mut connection).await;
    assert!(
        matches!(refused, Err(Error::LockLost { .. })),
        "{refused:?}"
    );
    second.verify_in(&mut connection).await.expect("its turn");
    run(&mut connection, "COMMIT").await;
    second.release().await.expect("ours");
    database.remove().await;
}
