//! What a guard says of its lease is what the row says, or less.

use std::time::Duration;

use crate::support::proxy::{Fault, Gate, Hold, Proxy, once};
use crate::support::{TestDatabase, connected, eventually, is_batch, patient, run};
use futures_util::FutureExt;
use tag_lock::{Error, LockClient, LockState};
use tokio::time::timeout;

const S: Duration = Duration::from_secs(1);

async fn row(client: &LockClient, name: &str) -> tag_lock::LockInfo {
    let info = client.inspect(name).await.expect("inspects");
    info.expect("a row")
}

/// Whoever is handed the signal can cancel what he has of it, and no more.
#[tokio::test]
async fn who_cancels_a_token_loses_no_lease() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let guard = client.lock("l").acquire().await.expect("acquires");
    let (other, view) = (guard.cancellation_token(), guard.view());
    guard.cancellation_token().cancel();
    view.cancellation_token().cancel();
    assert!(guard.is_held() && view.is_held());
    assert!(guard.lost().now_or_never().is_none(), "it is not lost");
    assert!(!other.is_cancelled(), "nor for others");
    guard.release().await.expect("still ours");
    let worked = client.lock("l").run(async |lease| {
        lease.cancellation_token().cancel();
        tokio::task::yield_now().await;
        Ok::<_, Error>(42)
    });
    assert_eq!(worked.await.expect("it was held"), 42);
    // It fires all the same.
    let guard = client.lock("l").ttl(S).acquire().await.expect("acquires");
    let tokens = [
        guard.cancellation_token(),
        guard.view().cancellation_token(),
    ];
    assert!(client.force_release("l").await.expect("frees it"));
    for token in &tokens {
        token.cancelled().await;
    }
    assert!(guard.cancellation_token().is_cancelled(), "also a late one");
    database.remove().await;
}

/// The holder of a lease that is not renewed would not learn that a verification had made it longer.
#[tokio::test]
async fn a_verification_makes_no_lease_longer_than_its_guard_knows() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    let request = client.lock("l").ttl(2 * S).auto_renew(false);
    let guard = request.acquire().await.expect("acquires");
    let deadline = row(&client, "l").await.deadline;
    run(&mut connection, "START TRANSACTION").await;
    guard.verify_in(&mut connection).await.expect("ours");
    run(&mut connection, "COMMIT").await;
    assert_eq!(row(&client, "l").await.deadline, deadline);
    guard.lost().await;
    eventually("what the guard says", async || {
        row(&client, "l").await.state == LockState::Free
    })
    .await;
    // One that is renewed is as long as if it had been renewed.
    let guard = client.lock("l").acquire().await.expect("acquires");
    let deadline = row(&client, "l").await.deadline;
    run(&mut connection, "START TRANSACTION").await;
    guard.verify_in(&mut connection).await.expect("ours");
    run(&mut connection, "COMMIT").await;
    assert!(row(&client, "l").await.deadline > deadline);
    guard.release().await.expect("ours");
    database.remove().await;
}

/// The answer comes when the signal has fired: what the server did then is of no use.
#[tokio::test(flavor = "multi_thread")]
async fn an_extension_that_is_told_too_late_is_a_loss() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let client = connected(patient(&proxy.url(&database.url))).await;
    let request = client.lock("l").ttl(3 * S).auto_renew(false);
    let guard = request.acquire().await.expect("acquires");
    let gate = Gate::new();
    proxy.on_command(once(is_batch, Fault::HoldReply(Hold::Until(gate.clone()))));
    let late = async {
        gate.reached().await;
        guard.lost().await;
        gate.open();
    };
    let (extended, ()) = tokio::join!(guard.extend(600 * S), late);
    assert!(
        matches!(extended, Err(Error::LockLost { .. })),
        "{extended:?}"
    );
    assert!(!guard.is_held());
    // The server has extended it; nobody is left in the way.
    drop(guard);
    let other = database.client().await;
    let next = other.lock("l").wait(120 * S).acquire().await.expect("free");
    next.release().await.expect("ours");
    database.remove().await;
}

/// All levels of an owner share one lease: no signal fires as long as it runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_level_is_held_as_long_as_the_lease_runs() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.client().await, database.client().await);
    for client in [&here, &there] {
        let outer = here.lock("l").owner("o").ttl(12 * S);
        let outer = outer.acquire().await.expect("acquires");
        let inner = client.lock("l").owner("o").ttl(2 * S).auto_renew(false);
        let inner = inner.acquire().await.expect("enters");
        assert!(
            timeout(5 * S, inner.lost()).await.is_err(),
            "it is not lost"
        );
        assert!(inner.is_held() && inner.view().is_held() && outer.is_held());
        outer.release().await.expect("ours");
        // Nobody renews it any more.
        inner.lost().await;
        assert!(row(client, "l").await.remaining <= 3 * S);
        assert!(!inner.is_held());
        drop(inner);
        eventually("free", async || {
            row(client, "l").await.state == LockState::Free
        })
        .await;
    }
    database.remove().await;
}

/// From its release in a transaction on a guard does not say that it is held: the commit is not its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_was_released_in_a_transaction_is_not_held() {
    let database = TestDatabase::new().await;
    let (client, other) = (database.client().await, database.client().await);
    let mut connection = database.connection().await;
    let guard = client.lock("l").acquire().await.expect("acquires");
    let view = guard.view();
    run(&mut connection, "START TRANSACTION").await;
    guard.release_in(&mut connection).await.expect("ours");
    run(&mut connection, "COMMIT").await;
    let next = other.lock("l").acquire().await.expect("acquires");
    assert!(!guard.is_held() && !view.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert!(guard.lost().now_or_never().is_none(), "that is no loss");
    next.release().await.expect("ours");
    drop(guard);

    // After a rollback it is held again: as soon as a renewal has found it,
    let guard = client
        .lock("m")
        .ttl(6 * S)
        .acquire()
        .await
        .expect("acquires");
    run(&mut connection, "START TRANSACTION").await;
    guard.release_in(&mut connection).await.expect("ours");
    assert!(!guard.is_held());
    run(&mut connection, "ROLLBACK").await;
    eventually("it is renewed", async || guard.is_held()).await;
    // or a verification.
    run(&mut connection, "START TRANSACTION").await;
    guard.release_in(&mut connection).await.expect("ours");
    run(&mut connection, "ROLLBACK; START TRANSACTION").await;
    guard.verify_in(&mut connection).await.expect("ours");
    assert!(guard.is_held());
    run(&mut connection, "COMMIT").await;
    guard.release().await.expect("ours");
    database.remove().await;
}

/// A renewal that passes over the row, since the transaction is open, says nothing about its end.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_transaction_is_not_taken_for_a_rollback() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    let guard = client
        .lock("l")
        .ttl(3 * S)
        .acquire()
        .await
        .expect("acquires");
    // Longer than any renewal makes it.
    guard.extend(600 * S).await.expect("extends");
    run(&mut connection, "START TRANSACTION").await;
    guard.release_in(&mut connection).await.expect("ours");
    // Three renewals.
    for _ in 0..40 {
        assert!(!guard.is_held());
        tokio::time::sleep(S / 10).await;
    }
    run(&mut connection, "COMMIT").await;
    guard.release().await.expect("it was released");
    database.remove().await;
}
