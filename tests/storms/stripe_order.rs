//! Stripes are locked in ascending order, however a batch is shuffled: packets of several clients that want all of them wait
//! for each other, and never in a circle. Who need not wait for a stripe does not.

use std::time::Duration;

use futures_util::future::join_all;
use rand::seq::SliceRandom;
use sqlx::mysql::MySqlConnection;
use tag_lock::{LockClient, LockGuard};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::support::proxy::{Command, Fault, Gate, Hold, Proxy, once};
use crate::support::{
    TestDatabase, connected, eventually, no_deadlocks_since, number, patient, run, server_deadlocks,
};

const CLIENTS: usize = 4;
const ROUNDS: usize = 25;
const STRIPES: usize = 100;

/// A name of each stripe.
fn names() -> Vec<String> {
    let mut names = vec![String::new(); STRIPES];
    let mut missing = STRIPES;
    for name in (0..).map(|number| format!("name {number}")) {
        let place = &mut names[stripe_of(&name)];
        if place.is_empty() {
            *place = name;
            missing -= 1;
            if missing == 0 {
                break;
            }
        }
    }
    names
}

/// A client whose requests all share the packets of one lane.
async fn one_lane(database: &TestDatabase) -> LockClient {
    one_lane_at(&database.url).await
}

async fn one_lane_at(url: &str) -> LockClient {
    connected(patient(url).lanes(1)).await
}

/// Adds to all counters at once, in the order of the names.
async fn add_all(client: &LockClient, names: &[String]) {
    let added = names
        .iter()
        .map(async |name| client.counter(name).add(1).await);
    assert!(join_all(added).await.iter().all(Result::is_ok));
}

#[tokio::test(flavor = "multi_thread")]
async fn shuffled_batches_of_all_stripes_do_not_deadlock() {
    let database = TestDatabase::new().await;
    let before = server_deadlocks().await;
    let clients = (0..CLIENTS).map(async |_| {
        let client = one_lane(&database).await;
        let mut names = names();
        for _ in 0..ROUNDS {
            names.shuffle(&mut rand::rng());
            add_all(&client, &names).await;
        }
        client
    });
    let clients = join_all(clients).await;
    for name in &names() {
        let value = clients[0].counter(name).get().await.unwrap();
        assert_eq!(value, i64::try_from(CLIENTS * ROUNDS).unwrap());
    }
    no_deadlocks_since(before).await;
    database.remove().await;
}

/// A hundred new names travel together, each of another stripe, and one of those is held: nobody else waits for it, and whoever waits
/// for it holds no other.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_stripe_waits_alone_and_holds_no_other() {
    const HELD: usize = 50;
    let database = TestDatabase::new().await;
    let client = one_lane(&database).await;
    // The lane is open; the rows are to be created.
    client.counter("other").add(1).await.unwrap();
    let mut names = names();
    names.shuffle(&mut rand::rng());
    let (held, free): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|name| stripe_of(name) == HELD);
    assert!(!held.is_empty() && free.len() >= STRIPES - 1);
    let mut foreign = database.connection().await;
    run(&mut foreign, "START TRANSACTION").await;
    assert!(is_free(&mut foreign, HELD).await);
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { add_all(&client, &held).await }
    });
    // They are created meanwhile.
    add_all(&client, &free).await;
    let looker = Mutex::new(database.connection().await);
    let waits = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{}' AND command = 'Query' \
         AND info LIKE '%kind=0%FOR UPDATE%' AND id <> CONNECTION_ID()",
        database.name
    );
    eventually("a packet waits for its stripe", async || {
        number(&mut *looker.lock().await, &waits).await > 0
    })
    .await;
    for stripe in (0..STRIPES).filter(|stripe| *stripe != HELD) {
        assert!(
            is_free(&mut *looker.lock().await, stripe).await,
            "{stripe} is held"
        );
    }
    assert!(!waiting.is_finished(), "its stripe is held");
    run(&mut foreign, "ROLLBACK").await;
    waiting.await.unwrap();
    database.remove().await;
}

/// What exists is locked by itself: only who creates a row, or comes where others are, waits for a stripe.
#[tokio::test]
async fn rows_that_exist_need_no_stripe() {
    let database = TestDatabase::new().await;
    let client = one_lane(&database).await;
    let names = &names()[..10];
    add_all(&client, names).await;
    let acquire_all = async || {
        let acquired = names.iter().map(|name| client.lock(name).try_acquire());
        let guards = join_all(acquired).await.into_iter();
        guards.map(|guard| guard.unwrap().unwrap()).collect()
    };
    let release_all = async |guards: Vec<LockGuard>| {
        let released = join_all(guards.into_iter().map(LockGuard::release)).await;
        assert!(released.iter().all(Result::is_ok));
    };
    release_all(acquire_all().await).await;
    let mut foreign = database.connection().await;
    run(&mut foreign, "START TRANSACTION").await;
    for stripe in 0..STRIPES {
        assert!(is_free(&mut foreign, stripe).await);
    }
    add_all(&client, names).await;
    let guards = acquire_all().await;
    for guard in &guards {
        guard.extend(Duration::from_secs(60)).await.unwrap();
    }
    release_all(guards).await;
    let fresh = tokio::spawn({
        let client = client.clone();
        async move { client.counter("fresh").add(1).await }
    });
    let looker = Mutex::new(database.connection().await);
    let waits = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{}' AND command = 'Query' \
         AND info LIKE '%kind=0%FOR UPDATE%' AND id <> CONNECTION_ID()",
        database.name
    );
    eventually("a packet waits for its stripe", async || {
        number(&mut *looker.lock().await, &waits).await > 0
    })
    .await;
    assert!(!fresh.is_finished(), "a row was created without its stripe");
    run(&mut foreign, "ROLLBACK").await;
    assert_eq!(fresh.await.unwrap().unwrap(), 1);
    for name in names {
        assert_eq!(client.counter(name).get().await.unwrap(), 2);
    }
    database.remove().await;
}

/// Where a row is locked for a moment by somebody who leaves it free, a lock is not refused.
#[tokio::test]
async fn a_row_that_is_locked_for_a_moment_is_tried_again() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let client = one_lane_at(&proxy.url(&database.url)).await;
    let first = client.lock("l").acquire().await.unwrap();
    first.release().await.unwrap();
    let mut foreign = database.connection().await;
    let row =
        "SELECT COUNT(*) FROM t_tag_lock WHERE lock_name='l' AND kind=1 AND slot=0 FOR UPDATE";
    run(&mut foreign, "START TRANSACTION").await;
    assert_eq!(number(&mut foreign, row).await, 1);
    // Its second attempt has failed by then, behind the stripe, and it looks what there is.
    let gate = Gate::new();
    let hold = Fault::HoldCommand(Hold::Until(gate.clone()));
    let looks = |command: &Command| {
        let sql = String::from_utf8_lossy(command.sql().unwrap_or_default());
        sql.starts_with("SELECT CONCAT(") && sql.contains("t_tag_lock")
    };
    proxy.on_command(once(looks, hold));
    let acquiring = tokio::spawn({
        let client = client.clone();
        async move { client.lock("l").try_acquire().await }
    });
    gate.reached().await;
    run(&mut foreign, "ROLLBACK").await;
    gate.open();
    let guard = acquiring.await.unwrap().unwrap();
    guard
        .expect("it was free all the time")
        .release()
        .await
        .unwrap();
    database.remove().await;
}

/// Those who ask for a lock that somebody holds lock its row each time, and stand in line for that: the holder, who comes
/// seldom, finds it free.
#[tokio::test(flavor = "multi_thread")]
async fn who_asks_in_vain_is_not_in_the_holders_way() {
    let database = TestDatabase::new().await;
    let holder = one_lane(&database).await;
    let guard = holder.lock("l").acquire().await.unwrap();
    let mut asking = JoinSet::new();
    for _ in 0..CLIENTS {
        let client = one_lane(&database).await;
        asking.spawn(async move {
            loop {
                assert!(client.lock("l").try_acquire().await.unwrap().is_none());
            }
        });
    }
    for round in 0..200 {
        let extended = guard.extend(Duration::from_secs(60)).await;
        assert!(extended.is_ok(), "round {round}: {extended:?}");
    }
    asking.abort_all();
    while let Some(asked) = asking.join_next().await {
        assert!(asked.unwrap_err().is_cancelled());
    }
    guard.release().await.unwrap();
    database.remove().await;
}

/// A crowd that locks the stripe and then the row, as packets do, leaves the row free for moments only. Whoever extends the lease stands
/// in line for the stripe then.
#[tokio::test(flavor = "multi_thread")]
async fn an_extension_stands_in_line_where_its_row_is_locked_all_the_time() {
    let database = TestDatabase::new().await;
    let holder = one_lane(&database).await;
    let guard = holder.lock("l").acquire().await.unwrap();
    let mut crowd = JoinSet::new();
    for _ in 0..8 {
        let mut connection = database.connection().await;
        crowd.spawn(async move {
            let stripe = stripe_of("l");
            let packet = format!(
                "START TRANSACTION; \
                 SELECT 1 FROM t_tag_lock WHERE lock_name='center_lock_{stripe:02}' AND kind=0 AND slot=0 FOR UPDATE; \
                 SELECT 1 FROM t_tag_lock WHERE lock_name='l' AND kind=1 AND slot=0 FOR UPDATE; DO SLEEP(0.02); COMMIT"
            );
            loop {
                run(&mut connection, &packet).await;
            }
        });
    }
    for round in 0..20 {
        let extended = guard.extend(Duration::from_secs(60)).await;
        assert!(extended.is_ok(), "round {round}: {extended:?}");
    }
    crowd.abort_all();
    while let Some(ended) = crowd.join_next().await {
        assert!(ended.unwrap_err().is_cancelled());
    }
    guard.release().await.unwrap();
    database.remove().await;
}

fn stripe_of(name: &str) -> usize {
    crc32fast::hash(name.as_bytes()) as usize % STRIPES
}

/// Whether nobody else has locked the stripe's row.
async fn is_free(connection: &mut MySqlConnection, stripe: usize) -> bool {
    let sql = format!(
        "SELECT COUNT(*) FROM (SELECT 1 FROM t_tag_lock WHERE lock_name = 'center_lock_{stripe:02}' \
         AND kind = 0 AND slot = 0 LIMIT 1 FOR UPDATE SKIP LOCKED) k"
    );
    number(connection, &sql).await == 1
}
