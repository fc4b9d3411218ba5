//! Renewal: when it comes, what it can find, and when it ends.

use std::time::{Duration, Instant};

use crate::support;
use crate::support::lateness::{Lateness, assert_on_any_machine, with_ttl};
use crate::support::proxy::{Fault, Gate, Hold, Proxy, once};
use crate::support::{TestDatabase, eventually, number};
use futures_util::{StreamExt, TryStreamExt, stream};
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;
use tag_lock::{AtClose, Error, LockClient, LockGuard};

/// What these tests begin with: a machine that is late gets more.
const TTL: Duration = Duration::from_secs(3);

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).expect("a short time")
}

/// A lock's deadline, in microseconds of the server's clock.
async fn deadline(connection: &mut MySqlConnection, name: &str) -> i64 {
    let sql = format!(
        "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', deadline) FROM t_tag_lock \
         WHERE lock_name = '{name}' AND kind = 1"
    );
    number(connection, &sql).await
}

/// Waits until the deadline is another one than `before`.
async fn renewed(connection: &mut MySqlConnection, guard: &LockGuard, before: i64) -> i64 {
    let name = guard.name();
    let start = Instant::now();
    loop {
        let now = deadline(connection, name).await;
        if now != before {
            return now;
        }
        assert!(guard.is_held(), "{name} was lost before it was renewed");
        assert!(
            start.elapsed() < Duration::from_secs(120),
            "{name} is not renewed"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_lease_is_renewed_at_a_third_of_its_ttl() {
    with_ttl(TTL, renewed_at_a_third).await;
}

async fn renewed_at_a_third(ttl: Duration) {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let client = database.client().await;
    let guard = client
        .lock("third")
        .ttl(ttl)
        .acquire()
        .await
        .expect("a lock");
    let mut steps = Vec::new();
    let mut last = deadline(&mut connection, "third").await;
    for _ in 0..8 {
        let next = renewed(&mut connection, &guard, last).await;
        steps.push(next - last);
        last = next;
    }
    // A slow packet makes the step before it longer, and the one behind it shorter, by what it took.
    let third = micros(ttl) / 3;
    let all: i64 = steps.iter().sum();
    let rounds = i64::try_from(steps.len()).expect("few");
    assert!(all >= third * (rounds - 1), "renewed too often: {steps:?}");
    steps.sort_unstable();
    assert!(steps[0] > 0, "a renewal made the lease shorter: {steps:?}");
    let median = steps[steps.len() / 2];
    assert!(median < third * 2, "renewed too seldom: {steps:?}");
    assert!(guard.is_held());
    guard.release().await.expect("it was held");
    database.remove().await;
}

#[tokio::test]
async fn no_renewal_outlives_the_guard() {
    with_ttl(TTL, renewed_until_the_end).await;
}

async fn renewed_until_the_end(ttl: Duration) {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let client = LockClient::connect(&proxy.url(&database.url))
        .await
        .expect("connects");
    for (name, drops) in [("released", false), ("dropped", true)] {
        let guard = client.lock(name).ttl(ttl).acquire().await.expect("a lock");
        let first = deadline(&mut connection, name).await;
        renewed(&mut connection, &guard, first).await;
        if drops {
            drop(guard);
        } else {
            guard.release().await.expect("it was held");
        }
    }
    let sql = "SELECT COUNT(*) FROM t_tag_lock WHERE kind = 1 AND status <> 0";
    let check = database.client().await;
    eventually("both are free", || {
        let check = check.clone();
        async move { check.list("", None, 10).await.expect("a list").is_empty() }
    })
    .await;
    let before = proxy.counters();
    // Longer than two renewals are apart.
    tokio::time::sleep(ttl).await;
    assert_eq!(
        proxy.counters().since(&before).commits,
        0,
        "something was written"
    );
    assert_eq!(number(&mut connection, sql).await, 0);
    client.close(AtClose::Release).await;
    database.remove().await;
}

#[tokio::test]
async fn a_release_overtakes_a_renewal_that_is_on_its_way() {
    with_ttl(TTL, overtaken).await;
}

async fn overtaken(ttl: Duration) {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let client = LockClient::connect(&proxy.url(&database.url))
        .await
        .expect("connects");
    let guard = client
        .lock("race")
        .ttl(ttl)
        .acquire()
        .await
        .expect("a lock");
    let gate = Gate::new();
    let hold = Fault::HoldCommand(Hold::Until(gate.clone()));
    proxy.on_command(once(support::proxy::Command::contains_commit, hold));
    gate.reached().await;
    let view = guard.view();
    let release = tokio::spawn(guard.release());
    tokio::task::yield_now().await;
    gate.open();
    release.await.expect("no panic").expect("it was held");
    let sql = "SELECT COUNT(*) FROM t_tag_lock WHERE kind = 1 AND status <> 0";
    assert_eq!(
        number(&mut connection, sql).await,
        0,
        "the renewal brought it back"
    );
    assert!(
        !view.cancellation_token().is_cancelled(),
        "it was released, not lost"
    );
    let next = database.client().await.lock("race").try_acquire().await;
    next.expect("an answer")
        .expect("it is free")
        .release()
        .await
        .expect("it was held");
    database.remove().await;
}

#[tokio::test]
async fn a_renewal_without_an_answer_neither_loses_nor_extends() {
    with_ttl(TTL, unanswered).await;
}

async fn unanswered(ttl: Duration) {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let client = LockClient::connect(&proxy.url(&database.url))
        .await
        .expect("connects");
    let guard = client
        .lock("unknown")
        .ttl(ttl)
        .acquire()
        .await
        .expect("a lock");
    // Each instant on the side on which a pause between it and the look takes nothing away.
    let trusted = guard.remaining();
    let granted = Instant::now();
    let before = deadline(&mut connection, "unknown").await;
    let gate = Gate::new();
    let hold = Fault::HoldReply(Hold::Until(gate.clone()));
    proxy.on_command(once(support::proxy::Command::contains_commit, hold));
    gate.reached().await;
    // The server has renewed it, and the client does not know.
    let after = deadline(&mut connection, "unknown").await;
    assert!(after > before);
    let at = Instant::now();
    let remaining = guard.remaining();
    assert!(guard.is_held(), "not to know is no loss");
    // What is left and what has passed since the grant are together what the grant gave.
    assert!(
        remaining + (at - granted) < trusted + ttl / 10,
        "extended without an answer"
    );
    let at = Instant::now();
    gate.open();
    // The answer counts from when the renewal was sent.
    eventually("the answer is taken in", || async {
        let end = Instant::now() + guard.remaining();
        assert!(guard.is_held(), "lost, with the answer there");
        end > at + remaining + ttl / 10
    })
    .await;
    let last = deadline(&mut connection, "unknown").await;
    renewed(&mut connection, &guard, last).await;
    assert!(guard.is_held());
    guard.release().await.expect("it was held");
    database.remove().await;
}

#[tokio::test]
async fn a_lease_survives_its_own_transaction() {
    with_ttl(TTL, busy).await;
}

async fn busy(ttl: Duration) {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let client = database.client().await;
    let others = database.client().await;
    let guard = client
        .lock("busy")
        .ttl(ttl)
        .acquire()
        .await
        .expect("a lock");
    // Over at least one renewal's date, and well within the lease.
    let mut transaction = connection.begin().await.expect("a transaction");
    guard.verify_in(&mut transaction).await.expect("it is ours");
    tokio::time::sleep(ttl / 2).await;
    assert!(guard.is_held(), "busy is no loss");
    transaction.commit().await.expect("commits");
    let last = deadline(&mut connection, "busy").await;
    renewed(&mut connection, &guard, last).await;
    assert!(guard.is_held());

    // Longer than the lease: what it protects stays safe, since nobody can take the row.
    let mut transaction = connection.begin().await.expect("a transaction");
    guard.verify_in(&mut transaction).await.expect("it is ours");
    let waiting = others.lock("busy").ttl(ttl).wait(ttl * 2).acquire().await;
    assert!(matches!(waiting, Err(Error::Timeout { .. })), "{waiting:?}");
    transaction.commit().await.expect("commits");
    drop(guard);
    let next = others
        .lock("busy")
        .ttl(ttl)
        .acquire()
        .await
        .expect("a lock");
    next.release().await.expect("it was held");
    database.remove().await;
}

#[tokio::test]
async fn no_renewal_goes_past_the_longest_hold() {
    with_ttl(TTL, longest_hold).await;
}

async fn longest_hold(ttl: Duration) {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let client = database.client().await;
    let others = database.client().await;
    let longest = ttl * 2;
    let lateness = Lateness::watch();
    let start = Instant::now();
    let guard = client
        .lock("longest")
        .ttl(ttl)
        .max_hold(longest)
        .acquire()
        .await
        .expect("a lock");
    let granted = deadline(&mut connection, "longest").await - micros(ttl);
    let next = tokio::spawn(async move {
        let guard = others.lock("longest").acquire().await.expect("a lock");
        (Instant::now(), guard)
    });
    let (mut last, mut held) = (0, start);
    let view = guard.view();
    let lost = view.lost();
    tokio::pin!(lost);
    while futures_util::FutureExt::now_or_never(&mut lost).is_none() {
        // Read while it is surely still ours: the next one's grant changes it too.
        let now = deadline(&mut connection, "longest").await;
        let at = Instant::now();
        if guard.is_held() {
            (last, held) = (now, at);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let lasted = start.elapsed();
    assert!(
        lasted > ttl,
        "it was renewed, and yet lost after {lasted:?}"
    );
    // The server adds what the renewal asks for to its time, which is later by what the packet took. One that asked for a whole
    // ttl would go two thirds of that further.
    let slack = ttl / 3 + lateness.so_far();
    assert!(
        last <= granted + micros(longest + slack),
        "its end is {last}, granted at {granted}"
    );
    let (granted, next) = next.await.expect("a grant");
    assert_on_any_machine(granted > held, "granted while it was held");
    assert!(guard.release().await.is_err());
    next.release().await.expect("it was held");
    database.remove().await;
}

#[tokio::test]
async fn without_renewal_the_lease_ends_unless_it_is_extended() {
    with_ttl(TTL, extended).await;
}

async fn extended(ttl: Duration) {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let client = database.client().await;
    let request = client.lock("fixed").ttl(ttl).auto_renew(false);
    let guard = request.acquire().await.expect("a lock");
    let first = deadline(&mut connection, "fixed").await;
    tokio::time::sleep(ttl / 2).await;
    assert_eq!(
        deadline(&mut connection, "fixed").await,
        first,
        "it was renewed"
    );
    guard.extend(ttl * 2).await.expect("it is ours");
    let second = deadline(&mut connection, "fixed").await;
    assert!(
        second >= first + micros(ttl),
        "extended by {}",
        second - first
    );
    assert!(guard.remaining() > ttl);
    // Shorter than what is left: "at least".
    guard
        .extend(Duration::from_millis(100))
        .await
        .expect("it is ours");
    assert!(
        deadline(&mut connection, "fixed").await >= second,
        "it was made shorter"
    );
    let (now, left) = (Instant::now(), guard.remaining());
    guard.lost().await;
    assert!(
        now.elapsed() + Duration::from_millis(2) >= left,
        "it was lost before its end"
    );
    let extended = guard.extend(ttl).await;
    assert!(
        matches!(extended, Err(Error::LockLost { .. })),
        "{extended:?}"
    );
    assert!(deadline(&mut connection, "fixed").await >= second);
    drop(guard);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_leases_need_few_connections_and_packets() {
    with_ttl(TTL * 3, thousands).await;
}

async fn thousands(ttl: Duration) {
    const LEASES: usize = 5_000;
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let client = LockClient::connect(&proxy.url(&database.url))
        .await
        .expect("connects");
    let guards: Vec<LockGuard> = stream::iter(0..LEASES)
        .map(|number| {
            let client = client.clone();
            async move {
                client
                    .lock(&format!("many {number}"))
                    .ttl(ttl)
                    .acquire()
                    .await
            }
        })
        .buffer_unordered(LEASES)
        .try_collect()
        .await
        .expect("all locks");
    let sql = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', MIN(deadline)) FROM t_tag_lock \
               WHERE kind = 1";
    let oldest = number(&mut connection, sql).await;
    let before = proxy.counters();
    let start = Instant::now();
    // Each has been renewed several times when the earliest of them ends two ttls later.
    while number(&mut connection, sql).await < oldest + micros(ttl) * 2 {
        assert!(
            start.elapsed() < Duration::from_secs(120) + ttl * 4,
            "not all are renewed"
        );
        assert!(
            proxy.open_connections() <= 4,
            "{} connections",
            proxy.open_connections()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let commits = proxy.counters().since(&before).commits;
    let renewals = u64::try_from(LEASES).expect("few") * 3;
    assert!(
        renewals / commits >= 100,
        "{commits} packets for at least {renewals} renewals"
    );
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    assert_eq!(lost, 0, "leases were lost");
    let released = stream::iter(guards)
        .map(LockGuard::release)
        .buffer_unordered(LEASES);
    released.try_collect::<()>().await.expect("all were held");
    client.close(AtClose::Release).await;
    database.remove().await;
}
