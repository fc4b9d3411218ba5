//! Leases that idle in their process: what that spares, and that nobody waits for what only idles.

use std::time::{Duration, Instant};

use sqlx::Connection as _;
use tag_lock::{AtClose, LockClient, LockGuard, LockState};

use crate::support::lateness::with_ttl;
use crate::support::proxy::Proxy;
use crate::support::{TestDatabase, connected, eventually, number, patient, run};

/// So long that no test sees it end.
const LONG: Duration = Duration::from_secs(600);

async fn lingering(database: &TestDatabase) -> LockClient {
    connected(patient(&database.url).linger(LONG)).await
}

async fn acquired(locks: &LockClient, name: &str) -> LockGuard {
    locks.lock(name).acquire().await.unwrap()
}

/// Takes the lock and releases it until it idles and is taken again: that it is, a token tells that follows the one before.
async fn settled(locks: &LockClient, name: &str) -> u64 {
    let mut before = 0;
    loop {
        let guard = acquired(locks, name).await;
        let token = guard.fencing_token();
        guard.release().await.unwrap();
        if token == before + 1 {
            return token;
        }
        before = token;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// How many batches were sent.
async fn batches(database: &TestDatabase) -> i64 {
    let mut connection = database.connection().await;
    // A bell counts too, when it is rung.
    let sum = "SELECT CAST(SUM(seq) AS SIGNED) FROM t_tag_lock_lane";
    number(&mut connection, sum).await
}

async fn state(locks: &LockClient, name: &str) -> LockState {
    locks.inspect(name).await.unwrap().unwrap().state
}

#[tokio::test(flavor = "multi_thread")]
async fn what_idles_is_taken_again_without_a_packet() {
    let database = TestDatabase::new().await;
    let locks = lingering(&database).await;
    let mut before = settled(&locks, "x").await;
    let packets = batches(&database).await;
    let mut again = 0;
    for _ in 0..200 {
        let guard = acquired(&locks, "x").await;
        assert!(guard.is_held());
        again += u64::from(guard.fencing_token() == before + 1);
        before = guard.fencing_token();
        guard.release().await.unwrap();
    }
    assert_eq!(state(&locks, "x").await, LockState::Held);
    // On a machine that stands still for a moment the bell is not heard, and the lock is asked for anew.
    let packets = batches(&database).await - packets;
    println!("{again} of 200 taken again, {packets} packets");
    assert!(again > 0);
    // It may have been renewed meanwhile.
    assert!(again < 200 || packets < 20);
    locks.close(AtClose::Keep).await;
    let other = database.client().await;
    assert_eq!(state(&other, "x").await, LockState::Free, "nobody had it");
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_elsewhere_has_it_long_before_it_has_idled_for_long_enough() {
    let database = TestDatabase::new().await;
    let (one, other) = (lingering(&database).await, lingering(&database).await);
    let mut waits = Vec::new();
    for _ in 0..20 {
        for (from, to) in [(&one, &other), (&other, &one)] {
            settled(from, "x").await;
            let asked = Instant::now();
            let guard = acquired(to, "x").await;
            waits.push(asked.elapsed());
            guard.release().await.unwrap();
        }
    }
    waits.sort();
    println!("hand-over: median {:?}, longest {:?}", waits[20], waits[39]);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_the_same_client_and_of_another_has_it_too() {
    let database = TestDatabase::new().await;
    let (one, other) = (lingering(&database).await, database.client().await);
    let mut connection = database.connection().await;
    for locks in [&one, &other] {
        settled(&one, "x").await;
        let mut transaction = connection.begin().await.unwrap();
        locks.lock_in(&mut transaction, "x").await.unwrap();
        transaction.commit().await.unwrap();
    }
    settled(&one, "x").await;
    let mut transaction = connection.begin().await.unwrap();
    let lock = one.try_lock_in(&mut transaction, "x").await.unwrap();
    assert!(lock.is_some(), "it idled in this very client");
    transaction.rollback().await.unwrap();
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_it_does_not_serve_ends_it() {
    let database = TestDatabase::new().await;
    let locks = lingering(&database).await;
    for request in [
        locks.lock("x").linger(Duration::ZERO),
        locks.lock("x").owner("me"),
        locks.lock("x").ttl(Duration::from_secs(7)),
        locks.lock("x").auto_renew(false),
        locks.lock("x").hold_at_least(Duration::from_millis(1)),
    ] {
        settled(&locks, "x").await;
        let guard = request.clone().try_acquire().await.unwrap();
        guard.expect("it was not held").release().await.unwrap();
    }
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_by_itself() {
    let database = TestDatabase::new().await;
    let linger = Duration::from_millis(300);
    let locks = connected(patient(&database.url).linger(linger)).await;
    let other = database.client().await;
    settled(&locks, "x").await;
    eventually("it is released", async || {
        state(&other, "x").await == LockState::Free
    })
    .await;
    let guard = other.lock("x").try_acquire().await.unwrap();
    assert!(guard.is_some());
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_a_transaction_has_used_does_not_idle() {
    let database = TestDatabase::new().await;
    let locks = lingering(&database).await;
    settled(&locks, "x").await;
    let mut connection = database.connection().await;
    let mut transaction = connection.begin().await.unwrap();
    let guard = acquired(&locks, "x").await;
    guard.verify_in(&mut transaction).await.unwrap();
    transaction.commit().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(state(&locks, "x").await, LockState::Free);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_freed_by_force_while_it_idled_is_asked_for_anew() {
    let database = TestDatabase::new().await;
    let (locks, other) = (lingering(&database).await, database.client().await);
    let before = settled(&locks, "x").await;
    assert!(other.force_release("x").await.unwrap());
    let guard = acquired(&other, "x").await;
    // It was rung for.
    eventually("it is seen", async || {
        locks.lock("x").try_acquire().await.unwrap().is_none()
    })
    .await;
    assert!(guard.fencing_token() > before);
    guard.release().await.unwrap();
    assert!(acquired(&locks, "x").await.fencing_token() > before);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_cut_off_takes_nothing_that_idles() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let locks = connected(patient(&proxy.url(&database.url)).linger(LONG)).await;
    settled(&locks, "x").await;
    proxy.pause();
    // By then it has not heard for long enough.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let attempt = locks.lock("x").wait(Duration::from_millis(100)).acquire();
    assert!(
        attempt.await.is_err(),
        "nobody could tell it that it is wanted"
    );
    proxy.resume();
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bell_that_somebody_took_is_made_again() {
    let database = TestDatabase::new().await;
    let (locks, other) = (lingering(&database).await, database.client().await);
    let mut connection = database.connection().await;
    settled(&locks, "x").await;
    for _ in 0..5 {
        run(&mut connection, "DELETE FROM t_tag_lock_lane").await;
        acquired(&other, "x").await.release().await.unwrap();
        settled(&locks, "x").await;
    }
    let bells = "SELECT COUNT(*) FROM t_tag_lock_lane WHERE id LIKE '%_lock bell%'";
    assert_eq!(number(&mut connection, bells).await, 1);
    database.remove().await;
}

/// What idles is renewed late. Who takes it has it renewed then, so that work does not begin under a lease that is half over.
#[tokio::test(flavor = "multi_thread")]
async fn who_takes_what_has_idled_for_long_has_it_renewed() {
    let database = TestDatabase::new().await;
    with_ttl(Duration::from_secs(10), async |ttl| {
        let builder = patient(&database.url).linger(LONG).default_ttl(ttl);
        let locks = connected(builder).await;
        let names: Vec<String> = (0..12).map(|number| format!("x{number}")).collect();
        let mut tokens = Vec::new();
        for name in &names {
            tokens.push(settled(&locks, name).await);
        }
        tokio::time::sleep(ttl / 100 * 43).await;
        let mut rested = 0;
        for (name, token) in names.iter().zip(tokens) {
            let guard = acquired(&locks, name).await;
            let taken = guard.remaining();
            if guard.fencing_token() != token + 1 || taken > ttl / 10 * 6 {
                continue;
            }
            rested += 1;
            let mut least = taken;
            while guard.remaining() <= taken {
                least = least.min(guard.remaining());
                assert!(guard.is_held());
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            assert!(
                least + ttl / 40 > taken,
                "{least:?} were left of the {taken:?} with which it was taken"
            );
        }
        println!("{rested} had rested");
        assert!(rested > 0, "none had rested");
        locks.close(AtClose::Keep).await;
    })
    .await;
    database.remove().await;
}
