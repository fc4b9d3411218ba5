//! Stripes that are waited for are locked in ascending order, however a batch is shuffled: packets of several clients that
//! want all of them wait for each other, and never in a circle.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use rand::seq::SliceRandom;
use sqlx::mysql::MySqlConnection;
use tag_lock::LockClient;
use tokio::sync::Mutex;

use self::support::packets::statements_of;
use self::support::proxy::Proxy;
use self::support::{TestDatabase, connected, eventually, number, patient, run, server_deadlocks};

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

#[tokio::test]
async fn a_row_is_left_alone_as_long_as_its_stripe_is_locked() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    proxy.record(true);
    let mut prepared = HashMap::new();
    let mut recorded = || -> Vec<String> {
        let recorded = proxy
            .take_recorded()
            .into_iter()
            .filter_map(|command| command.sql);
        recorded
            .flat_map(|sql| statements_of(&sql, &mut prepared))
            .collect()
    };
    let client = one_lane_at(&proxy.url(&database.url)).await;
    let names = &names()[..10];
    add_all(&client, names).await;
    // One row, and several.
    for names in [&names[..1], names] {
        recorded();
        add_all(&client, names).await;
        let mut statements = recorded();
        statements.retain(|sql| {
            sql.contains("FROM t_tag_lock s ") || sql.contains("STRAIGHT_JOIN t_tag_lock s ")
        });
        assert!(!statements.is_empty(), "stripes are taken with their rows");
        let mut holder = database.connection().await;
        for sql in statements {
            let named = |name: &&String| sql.contains(&hex(name));
            let named: Vec<&String> = names.iter().filter(named).collect();
            let held = named.last().expect("it names a row");
            run(&mut holder, "START TRANSACTION").await;
            assert!(is_free(&mut holder, stripe_of(held)).await);
            let mut taker = database.connection().await;
            run(
                &mut taker,
                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            )
            .await;
            run(&mut taker, "START TRANSACTION").await;
            run(&mut taker, &sql).await;
            let mut looker = database.connection().await;
            for name in &named {
                let free = is_row_free(&mut looker, name).await;
                assert_eq!(free, name == held, "{name:?} of {}: {sql}", named.len());
            }
            run(&mut holder, "ROLLBACK").await;
        }
    }
    database.remove().await;
}

fn stripe_of(name: &str) -> usize {
    crc32fast::hash(name.as_bytes()) as usize % STRIPES
}

/// As it stands in a packet.
fn hex(name: &str) -> String {
    name.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether nobody else has locked a counter's row.
async fn is_row_free(connection: &mut MySqlConnection, name: &str) -> bool {
    let sql = format!(
        "SELECT COUNT(*) FROM (SELECT 1 FROM t_tag_lock WHERE lock_name = '{name}' \
         AND kind = 2 AND slot = 0 LIMIT 1 FOR UPDATE SKIP LOCKED) k"
    );
    number(connection, &sql).await == 1
}

/// Whether nobody else has locked the stripe's row.
async fn is_free(connection: &mut MySqlConnection, stripe: usize) -> bool {
    let sql = format!(
        "SELECT COUNT(*) FROM (SELECT 1 FROM t_tag_lock WHERE lock_name = 'center_lock_{stripe:02}' \
         AND kind = 0 AND slot = 0 LIMIT 1 FOR UPDATE SKIP LOCKED) k"
    );
    number(connection, &sql).await == 1
}
