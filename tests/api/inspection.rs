//! What operators see and free: `inspect` and `force_release`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::proxy::{Command, Fault, Proxy};
use crate::support::{TestDatabase, connected, eventually, patient};
use tag_lock::{AtClose, LockClient, LockInfo, LockState, Urgency, Wish};

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

async fn inspected(client: &LockClient, name: &str) -> LockInfo {
    client
        .inspect(name)
        .await
        .expect("inspects")
        .expect("a row")
}

/// Waits for a wish as pressing as this.
async fn until_wanted(client: &LockClient, name: &str, urgency: Option<Urgency>) -> LockInfo {
    eventually("a wish, or its end", async || {
        let wish = inspected(client, name).await.wish;
        wish.map(|wish| wish.urgency) == urgency
    })
    .await;
    inspected(client, name).await
}

/// Waits for the wish of a writer. A second later it is urgent if he is far away, as he is where a machine is slow.
async fn until_waited_for(client: &LockClient, name: &str) -> LockInfo {
    eventually("a wish", async || {
        let wish = inspected(client, name).await.wish;
        wish.is_some_and(|wish| is_a_writers(wish.urgency))
    })
    .await;
    inspected(client, name).await
}

fn is_a_writers(urgency: Urgency) -> bool {
    matches!(urgency, Urgency::Waits | Urgency::Urgent)
}

/// A wish is seen while somebody waits elsewhere, and no longer.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_elsewhere_is_seen() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.client().await, database.client().await);
    let held = here.lock("l").acquire().await.expect("acquires");
    let reader = database.client().await;
    // Whoever waits in the holder's own process stands in its memory.
    let own = tokio::spawn(here.lock("l").acquire());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(inspected(&reader, "l").await.wish, None);
    own.abort();
    let waiting = tokio::spawn(there.lock("l").acquire());
    let info = until_waited_for(&reader, "l").await;
    let Wish {
        until,
        remaining,
        urgency,
        ..
    } = info.wish.expect("a wish");
    let most = if urgency == Urgency::Waits { 19 } else { 90 };
    assert!(remaining <= Duration::from_secs(most), "{remaining:?}");
    assert!(until > info.modified, "{info:?}");
    assert_eq!(info.state, LockState::Held);
    let listed = reader.list("", None, 10).await.expect("lists");
    let wish = listed[0].wish.expect("a wish");
    assert!(is_a_writers(wish.urgency), "{wish:?}");
    // The grant answers it.
    held.release().await.expect("ours");
    let next = waiting.await.expect("no panic").expect("acquires");
    assert_eq!(
        until_wanted(&reader, "l", None).await.state,
        LockState::Held
    );
    // Whoever goes away takes it back.
    let waiting = tokio::spawn(here.lock("l").acquire());
    until_waited_for(&reader, "l").await;
    waiting.abort();
    until_wanted(&reader, "l", None).await;
    next.release().await.expect("ours");
    database.remove().await;
}

/// Who waits for a shared hold lets himself be known as urgent; and of a lock that is held shared a wish is one of a writer.
#[tokio::test(flavor = "multi_thread")]
async fn readers_and_writers_who_wait_are_seen() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.client().await, database.client().await);
    let written = here.lock("l").acquire().await.expect("acquires");
    let waiting = tokio::spawn(there.lock("l").shared().acquire());
    let info = until_wanted(&here, "l", Some(Urgency::Urgent)).await;
    assert_eq!(info.state, LockState::Held);
    written.release().await.expect("ours");
    let read = waiting.await.expect("no panic").expect("acquires");
    until_wanted(&here, "l", None).await;
    let waiting = tokio::spawn(here.lock("l").acquire());
    let info = until_waited_for(&there, "l").await;
    assert_eq!((info.state, info.depth), (LockState::Shared, 1));
    read.release().await.expect("ours");
    drop(waiting.await.expect("no panic").expect("acquires"));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_somebody_waits_for_is_seen() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.client().await, database.client().await);
    let calls = here.semaphore("calls", 1);
    let permit = calls.acquire().await.expect("acquires");
    let waiting = tokio::spawn({
        let calls = there.semaphore("calls", 1);
        async move { calls.acquire().await }
    });
    eventually("a wish for the permit", async || {
        let taken = calls.list().await.expect("lists");
        taken[0].wish.is_some()
    })
    .await;
    waiting.abort();
    permit.release().await.expect("ours");
    database.remove().await;
}

/// What is known of wishes costs no question of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_wish_is_read_with_its_lock() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.client().await, database.client().await);
    let held = here.lock("l").acquire().await.expect("acquires");
    let waiting = tokio::spawn(there.lock("l").acquire());
    until_waited_for(&here, "l").await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let reader = connected(patient(&proxy.url(&database.url))).await;
    // The connection is made.
    inspected(&reader, "l").await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    proxy.on_command(move |command: &Command| {
        if command
            .sql()
            .is_some_and(|sql| sql.windows(10).any(|part| part == b"t_tag_lock"))
        {
            count.fetch_add(1, Ordering::SeqCst);
        }
        Fault::Pass
    });
    assert!(inspected(&reader, "l").await.wish.is_some());
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    held.release().await.expect("ours");
    drop(waiting.await.expect("no panic").expect("acquires"));
    database.remove().await;
}

/// What stands in the table is the end of what a grant may give out to the tasks of its process.
#[tokio::test]
async fn the_highest_token_is_not_far_above_the_holders_own() {
    let database = TestDatabase::new().await;
    let (client, other) = (database.client().await, database.client().await);
    let highest = async |name: &str| {
        let info = other.inspect(name).await.expect("inspects");
        info.expect("a row").highest_fencing_token
    };
    let first = client.lock("l").acquire().await.expect("acquires");
    let grant = highest("l").await;
    assert_eq!(grant - first.fencing_token(), 65_535);
    let mut watch = other.watch("l").expect("a name");
    let holder = watch.next().await.expect("an item").expect("an answer");
    assert_eq!(holder.expect("held").highest_fencing_token, grant);
    // The next turn of the same grant.
    let (own, request) = (first.fencing_token(), client.lock("l"));
    let next = tokio::spawn(request.acquire());
    tokio::time::sleep(Duration::from_millis(100)).await;
    first.release().await.expect("ours");
    let next = next.await.expect("a task").expect("acquires");
    assert!(next.fencing_token() > own && next.fencing_token() <= highest("l").await);
    next.release().await.expect("ours");
    // What never passes on in memory reserves none.
    let kept = client.lock("m").auto_renew(false);
    let kept = kept.acquire().await.expect("acquires");
    assert_eq!(highest("m").await, kept.fencing_token());
    kept.release().await.expect("ours");
    database.remove().await;
}
