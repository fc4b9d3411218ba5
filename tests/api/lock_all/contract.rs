//! What is taken, what is not, and what the guard says.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tag_lock::{AtClose, Error};
use tokio::time::timeout;

use super::{TTL, held};
use crate::support::{TestDatabase, eventually};

const NAMES: [&str; 3] = ["a", "b", "c"];

#[tokio::test]
async fn all_are_taken_and_all_are_released() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let mut last = 0;
    // New names first, then old ones; in any order, and twice the same is one.
    for names in [vec!["c", "a", "b"], vec!["b", "c", "a", "b", "b"]] {
        let request = one.lock_all(names).ttl(TTL).description("together");
        let guard = request.try_acquire().await.expect("an answer");
        let guard = guard.expect("free");
        assert!(guard.names().eq(NAMES));
        assert!(guard.is_held());
        assert!(guard.remaining() > TTL / 2);
        assert_eq!(guard.fencing_tokens().len(), 3);
        for (name, token) in guard.fencing_tokens() {
            assert!(token > last, "tokens rise");
            assert_eq!(guard.fencing_token(name), Some(token));
            let info = other.inspect(name).await.expect("inspects");
            let info = info.expect("a row");
            assert_eq!(info.highest_fencing_token, token);
            assert_eq!(info.description, "together");
            for client in [&one, &other] {
                let single = client.lock(name).try_acquire().await.expect("an answer");
                assert!(single.is_none(), "{name} is held");
                let all = client.lock_all([name, "d"]).try_acquire().await;
                assert!(all.expect("an answer").is_none(), "{name} is held");
            }
        }
        assert_eq!(guard.fencing_token("d"), None);
        last = guard
            .fencing_tokens()
            .map(|(_, token)| token)
            .max()
            .expect("some");
        guard.release().await.expect("ours");
        assert!(held(&other, &["a", "b", "c", "d"]).await.is_empty());
    }
    let single = other.lock("a").try_acquire().await.expect("an answer");
    assert!(single.expect("free").fencing_token() > last);
    database.remove().await;
}

#[tokio::test]
async fn one_that_is_held_keeps_all_from_being_taken() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    // The others are new names, and then old ones.
    for name in ["b", "c", "a"] {
        for holder in [&one, &other] {
            let single = holder.lock(name).acquire().await.expect("acquires");
            let guard = one.lock_all(NAMES).try_acquire().await;
            assert!(guard.expect("an answer").is_none());
            let wait = Duration::from_millis(200);
            match one.lock_all(NAMES).wait(wait).acquire().await {
                Err(Error::Timeout { name: of, .. }) => assert_eq!(of, name),
                result => panic!("{result:?}"),
            }
            // Long enough to take what is free, one by one.
            let wait = Duration::from_secs(2);
            match one.lock_all(NAMES).wait(wait).acquire().await {
                Err(Error::Timeout { name: of, .. }) => assert_eq!(of, name),
                result => panic!("{result:?}"),
            }
            eventually("nothing else is held", async || {
                held(&other, &NAMES).await == [name]
            })
            .await;
            single.release().await.expect("ours");
        }
    }
    let guard = one.lock_all(NAMES).try_acquire().await.expect("an answer");
    guard.expect("free").release().await.expect("ours");
    database.remove().await;
}

#[tokio::test]
async fn there_are_1_to_256_names() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let names: Vec<String> = (0..257).map(|number| format!("account:{number}")).collect();
    for wrong in [&names[..], &[]] {
        match client.lock_all(wrong).acquire().await {
            Err(Error::InvalidOption {
                option: "names", ..
            }) => {}
            result => panic!("{result:?}"),
        }
    }
    let wrong = client.lock_all(["a", "b "]).try_acquire().await;
    assert!(matches!(wrong, Err(Error::InvalidName { .. })));
    let short = client
        .lock_all(["a"])
        .ttl(Duration::from_millis(1))
        .acquire();
    assert!(matches!(
        short.await,
        Err(Error::InvalidOption { option: "ttl", .. })
    ));
    for _ in 0..2 {
        // New, and then old.
        let guard = client.lock_all(&names[..256]).ttl(TTL).acquire().await;
        let guard = guard.expect("acquires");
        assert_eq!(guard.names().len(), 256);
        assert_eq!(
            client.list("", None, 1_000).await.expect("lists").len(),
            256
        );
        guard.release().await.expect("ours");
        assert!(
            client
                .list("", None, 1_000)
                .await
                .expect("lists")
                .is_empty()
        );
    }
    let guard = client.lock_all(["alone", "alone"]).acquire().await;
    guard.expect("acquires").release().await.expect("ours");
    database.remove().await;
}

/// Odd names are names like others, and so is a counter of the same name.
#[tokio::test]
async fn names_are_told_apart() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let names = [
        "A",
        "a",
        "é",
        "e\u{301}",
        "🎁",
        "a'b\\\"c",
        "x,y;z",
        "center_lock_07",
    ];
    client.counter("a").add(1).await.expect("adds");
    let guard = client.lock_all(names).acquire().await.expect("acquires");
    assert_eq!(guard.names().len(), names.len());
    assert_eq!(held(&client, &names).await, names);
    assert_eq!(client.counter("a").get().await.expect("a value"), 1);
    guard.release().await.expect("ours");
    database.remove().await;
}

#[tokio::test]
async fn who_waits_has_them_when_they_are_free() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    // A wait within the first second, and one that takes them in order.
    for hold in [Duration::from_millis(300), Duration::from_millis(2_500)] {
        for holder in [&one, &other] {
            let single = holder.lock("b").ttl(TTL).acquire().await.expect("acquires");
            let waiter = tokio::spawn(one.lock_all(NAMES).ttl(TTL).acquire());
            tokio::time::sleep(hold).await;
            assert!(!waiter.is_finished());
            single.release().await.expect("ours");
            let guard = timeout(Duration::from_secs(60), waiter).await;
            let guard = guard
                .expect("its turn")
                .expect("no panic")
                .expect("acquires");
            assert_eq!(held(&other, &NAMES).await, NAMES);
            guard.release().await.expect("ours");
        }
    }
    database.remove().await;
}

#[tokio::test]
async fn a_dropped_guard_and_a_dropped_future_leave_nothing() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let none_held = async || held(&other, &NAMES).await.is_empty();
    drop(
        one.lock_all(NAMES)
            .ttl(TTL)
            .acquire()
            .await
            .expect("acquires"),
    );
    eventually("the drop releases", none_held).await;
    // At each point of its way: on its first packet, and later.
    for micros in [0, 100, 500, 1_000, 2_000, 5_000, 20_000] {
        let acquire = one.lock_all(NAMES).ttl(TTL).acquire();
        drop(timeout(Duration::from_micros(micros), acquire).await);
        eventually("what was on its way is released", none_held).await;
    }
    // Polled once.
    assert!(
        one.lock_all(NAMES)
            .ttl(TTL)
            .acquire()
            .now_or_never()
            .is_none()
    );
    one.counter("a lane's round trip")
        .add(1)
        .await
        .expect("adds");
    eventually("what was sent is released", none_held).await;
    // While it waits, holding some of them.
    let single = other.lock("b").ttl(TTL).acquire().await.expect("acquires");
    let waiter = tokio::spawn(one.lock_all(NAMES).ttl(TTL).acquire());
    eventually("it holds what it has", async || {
        held(&other, &NAMES).await == ["a", "b"]
    })
    .await;
    waiter.abort();
    eventually("it is released", async || {
        held(&other, &NAMES).await == ["b"]
    })
    .await;
    single.release().await.expect("ours");
    let guard = one.lock_all(NAMES).acquire().await.expect("acquires");
    guard.release().await.expect("ours");
    database.remove().await;
}

#[tokio::test]
async fn a_client_that_closes_releases_or_keeps_them() {
    let database = TestDatabase::new().await;
    let other = database.client().await;
    for (at_close, left) in [(AtClose::Release, &NAMES[..0]), (AtClose::Keep, &NAMES)] {
        let client = database.client().await;
        let guard = client
            .lock_all(NAMES)
            .ttl(TTL)
            .acquire()
            .await
            .expect("acquires");
        let waiter = tokio::spawn(client.lock_all(["c", "d"]).acquire());
        client.close(at_close).await;
        assert_eq!(held(&other, &["a", "b", "c", "d"]).await, left);
        assert_eq!(guard.is_held(), at_close == AtClose::Keep);
        let waiter = timeout(Duration::from_secs(60), waiter).await;
        let waiter = waiter.expect("told").expect("no panic");
        assert!(matches!(waiter, Err(Error::Closed)), "{waiter:?}");
        let late = client.lock_all(NAMES).try_acquire().await;
        assert!(matches!(late, Err(Error::Closed)), "{late:?}");
    }
    database.remove().await;
}

/// A lease that idles in a process is nobody's: neither here nor elsewhere.
#[tokio::test]
async fn what_idles_is_not_in_the_way() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    for client in [&one, &other] {
        let idle = one.lock("b").linger(TTL).acquire().await.expect("acquires");
        idle.release().await.expect("ours");
        let guard = timeout(Duration::from_secs(60), client.lock_all(NAMES).acquire());
        let guard = guard.await.expect("rung for").expect("acquires");
        guard.release().await.expect("ours");
    }
    database.remove().await;
}

/// One of them freed by force: the guard says so, and the others are released as they are.
#[tokio::test]
async fn one_that_is_lost_is_told() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let ttl = Duration::from_secs(6);
    let guard = one
        .lock_all(NAMES)
        .ttl(ttl)
        .acquire()
        .await
        .expect("acquires");
    let token = guard.cancellation_token();
    let released = one.lock_all(["d"]).acquire().await.expect("acquires");
    let never = released.cancellation_token();
    assert!(guard.lost().now_or_never().is_none());
    assert!(other.force_release("b").await.expect("an answer"));
    timeout(Duration::from_secs(60), guard.lost())
        .await
        .expect("told");
    timeout(Duration::from_secs(60), token.cancelled())
        .await
        .expect("told");
    assert!(!guard.is_held());
    assert!(guard.remaining().is_zero());
    assert!(guard.cancellation_token().is_cancelled());
    let mut connection = database.connection().await;
    crate::support::run(&mut connection, "START TRANSACTION").await;
    match guard.verify_in(&mut connection).await {
        Err(Error::LockLost { name }) => assert_eq!(name, "b"),
        result => panic!("{result:?}"),
    }
    crate::support::run(&mut connection, "ROLLBACK").await;
    let next = other.lock("b").try_acquire().await.expect("an answer");
    let next = next.expect("free");
    match guard.release().await {
        Err(Error::LockLost { name }) => assert_eq!(name, "b"),
        result => panic!("{result:?}"),
    }
    assert_eq!(held(&other, &NAMES).await, ["b"], "the others are released");
    assert!(next.is_held(), "the next holder's lock is left alone");
    released.release().await.expect("ours");
    assert!(!never.is_cancelled(), "a release is no loss");
    database.remove().await;
}

/// Whoever wants the same few names at the same time from one process has them in turn.
#[tokio::test]
async fn tasks_of_one_process_take_turns() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let inside = std::sync::atomic::AtomicUsize::new(0);
    let turns = (0..16).map(|_| async {
        let guard = client
            .lock_all(["x", "y"])
            .ttl(TTL)
            .acquire()
            .await
            .expect("acquires");
        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
        tokio::task::yield_now().await;
        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
        guard.release().await.expect("ours");
    });
    timeout(Duration::from_secs(60), join_all(turns))
        .await
        .expect("all");
    database.remove().await;
}
