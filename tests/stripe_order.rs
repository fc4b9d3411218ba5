//! Stripes that are waited for are locked in ascending order, however a batch is shuffled: packets of several clients that
//! want all of them wait for each other, and never in a circle.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use rand::seq::SliceRandom;
use sqlx::mysql::MySqlConnection;
use tag_lock::LockClient;
use tokio::sync::Mutex;

use self::support::{TestDatabase, connected, eventually, number, patient, run, server_deadlocks};

const CLIENTS: usize = 4;
const ROUNDS: usize = 25;
const STRIPES: usize = 100;

/// A name of each stripe.
fn names() -> Vec<String> {
    let mut names = vec![String::new(); STRIPES];
    let mut missing = STRIPES;
    for name in (0..).map(|number| format!("name {number}")) {
        let place = &mut names[crc32fast::hash(name.as_bytes()) as usize % STRIPES];
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
    connected(patient(&database.url).lanes(1)).await
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
    assert_eq!(
        server_deadlocks().await,
        before,
        "the server found deadlocks"
    );
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_waits_holds_lower_stripes_only() {
    const HELD: usize = 50;
    let database = TestDatabase::new().await;
    let client = one_lane(&database).await;
    let mut names = names();
    // The rows exist, and the lane is open.
    add_all(&client, &names).await;
    let mut foreign = database.connection().await;
    let looker = Mutex::new(database.connection().await);
    run(&mut foreign, "START TRANSACTION").await;
    assert!(is_free(&mut foreign, HELD).await);
    let adding = tokio::spawn(async move {
        for _ in 0..3 {
            names.shuffle(&mut rand::rng());
            add_all(&client, &names).await;
        }
    });
    // What waits for nothing takes the others in passing. Then a batch waits, with all that was asked for meanwhile.
    let seen = AtomicUsize::new(0);
    eventually(
        "the batch holds lower stripes, and none above",
        async || {
            let (mut looker, mut lower, mut higher) = (looker.lock().await, 0, 0);
            for stripe in (0..STRIPES).filter(|stripe| *stripe != HELD) {
                let locked = usize::from(!is_free(&mut looker, stripe).await);
                let side = if stripe < HELD {
                    &mut lower
                } else {
                    &mut higher
                };
                *side += locked;
            }
            seen.store(lower, Ordering::Relaxed);
            lower > 0 && higher == 0
        },
    )
    .await;
    println!("while it waited for stripe {HELD}, the batch held {seen:?} lower ones");
    run(&mut foreign, "ROLLBACK").await;
    adding.await.unwrap();
    database.remove().await;
}

/// Whether nobody else has locked the stripe's row.
async fn is_free(connection: &mut MySqlConnection, stripe: usize) -> bool {
    let sql = format!(
        "SELECT COUNT(*) FROM (SELECT 1 FROM t_tag_lock WHERE lock_name = 'center_lock_{stripe:02}' \
         AND kind = 0 AND slot = 0 LIMIT 1 FOR UPDATE SKIP LOCKED) k"
    );
    number(connection, &sql).await == 1
}
