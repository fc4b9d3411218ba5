//! `KILL` and `KILL QUERY` of the client's connections, at random and under load: nobody notices.
//!
//! `TAG_LOCK_TEST_ROUNDS` is the number of kills (300 by default), `TAG_LOCK_TEST_SEED` draws them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::ledger::{Load, rounds, seed};
use crate::support::{TestDatabase, no_deadlocks_since, run, server_deadlocks};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};
use tag_lock::{AtClose, LockClient};

/// The connections to the database but for one's own.
async fn victims(connection: &mut MySqlConnection, database: &str) -> Vec<i64> {
    let sql = format!(
        "SELECT CAST(id AS SIGNED) FROM information_schema.processlist \
         WHERE db = '{database}' AND id <> CONNECTION_ID()"
    );
    let rows = sqlx::raw_sql(AssertSqlSafe(sql))
        .fetch_all(connection)
        .await
        .expect("a list");
    rows.iter()
        .map(|row| row.try_get_unchecked(0).expect("an id"))
        .collect()
}

async fn kill_at_random(command: &'static str) {
    let (rounds, seed) = (rounds(300), seed());
    let database = TestDatabase::new().await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        let options = database.url.parse().expect("a URL");
        let builder = LockClient::builder(options).request_timeout(Duration::from_secs(1_800));
        clients.push(builder.connect().await.expect("connects"));
    }
    let deadlocks = server_deadlocks().await;
    let mut load = Load::start(&clients, seed);
    let killed = Arc::new(AtomicU64::new(0));
    let (count, name) = (Arc::clone(&killed), database.name.clone());
    let mut killer = database.connection().await;
    let killing = tokio::spawn(async move {
        let mut random = StdRng::seed_from_u64(seed);
        while count.load(Ordering::Relaxed) < rounds {
            let ids = victims(&mut killer, &name).await;
            if !ids.is_empty() {
                let id = ids[random.random_range(0..ids.len())];
                // It may be gone by now.
                let sql = AssertSqlSafe(format!("{command} {id}"));
                let result = sqlx::raw_sql(sql).execute(&mut killer).await;
                count.fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
            }
            // Often enough to meet each kind of packet, seldom enough for some to pass.
            let pause = Duration::from_micros(random.random_range(0..20_000));
            tokio::time::sleep(pause).await;
        }
        run(&mut killer, "DO 0").await;
    });
    load.until(|| killed.load(Ordering::Relaxed) >= rounds)
        .await;
    killing.await.expect("the killer");
    let ledger = load.finish().await;
    for client in &clients {
        client.close(AtClose::Release).await;
    }
    println!("{} tickets, {} holds", ledger.tickets.len(), ledger.holds);
    ledger.check(&database).await;
    no_deadlocks_since(deadlocks).await;
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn killed_connections_heal() {
    kill_at_random("KILL").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn killed_queries_heal() {
    kill_at_random("KILL QUERY").await;
}
