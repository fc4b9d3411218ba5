//! Clusters of three nodes: what holds when clients write to all of them, when the primary dies and another takes
//! over, and when a node dies and comes back.
//!
//! ```sh
//! TAG_LOCK_SERVER=galera scripts/with-mysql cargo test --test clusters -- --nocapture
//! TAG_LOCK_SERVER=group-replication scripts/with-mysql cargo test --test clusters -- --nocapture
//! ```
//!
//! On other servers these tests have nothing to do, and say so.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod events;
mod nodes;
mod relay;
#[path = "../support/mod.rs"]
mod support;
mod transactions;

use std::time::{Duration, Instant};

use crate::support::ledger::{Load, TTL, rounds, seed};
use events::counted;
use nodes::{Cluster, Kind, patient_client};
use relay::Relay;
use support::{TestDatabase, run};
use tag_lock::{AtClose, LockClient, LockGuard};

/// How long load runs where nothing else ends it: `TAG_LOCK_TEST_SECONDS`, or 10.
fn load_time() -> Duration {
    let seconds = std::env::var("TAG_LOCK_TEST_SECONDS").map_or(10, |seconds| {
        seconds.parse().expect("TAG_LOCK_TEST_SECONDS is a number")
    });
    Duration::from_secs(seconds)
}

/// A database whose tables every node has.
async fn database(cluster: &Cluster) -> TestDatabase {
    let database = TestDatabase::new().await;
    cluster.settle().await;
    database
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_on_all_nodes_migrate_at_once() {
    let Some(cluster) = Cluster::of(&[Kind::Galera, Kind::MultiPrimary]).await else {
        return;
    };
    for _ in 0..5 {
        migrate_at_once(&cluster).await;
    }
}

async fn migrate_at_once(cluster: &Cluster) {
    let database = TestDatabase::empty().await;
    cluster.settle().await;
    let mut migrations = tokio::task::JoinSet::new();
    for node in &cluster.nodes {
        let url = node.database(&database.name);
        migrations.spawn(async move { patient_client(&url).await.migrate().await });
    }
    while let Some(done) = migrations.join_next().await {
        done.expect("no panic").expect("migrates");
    }
    cluster.settle().await;
    for node in &cluster.nodes {
        let client = patient_client(&node.database(&database.name)).await;
        client
            .lock("job")
            .acquire()
            .await
            .expect("migrated")
            .release()
            .await
            .unwrap();
    }
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_write_to_all_nodes() {
    let Some(cluster) = Cluster::of(&[Kind::Galera, Kind::MultiPrimary]).await else {
        return;
    };
    let database = database(&cluster).await;
    let before = counted();
    let mut clients = Vec::new();
    for node in &cluster.nodes {
        clients.push(patient_client(&node.database(&database.name)).await);
    }
    let mut load = Load::start(&clients, seed());
    let start = Instant::now();
    load.until(|| start.elapsed() >= load_time()).await;
    let ledger = load.finish().await;
    let after = counted();
    println!(
        "{:?}: {} tickets, {} holds, {} conflicts, {} unknown outcomes in {:?}",
        cluster.kind,
        ledger.tickets.len(),
        ledger.holds,
        after.conflicts - before.conflicts,
        after.unknown - before.unknown,
        start.elapsed()
    );
    assert!(
        after != before,
        "three writers of one row never met: were they on three nodes?"
    );
    for client in &clients {
        client.close(AtClose::Release).await;
    }
    cluster.settle().await;
    ledger.check(&database).await;
    database.remove().await;
}

/// Leases that last longer than the test, which must not be granted twice.
async fn hold(client: &LockClient) -> Vec<LockGuard> {
    let mut held = Vec::new();
    for number in 0..10 {
        let name = format!("held {number}");
        held.push(client.lock(&name).ttl(TTL).acquire().await.unwrap());
    }
    held
}

async fn still_held(held: &[LockGuard], other: &LockClient) {
    for guard in held {
        assert!(guard.is_held(), "{guard:?}");
        let granted = other.lock(guard.name()).try_acquire().await.unwrap();
        assert!(granted.is_none(), "{} was granted twice", guard.name());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_primary_is_killed_and_another_takes_over() {
    let Some(cluster) = Cluster::of(&[Kind::SinglePrimary]).await else {
        return;
    };
    let primary = cluster.primary().await;
    let relay = Relay::to(cluster.nodes[primary].port()).await;
    let mut database = TestDatabase::empty_at(&relay.url(&support::server_url())).await;
    patient_client(&database.url).await.migrate().await.unwrap();
    let before = counted();
    let clients = [
        patient_client(&database.url).await,
        patient_client(&database.url).await,
    ];
    let held = hold(&clients[0]).await;
    let mut load = Load::start(&clients, seed());
    let progress = clients[1].counter("progress");
    let rounds = rounds(5);
    for round in 0..rounds {
        let working = Instant::now();
        load.until(|| working.elapsed() >= Duration::from_secs(2))
            .await;
        let old = cluster.primary().await;
        let killed = Instant::now();
        cluster.nodes[old].run("kill").await;
        let new = cluster.primary().await;
        assert_ne!(new, old);
        let elected = killed.elapsed();
        relay.turn_to(cluster.nodes[new].port());
        progress.add(1).await.expect("heals");
        let healed = killed.elapsed();
        still_held(&held, &clients[1]).await;
        println!("round {round}: a new primary after {elected:?}, progress after {healed:?}");
        cluster.nodes[old].run("start").await;
    }
    let ledger = load.finish().await;
    let after = counted();
    println!(
        "{:?}: {rounds} failovers, {} tickets, {} holds, {} conflicts, {} unknown outcomes",
        cluster.kind,
        ledger.tickets.len(),
        ledger.holds,
        after.conflicts - before.conflicts,
        after.unknown - before.unknown
    );
    for guard in held {
        guard.release().await.unwrap();
    }
    for client in &clients {
        client.close(AtClose::Release).await;
    }
    ledger.check(&database).await;
    remove(&cluster, &mut database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_are_killed_under_load_and_come_back() {
    let Some(cluster) = Cluster::of(&[Kind::Galera, Kind::MultiPrimary]).await else {
        return;
    };
    let mut database = database(&cluster).await;
    let before = counted();
    let (mut relays, mut clients) = (Vec::new(), Vec::new());
    for node in &cluster.nodes {
        let relay = Relay::to(node.port()).await;
        clients.push(patient_client(&relay.url(&node.database(&database.name))).await);
        relays.push(relay);
    }
    let held = hold(&clients[0]).await;
    cluster.settle().await;
    let mut load = Load::start(&clients, seed());
    let rounds = rounds(3);
    for round in 0..rounds {
        let working = Instant::now();
        load.until(|| working.elapsed() >= Duration::from_secs(2))
            .await;
        let count = cluster.nodes.len();
        let victim = usize::try_from(round).unwrap() % count;
        let (node, other) = (&cluster.nodes[victim], (victim + 1) % count);
        let killed = Instant::now();
        node.run("kill").await;
        // Its clients' batches are settled on another node.
        relays[victim].turn_to(cluster.nodes[other].port());
        clients[victim].counter("progress").add(1).await.unwrap();
        println!(
            "round {round}: node {victim} killed, progress after {:?}",
            killed.elapsed()
        );
        still_held(&held, &clients[other]).await;
        node.run("start").await;
        relays[victim].turn_to(node.port());
        clients[victim].counter("progress").add(1).await.unwrap();
        println!("round {round}: back after {:?}", killed.elapsed());
    }
    let ledger = load.finish().await;
    let after = counted();
    println!(
        "{:?}: {rounds} nodes killed, {} tickets, {} holds, {} conflicts, {} unknown outcomes",
        cluster.kind,
        ledger.tickets.len(),
        ledger.holds,
        after.conflicts - before.conflicts,
        after.unknown - before.unknown
    );
    cluster.settle().await;
    for guard in held {
        guard.release().await.unwrap();
    }
    for client in &clients {
        client.close(AtClose::Release).await;
    }
    cluster.settle().await;
    ledger.check(&database).await;
    remove(&cluster, &mut database).await;
}

/// Drops the database where it can be dropped.
async fn remove(cluster: &Cluster, database: &mut TestDatabase) {
    let writer = match cluster.kind {
        Kind::SinglePrimary => cluster.primary().await,
        _ => 0,
    };
    let mut connection = support::connect(&cluster.nodes[writer].url).await;
    run(&mut connection, &format!("DROP DATABASE {}", database.name)).await;
}
