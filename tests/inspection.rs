//! What operators see and free: `inspect` and `force_release`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod support;

use std::time::Duration;

use support::{TestDatabase, connected, eventually, patient};
use tag_lock::{AtClose, LockState};

/// Of an owner's levels: whoever left is not named.
#[tokio::test]
async fn a_level_that_was_left_leaves_no_name() {
    let database = TestDatabase::new().await;
    let here = connected(patient(&database.url).holder("here")).await;
    let there = connected(patient(&database.url).holder("there")).await;
    let request = here.lock("l").owner("o").description("outer");
    let outer = request.acquire().await.expect("acquires");
    let request = there.lock("l").owner("o").description("inner");
    let inner = request.acquire().await.expect("enters");
    let seen = async || here.inspect("l").await.expect("inspects").expect("a row");
    assert_eq!(seen().await.depth, 2);
    inner.release().await.expect("ours");
    there.close(AtClose::Release).await;
    let info = seen().await;
    assert_eq!(
        (info.held_by.as_str(), info.description.as_str(), info.depth),
        ("here", "outer", 1)
    );
    outer.release().await.expect("ours");
    // A new grant has its own.
    let request = here.lock("l").owner("p").description("next");
    let next = request.acquire().await.expect("acquires");
    assert_eq!(seen().await.description, "next");
    next.release().await.expect("ours");
    database.remove().await;
}

#[tokio::test]
async fn what_has_ended_is_not_released_by_force() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let request = client
        .lock("l")
        .ttl(Duration::from_millis(200))
        .auto_renew(false);
    let guard = request.acquire().await.expect("acquires");
    eventually("its end", async || {
        let info = client.inspect("l").await.expect("inspects");
        info.expect("a row").state == LockState::Free
    })
    .await;
    assert!(
        !client.force_release("l").await.expect("an answer"),
        "it was free"
    );
    drop(guard);
    // One that is only kept is taken.
    let request = client.lock("m").hold_at_least(Duration::from_secs(600));
    let guard = request.acquire().await.expect("acquires");
    guard.release().await.expect("ours");
    assert!(
        client.force_release("m").await.expect("an answer"),
        "it was kept"
    );
    assert!(!client.force_release("m").await.expect("an answer"));
    assert!(
        client
            .lock("m")
            .try_acquire()
            .await
            .expect("an answer")
            .is_some()
    );
    database.remove().await;
}
