//! A server that is read-only for a while: what is said of it, and what becomes of leases.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tag_lock::Error;

use crate::support::account::Account;
use crate::support::alone::Global;
use crate::support::{
    TestDatabase, alone, assert_says, connect, connected, eventually, is_mariadb, times,
};

/// Its time is over before the server writes again.
const SHORT: Duration = Duration::from_secs(3);
/// Its renewal is due meanwhile, and its end is far enough for a slow machine.
const LONG: Duration = Duration::from_secs(14);

#[tokio::test(flavor = "multi_thread")]
async fn read_only_server() {
    let _alone = alone().await;
    let database = TestDatabase::new().await;
    let account = Account::new("").await;
    account.grant("SELECT, INSERT, UPDATE", &database).await;
    let mut variables = vec!["read_only"];
    if !is_mariadb() {
        variables.push("super_read_only");
    }
    for (number, variable) in variables.iter().enumerate() {
        // Short, since each request waits for its end; longer than a machine may stand still.
        let builder = account
            .builder(&database)
            .packet_timeout(Duration::from_secs(4))
            .request_timeout(Duration::from_secs(4));
        let client = connected(builder.clone()).await;
        let fresh = connected(builder).await;
        // One with a connection from the time before, the other without.
        client.counter("n").add(1).await.unwrap();
        let mut changed = Vec::new();
        for variable in &variables[..=number] {
            changed.push(Global::set(variable, "ON").await);
        }
        let refused = [&client, &fresh].map(async |client| {
            assert!(client.counter("n").get().await.unwrap() > 0);
            let (job, other) = (client.lock("job"), client.lock("another job"));
            let n = client.counter("n");
            let refused = tokio::join!(job.acquire(), other.try_acquire(), n.add(1));
            let refused = [
                refused.0.unwrap_err(),
                refused.1.unwrap_err(),
                refused.2.unwrap_err(),
            ];
            for error in refused {
                assert!(
                    matches!(error, Error::ReadOnly { .. }),
                    "{variable}: {error:?}"
                );
                assert_says(&error, &["read-only", "connect to the primary"]);
            }
        });
        join_all(refused).await;
        // The last first: one of them needs the other.
        while changed.pop().is_some() {}
        // Both heal by themselves.
        for client in [client, fresh] {
            eventually("the client heals", async || {
                client.counter("n").add(1).await.is_ok()
            })
            .await;
            let guard = client.lock("job").acquire().await.unwrap();
            guard.release().await.unwrap();
        }
    }
    account.remove().await;
    database.remove().await;
}

#[tokio::test]
async fn leases_survive_a_server_that_is_read_only_for_5_s() {
    let _alone = alone().await;
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let account = Account::new("").await;
    account
        .grant("SELECT, INSERT, UPDATE, DELETE", &database)
        .await;
    let client = account.builder(&database).connect().await.unwrap();
    // It would be renewed while the server is read-only.
    let long = client.lock("long").ttl(LONG).acquire().await.unwrap();
    let short = client.lock("short").ttl(SHORT).acquire().await.unwrap();
    let read_only = Global::set("read_only", "ON").await;
    let start = Instant::now();
    // It cannot be renewed, so its time is over before the server writes again.
    // Not by looking at the time afterwards: a machine that stands still is late for both.
    let in_time = tokio::select! {
        biased;
        () = short.lost() => true,
        () = tokio::time::sleep(SHORT) => false,
    };
    let counter = client.counter("read only");
    let refused = tokio::time::timeout(Duration::from_millis(500), counter.add(1)).await;
    assert!(
        !matches!(refused, Ok(Ok(_))),
        "the server is not read-only for this account"
    );
    tokio::time::sleep(Duration::from_secs(5).saturating_sub(start.elapsed())).await;
    let held = long.is_held();
    drop(read_only);
    assert!(in_time, "there was no signal after {SHORT:?}");
    assert!(held, "five seconds are no reason to lose {LONG:?}");
    let (_, first) = times(&mut connection, "long").await;
    eventually("a renewal", async || {
        times(&mut connect(&database.url).await, "long").await.1 > first
    })
    .await;
    assert!(long.is_held());
    long.release().await.unwrap();
    drop(short);
    account.remove().await;
    database.remove().await;
}
