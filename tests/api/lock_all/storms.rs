//! Many who want some of the same few names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::seq::SliceRandom;
use tag_lock::Stripes;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{TTL, held};
use crate::support::{TestDatabase, connected, no_deadlocks_since, patient, server_deadlocks};

const NAMES: [&str; 8] = ["0", "1", "2", "3", "4", "5", "6", "7"];
/// Longer than any storm takes on a slow machine, shorter than for ever.
const LONG: Duration = Duration::from_secs(300);

/// What the holders of a name see of each other, outside the database.
#[derive(Default)]
struct Record {
    inside: AtomicBool,
    token: AtomicU64,
}

/// Enters each of the names: nobody else is inside, and the tokens have risen.
fn enter<'t>(records: &[Record], tokens: impl Iterator<Item = (&'t str, u64)>) {
    for (name, token) in tokens {
        let record = &records[name.parse::<usize>().expect("a number")];
        assert!(!record.inside.swap(true, Ordering::SeqCst), "two in {name}");
        let before = record.token.swap(token, Ordering::SeqCst);
        assert!(before < token, "{name}: {token} after {before}");
    }
}

fn leave<'t>(records: &[Record], tokens: impl Iterator<Item = (&'t str, u64)>) {
    for (name, _) in tokens {
        let record = &records[name.parse::<usize>().expect("a number")];
        record.inside.store(false, Ordering::SeqCst);
    }
}

/// Several clients, many tasks each, random names in random orders; new names, and then old ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opposite_orders_exclude_each_other_and_do_not_deadlock() {
    const CLIENTS: usize = 3;
    const TASKS: usize = 8;
    const ROUNDS: usize = 6;
    let database = TestDatabase::new().await;
    let deadlocks = server_deadlocks().await;
    let records: Arc<[Record]> = NAMES.iter().map(|_| Record::default()).collect();
    let mut tasks = JoinSet::new();
    for number in 0..CLIENTS {
        // One takes the stripe of each name, as the original design does.
        let stripes = match number {
            0 => Stripes::EveryRequest,
            _ => Stripes::WhenNeeded,
        };
        let client = connected(patient(&database.url).stripes(stripes)).await;
        for task in 0..TASKS {
            let (client, records) = (client.clone(), Arc::clone(&records));
            tasks.spawn(async move {
                for round in 0..ROUNDS {
                    let mut names = NAMES;
                    names.shuffle(&mut rand::rng());
                    let count = 1 + (task + round) % 4;
                    let request = client.lock_all(&names[..count]).ttl(TTL);
                    let guard = request.acquire().await.expect("acquires");
                    enter(&records, guard.fencing_tokens());
                    tokio::task::yield_now().await;
                    assert!(guard.is_held());
                    leave(&records, guard.fencing_tokens());
                    if round % 3 == 2 {
                        drop(guard);
                    } else {
                        guard.release().await.expect("ours");
                    }
                }
            });
        }
    }
    timeout(LONG, tasks.join_all())
        .await
        .expect("progress for everyone");
    let client = database.client().await;
    crate::support::eventually("nothing is held", async || {
        held(&client, &NAMES).await.is_empty()
    })
    .await;
    no_deadlocks_since(deadlocks).await;
    database.remove().await;
}

/// Singles that always want one of the names: the group gets its turn, and the singles go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_gets_its_turn_beside_singles() {
    let database = TestDatabase::new().await;
    let deadlocks = server_deadlocks().await;
    let records: Arc<[Record]> = NAMES.iter().map(|_| Record::default()).collect();
    let over = Arc::new(AtomicBool::new(false));
    let mut singles = JoinSet::new();
    for _ in 0..2 {
        let client = database.client().await;
        for name in &NAMES[..3] {
            for _ in 0..2 {
                let (client, records, over) =
                    (client.clone(), Arc::clone(&records), Arc::clone(&over));
                singles.spawn(async move {
                    let mut turns = 0;
                    while !over.load(Ordering::SeqCst) || turns == 0 {
                        let guard = client.lock(name).ttl(TTL).acquire().await;
                        let guard = guard.expect("acquires");
                        let held = [(*name, guard.fencing_token())];
                        enter(&records, held.into_iter());
                        tokio::time::sleep(Duration::from_millis(2)).await;
                        leave(&records, held.into_iter());
                        guard.release().await.expect("ours");
                        turns += 1;
                    }
                    turns
                });
            }
        }
    }
    let (one, other) = (database.client().await, database.client().await);
    for client in [&one, &other] {
        for _ in 0..2 {
            let acquire = client.lock_all(&NAMES[..3]).ttl(TTL).acquire();
            let guard = timeout(LONG, acquire).await.expect("its turn");
            let guard = guard.expect("acquires");
            enter(&records, guard.fencing_tokens());
            tokio::time::sleep(Duration::from_millis(2)).await;
            leave(&records, guard.fencing_tokens());
            guard.release().await.expect("ours");
        }
    }
    over.store(true, Ordering::SeqCst);
    let turns = timeout(LONG, singles.join_all())
        .await
        .expect("singles too");
    assert!(turns.iter().all(|turns| *turns > 0));
    no_deadlocks_since(deadlocks).await;
    database.remove().await;
}

/// Many names that nobody has used, taken by several at once in pieces that overlap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_names_are_created_without_a_deadlock() {
    let database = TestDatabase::new().await;
    let deadlocks = server_deadlocks().await;
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let client = database.client().await;
        for round in 0..4 {
            let client = client.clone();
            tasks.spawn(async move {
                for piece in 0..4 {
                    let first = round * 40 + piece * 10;
                    let mut names: Vec<String> = (first..first + 30)
                        .map(|number| format!("new:{number}"))
                        .collect();
                    names.shuffle(&mut rand::rng());
                    let guard = client.lock_all(names).ttl(TTL).acquire().await;
                    guard.expect("acquires").release().await.expect("ours");
                }
            });
        }
    }
    timeout(LONG, tasks.join_all())
        .await
        .expect("progress for everyone");
    no_deadlocks_since(deadlocks).await;
    database.remove().await;
}
