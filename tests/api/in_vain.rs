//! Waits that end before the lock is free: what they say, and what they leave behind.

use std::time::{Duration, Instant};

use crate::support;
use crate::support::proxy::{Fault, Gate, Hold, Proxy, once};
use crate::support::{TestDatabase, eventually, is_batch};
use sqlx::Row;
use tag_lock::{AtClose, Error, LockClient};

const HOUR: Duration = Duration::from_secs(3_600);

async fn named_client(database: &TestDatabase, holder: &str) -> LockClient {
    LockClient::builder(database.url.parse().unwrap())
        .holder(holder)
        .connect()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_in_vain_names_the_holder() {
    let database = TestDatabase::new().await;
    let a = named_client(&database, "host-a/1").await;
    let b = named_client(&database, "host-b/2").await;
    let request = a.lock("job").ttl(HOUR).description("nightly report");
    let guard = request.acquire().await.unwrap();
    for wait in [Duration::ZERO, Duration::from_millis(50)] {
        let error = loop {
            let start = Instant::now();
            let error = b.lock("job").wait(wait).acquire().await.unwrap_err();
            // Questions are given up after a second: so late a server is asked again.
            let late = start.elapsed() >= wait + Duration::from_secs(1);
            if !late
                || matches!(
                    error,
                    Error::Timeout {
                        holder: Some(_),
                        ..
                    }
                )
            {
                break error;
            }
        };
        let message = error.to_string();
        let Error::Timeout {
            name,
            holder,
            remaining,
        } = error
        else {
            panic!("{error:?}")
        };
        assert_eq!(name, "job");
        assert_eq!(holder.as_deref(), Some("host-a/1 (nightly report)"));
        assert!(remaining.is_some_and(|left| left > HOUR / 2 && left <= HOUR));
        assert!(message.contains("host-a/1 (nightly report)"), "{message}");
    }
    guard.release().await.unwrap();
    // No trace of those who gave up.
    eventually("the wish is taken back", async || {
        !is_wanted(&database).await
    })
    .await;
    drop(b.lock("job").try_acquire().await.unwrap().unwrap());
    database.remove().await;
}

/// A question is answered too late for its wait, so that the grant goes back. Nobody else had the lock: the error does not say that somebody was in
/// the way, least of all the client itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_comes_too_late_was_in_nobodys_way() {
    let database = TestDatabase::new().await;
    for what in ["a lock", "an owner's", "a shared hold", "a permit"] {
        let proxy = Proxy::before(&database.url).await.unwrap();
        let client = LockClient::connect(&proxy.url(&database.url))
            .await
            .unwrap();
        let request = client.lock("job");
        let seats = client.semaphore("seats", 1);
        let take = async |wait: Duration| match what {
            "a lock" => request.clone().wait(wait).acquire().await?.release().await,
            "an owner's" => {
                let request = request.clone().owner("o").wait(wait);
                request.acquire().await?.release().await
            }
            "a shared hold" => {
                let request = request.clone().shared().wait(wait);
                request.acquire().await?.release().await
            }
            _ => seats.clone().wait(wait).acquire().await?.release().await,
        };
        // Its row exists.
        take(HOUR).await.unwrap();
        let gate = Gate::new();
        let late = Fault::HoldReply(Hold::Until(gate.clone()));
        proxy.on_command(once(is_batch, late));
        let error = take(Duration::from_millis(1)).await.unwrap_err();
        assert!(
            matches!(error, Error::Unreachable { .. }),
            "{what}: {error:?}"
        );
        gate.open();
        // It has gone back.
        take(HOUR).await.unwrap();
        client.close(AtClose::Release).await;
    }
    database.remove().await;
}

/// The same of a grant whose lease was over when its answer came.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_is_over_when_it_is_heard_of_was_in_nobodys_way() {
    let database = TestDatabase::new().await;
    for owned in [false, true] {
        let proxy = Proxy::before(&database.url).await.unwrap();
        let client = LockClient::connect(&proxy.url(&database.url))
            .await
            .unwrap();
        let request = |ttl| {
            let request = client.lock("job").ttl(ttl);
            if owned { request.owner("o") } else { request }
        };
        for tries in [false, true] {
            // Its row exists, and what was granted before has gone back.
            let guard = request(HOUR).acquire().await.unwrap();
            guard.release().await.unwrap();
            let late = Fault::HoldReply(Hold::For(Duration::from_millis(300)));
            proxy.on_command(once(is_batch, late));
            let request = request(Duration::from_millis(100));
            let error = if tries {
                request.try_acquire().await.unwrap_err()
            } else {
                let request = request.wait(Duration::from_millis(1));
                request.acquire().await.unwrap_err()
            };
            assert!(
                matches!(error, Error::Unreachable { .. }),
                "owned: {owned}, tries: {tries}: {error:?}"
            );
        }
        client.close(AtClose::Release).await;
    }
    database.remove().await;
}

/// Until when somebody wants the lock `job`, in microseconds since 1970 on the server; and that clock.
async fn wanted_until(database: &TestDatabase) -> (i64, i64) {
    const TIMES: &str = "SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01',wanted_until), \
                         TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6)) \
                         FROM t_tag_lock WHERE lock_name='job' AND kind=1";
    let mut connection = database.connection().await;
    let row = sqlx::query(TIMES).fetch_one(&mut connection).await.unwrap();
    (row.get(0), row.get(1))
}

async fn is_wanted(database: &TestDatabase) -> bool {
    let (until, now) = wanted_until(database).await;
    until > now
}

#[tokio::test(flavor = "multi_thread")]
async fn who_gives_up_while_a_transaction_has_the_row_takes_its_wish_back() {
    let database = TestDatabase::new().await;
    let (a, b) = (database.client().await, database.client().await);
    let guard = a.lock("job").ttl(HOUR).acquire().await.unwrap();
    // A machine that takes longer for a few packets shows nothing.
    while !takes_its_wish_back(&database, &b).await {}
    guard.release().await.unwrap();
    database.remove().await;
}

/// Whether it was soon enough to be seen.
async fn takes_its_wish_back(database: &TestDatabase, b: &LockClient) -> bool {
    let waiting = tokio::spawn(b.lock("job").acquire());
    eventually("a wish", async || is_wanted(database).await).await;
    let mut application = database.connection().await;
    support::run(
        &mut application,
        "BEGIN; SELECT * FROM t_tag_lock WHERE lock_name='job' AND kind=1 AND slot=0 FOR UPDATE",
    )
    .await;
    let (until, _) = wanted_until(database).await;
    let began = Instant::now();
    waiting.abort();
    assert!(waiting.await.is_err());
    // What b sends now finds the row locked: these go behind it.
    for name in ["other", "another"] {
        b.lock(name)
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    support::run(&mut application, "COMMIT").await;
    let late = began.elapsed() > Duration::from_secs(1);
    eventually("the wish is over", async || !is_wanted(database).await).await;
    let (end, _) = wanted_until(database).await;
    assert!(
        late || end < until,
        "it was not taken back, but ended by itself"
    );
    end < until
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_behind_a_transaction_times_out() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    client
        .lock("job")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let mut application = database.connection().await;
    let mut transaction = sqlx::Connection::begin(&mut application).await.unwrap();
    client.lock_in(&mut transaction, "job").await.unwrap();
    // Long enough to stand in line at the row: nothing is heard of the lock meanwhile, and it is not held by a lease.
    let wait = Duration::from_secs(4);
    let error = client.lock("job").wait(wait).acquire().await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    transaction.rollback().await.unwrap();
    database.remove().await;
}
