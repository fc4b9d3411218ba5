//! What one request waits for delays no other: leases beside stripes and rows that others hold, and shares among those who
//! wait, who try, and whose transactions hold the row. Shares are counted in turns, not in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;
use tag_lock::{Error, LockClient, LockGuard};
use tokio::task::JoinSet;

use crate::support::lateness::with_ttl;
use crate::support::proxy::{Fault, Proxy};
use crate::support::{TestDatabase, connected, is_batch, number, patient, run};

/// A lease that is short, and longer than a busy machine needs to renew it.
const TTL: Duration = Duration::from_secs(4);
/// A lease that does not outlive two waits of a packet for a stripe.
const SHORT: Duration = Duration::from_secs(2);

async fn client(database: &TestDatabase, lanes: usize) -> LockClient {
    connected(patient(&database.url).lanes(lanes)).await
}

fn stripe(name: &str) -> u32 {
    crc32fast::hash(name.as_bytes()) % 100
}

/// The first name of these that is on the stripe, or on another one.
fn named(kind: &str, fits: impl Fn(u32) -> bool) -> String {
    let mut names = (0..).map(|number| format!("{kind} {number}"));
    names.find(|name| fits(stripe(name))).unwrap()
}

/// A session that holds a stripe, as one that hangs does.
async fn hold_stripe(database: &TestDatabase, stripe: u32) -> MySqlConnection {
    let mut connection = database.connection().await;
    run(&mut connection, "START TRANSACTION").await;
    let row = format!(
        "SELECT COUNT(*) FROM t_tag_lock WHERE lock_name='center_lock_{stripe:02}' AND kind=0 AND slot=0 FOR UPDATE"
    );
    assert_eq!(number(&mut connection, &row).await, 1);
    connection
}

/// How often a lease was renewed while `work` ran; it must be renewed `times` times, and never be lost.
async fn renewed(guard: &LockGuard, times: u32) {
    let mut last = guard.remaining();
    let mut renewed = 0;
    while renewed < times {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(
            guard.is_held(),
            "the lease was lost after {renewed} renewals"
        );
        let now = guard.remaining();
        renewed += u32::from(now > last);
        last = now;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_name_whose_stripe_is_held_costs_no_lease_and_delays_nobody() {
    let database = TestDatabase::new().await;
    let client = client(&database, 1).await;
    let guard = client.lock("lease").ttl(SHORT).acquire().await.unwrap();
    let new = named("new", |other| other != stripe("lease"));
    let other = named("other", |other| {
        other != stripe("lease") && other != stripe(&new)
    });
    let mut held = hold_stripe(&database, stripe(&new)).await;
    let adding = {
        let client = client.clone();
        tokio::spawn(async move { client.counter(&new).add(1).await })
    };
    renewed(&guard, 3).await;
    // Of another stripe, new or not; with the one lane that the client has.
    for value in 1..=20 {
        assert_eq!(client.counter(&other).add(1).await.unwrap(), value);
    }
    assert!(!adding.is_finished(), "its stripe is held");
    run(&mut held, "ROLLBACK").await;
    assert_eq!(adding.await.unwrap().unwrap(), 1);
    guard.release().await.unwrap();
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowded_name_whose_stripe_is_held_costs_no_lease_on_that_stripe() {
    let database = TestDatabase::new().await;
    let (client, others) = (client(&database, 1).await, client(&database, 1).await);
    let guard = client.lock("lease").ttl(SHORT).acquire().await.unwrap();
    let hot = named("hot", |other| other == stripe("lease"));
    let _held_by_others = others.lock(&hot).acquire().await.unwrap();
    assert!(client.lock(&hot).try_acquire().await.unwrap().is_none());
    let mut held = hold_stripe(&database, stripe("lease")).await;
    let polling = {
        let client = client.clone();
        tokio::spawn(async move { client.lock(&hot).try_acquire().await })
    };
    renewed(&guard, 3).await;
    for value in 1..=20 {
        assert_eq!(client.counter("else").add(1).await.unwrap(), value);
    }
    run(&mut held, "ROLLBACK").await;
    assert!(polling.await.unwrap().unwrap().is_none());
    guard.release().await.unwrap();
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_create_names_cost_others_no_lease() {
    with_ttl(TTL, create_names_beside_leases).await;
}

async fn create_names_beside_leases(ttl: Duration) {
    let database = TestDatabase::new().await;
    let holder = client(&database, 2).await;
    let names: Vec<String> = (0..50).map(|number| format!("held {number}")).collect();
    let held = names
        .iter()
        .map(|name| holder.lock(name).ttl(ttl).acquire());
    let guards: Vec<_> = join_all(held)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let stop = Arc::new(AtomicBool::new(false));
    let mut set = JoinSet::new();
    for number in 0..20 {
        let client = client(&database, 2).await;
        for task in 0..10 {
            let (client, stop) = (client.clone(), Arc::clone(&stop));
            set.spawn(async move {
                let mut made = 0_u64;
                while !stop.load(Relaxed) {
                    made += 1;
                    let name = format!("{number} {task} {made}");
                    let guard = client.lock(&name).try_acquire().await.unwrap();
                    guard.expect("nobody has it").release().await.unwrap();
                }
                made
            });
        }
    }
    // The holder creates names too.
    for number in 0..100 {
        let guard = holder
            .lock(&format!("own {number}"))
            .acquire()
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(guards.iter().all(LockGuard::is_held), "a lease was lost");
        drop(guard);
    }
    stop.store(true, Relaxed);
    let made = set.join_all().await;
    println!("{} new names of 200 tasks", made.iter().sum::<u64>());
    assert!(made.iter().all(|made| *made > 0), "{made:?}");
    for guard in guards {
        guard.release().await.unwrap();
    }
    database.remove().await;
}

/// The turns that others have with the lock `l`.
#[derive(Clone, Default)]
struct Turns {
    over: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
}

impl Turns {
    fn go_on(&self) -> bool {
        !self.over.load(Relaxed)
    }

    /// One of them has it.
    fn one_more(&self) {
        self.count.fetch_add(1, Relaxed);
    }

    fn so_far(&self) -> u64 {
        self.count.load(Relaxed)
    }
}

/// How many turns of others passed while each of `waits` acquires waited; the median.
async fn turns_of_others(client: &LockClient, turns: &Turns, waits: usize) -> u64 {
    let mut passed = Vec::new();
    for _ in 0..waits {
        let before = turns.so_far();
        let guard = client.lock("l").acquire().await.unwrap();
        passed.push(turns.so_far() - before);
        guard.release().await.unwrap();
        // Others have a turn, so that this one waits.
        let after = turns.so_far();
        while turns.so_far() == after {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    passed.sort_unstable();
    println!("turns of others during each wait: {passed:?}");
    passed[passed.len() / 2]
}

/// An acquire that waits has at least a quarter of an equal share beside so many others, each of which plays with a client and
/// a connection of its own until there is no going on.
async fn a_waiting_acquire_has_its_share<F>(
    others: u64,
    play: impl Fn(LockClient, MySqlConnection, Turns) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let database = TestDatabase::new().await;
    let waiting = client(&database, 2).await;
    // The row is there.
    drop(waiting.lock("l").try_acquire().await.unwrap());
    let turns = Turns::default();
    let mut set = JoinSet::new();
    for _ in 0..others {
        let client = client(&database, 1).await;
        set.spawn(play(client, database.connection().await, turns.clone()));
    }
    let median = turns_of_others(&waiting, &turns, 20).await;
    turns.over.store(true, Relaxed);
    set.join_all().await;
    let quarter = 4 * (others + 1);
    assert!(
        median <= quarter,
        "a quarter of an equal share is each {quarter}th turn, and it was each {median}th"
    );
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_acquire_has_its_share_beside_transactions() {
    a_waiting_acquire_has_its_share(4, |client, mut connection, turns| async move {
        while turns.go_on() {
            let mut transaction = connection.begin().await.unwrap();
            match client.lock_in(&mut transaction, "l").await {
                Ok(_) => {
                    turns.one_more();
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    transaction.commit().await.unwrap();
                }
                // A lease had the lock for the moment in which it was free.
                Err(Error::Timeout { .. } | Error::Busy { .. }) => {
                    transaction.rollback().await.unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_acquire_has_its_share_beside_those_who_try() {
    a_waiting_acquire_has_its_share(8, |client, _, turns| async move {
        while turns.go_on() {
            if let Some(guard) = client.lock("l").try_acquire().await.unwrap() {
                turns.one_more();
                tokio::time::sleep(Duration::from_millis(1)).await;
                guard.release().await.unwrap();
            }
        }
    })
    .await;
}

/// 64 tasks of each of the clients add to one counter, each time with a new id, and then once more with the same. How many packets
/// that took.
async fn packets_of_add_once(clients: usize, rounds: usize) -> u64 {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let mut all = Vec::new();
    for _ in 0..clients {
        all.push(connected(patient(&proxy.url(&database.url))).await);
    }
    let packets = Arc::new(AtomicU64::new(0));
    proxy.on_command({
        let packets = Arc::clone(&packets);
        move |command| {
            packets.fetch_add(u64::from(is_batch(command)), Relaxed);
            Fault::Pass
        }
    });
    let mut set = JoinSet::new();
    for (number, client) in all.iter().enumerate() {
        for task in 0..64 {
            let client = client.clone();
            set.spawn(async move {
                let mut values = Vec::new();
                for round in 0..rounds {
                    let id = format!("{number} {task} {round}");
                    let value = client.counter("hot").add_once(&id, 1).await.unwrap();
                    assert_eq!(client.counter("hot").add_once(&id, 1).await.unwrap(), value);
                    values.push(value);
                }
                values
            });
        }
    }
    let mut values: Vec<i64> = set.join_all().await.into_iter().flatten().collect();
    values.sort_unstable();
    let last = i64::try_from(clients * 64 * rounds).unwrap();
    assert!(
        values.into_iter().eq(1..=last),
        "each has a value of its own"
    );
    assert_eq!(all[0].counter("hot").get().await.unwrap(), last);
    database.remove().await;
    packets.load(Relaxed)
}

#[tokio::test(flavor = "multi_thread")]
async fn additions_that_run_once_share_packets() {
    let packets = packets_of_add_once(1, 20).await;
    println!(
        "one client: {packets} packets for {} additions",
        64 * 20 * 2
    );
    assert!(packets * 16 <= 64 * 20 * 2, "{packets}");
}

#[tokio::test(flavor = "multi_thread")]
async fn additions_that_run_once_share_packets_beside_other_clients() {
    let packets = packets_of_add_once(2, 10).await;
    println!(
        "two clients: {packets} packets for {} additions",
        2 * 64 * 10 * 2
    );
    assert!(packets * 4 <= 2 * 64 * 10 * 2, "{packets}");
}

/// Nothing is held: whoever had too little time is told that, and the others have what they asked for.
#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_too_much_is_told_that_and_not_that_something_is_held() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let builder = LockClient::builder(proxy.url(&database.url).parse().unwrap())
        .packet_timeout(Duration::from_secs(10))
        .request_timeout(Duration::from_secs(10));
    let client = connected(builder.lanes(1)).await;
    client.counter("known").add(1).await.unwrap();
    // Each packet takes a fifth of a request's time, and has a thousand rows at most: for all of them there is no time.
    proxy.set_delay(Duration::from_secs(1), Duration::from_secs(1));
    let mut set = JoinSet::new();
    for number in 0..6_000 {
        let client = client.clone();
        set.spawn(async move { client.counter(&format!("new {number}")).add(1).await });
    }
    let mut overloaded = 0;
    for answer in set.join_all().await {
        match answer {
            Ok(value) => assert_eq!(value, 1),
            Err(Error::Overloaded { .. }) => overloaded += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(overloaded > 0, "it was not too much");
    database.remove().await;
}
