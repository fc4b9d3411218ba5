//! The server killed with SIGKILL in the middle of load: nothing acknowledged is lost, nothing is doubled.
//!
//! `TAG_LOCK_TEST_ROUNDS` is the number of kills (5 by default). It needs a server that it may kill:
//! `TAG_LOCK_SERVER_DIR`, as `scripts/with-mysql` sets it.

use std::time::Duration;

use crate::support::alone::server;
use crate::support::ledger::{Load, TTL, rounds, seed};
use crate::support::{TestDatabase, alone};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tag_lock::{AtClose, LockClient, LockState};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_server_is_killed_in_the_middle_of_load() {
    let _alone = alone().await;
    let (rounds, seed) = (rounds(5), seed());
    let database = TestDatabase::new().await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        let options = database.url.parse().expect("a URL");
        let builder = LockClient::builder(options).request_timeout(Duration::from_secs(7_200));
        clients.push(builder.connect().await.expect("connects"));
    }
    let mut held = Vec::new();
    for number in 0..20 {
        let name = format!("held {number}");
        let guard = clients[0].lock(&name).ttl(TTL).acquire().await;
        held.push(guard.expect("acquires"));
    }
    let mut random = StdRng::seed_from_u64(seed);
    let mut load = Load::start(&clients, seed);
    let progress = clients[0].counter("progress");
    for round in 0..rounds {
        // The server is back, and at a random point of its work.
        progress.add(1).await.expect("heals");
        let start = tokio::time::Instant::now();
        let until = Duration::from_millis(random.random_range(0..400));
        load.until(|| start.elapsed() >= until).await;
        server("kill").await;
        for guard in &held {
            assert!(guard.is_held(), "round {round}: {guard:?}");
        }
        server("start").await;
    }
    progress.add(1).await.expect("heals");
    let ledger = load.finish().await;
    println!("{} tickets, {} holds", ledger.tickets.len(), ledger.holds);
    for guard in held {
        let name = guard.name().to_owned();
        let info = clients[1]
            .inspect(&name)
            .await
            .expect("a look")
            .expect("a row");
        assert_eq!(info.state, LockState::Held, "{name}");
        let other = clients[1]
            .lock(&name)
            .try_acquire()
            .await
            .expect("an answer");
        assert!(other.is_none(), "{name} is held");
        guard.release().await.expect("still held");
    }
    for client in &clients {
        client.close(AtClose::Release).await;
    }
    ledger.check(&database).await;
    database.remove().await;
}
