//! What `verify_in` costs in a transaction that updates one row.

use std::time::{Duration, Instant};

use sqlx::mysql::MySqlConnection;
use tag_lock::{LockClient, LockGuard};

use crate::Result;
use crate::database::{Database, connect, run};
use crate::figures::{Figures, median};
use crate::options::Options;
use crate::proxy::Proxy;

/// Measures round trips through the proxy, and transactions a second without it.
pub async fn measure(database: &Database, options: &Options, figures: &mut Figures) -> Result<()> {
    let client = LockClient::connect(&database.url).await?;
    let guard = client
        .lock("books")
        .ttl(Duration::from_secs(600))
        .acquire()
        .await?;
    let mut trips = [0_u64; 2];
    let proxy = Proxy::before(&database.url).await?;
    let mut connection = connect(&proxy.url(&database.url)).await?;
    for (place, verified) in [None, Some(&guard)].into_iter().enumerate() {
        let before = proxy.round_trips();
        proxy.record(true);
        transaction(&mut connection, verified).await?;
        trips[place] = proxy.round_trips() - before;
        println!(
            "\npackets {} verify_in:",
            if verified.is_some() {
                "with"
            } else {
                "without"
            }
        );
        for packet in proxy.take_recorded() {
            println!("  {}", packet.sql.unwrap_or_default());
        }
    }
    drop(connection);
    println!();
    figures.note("verify_round_trips", trips[1] as f64 - trips[0] as f64);

    let mut connection = connect(&database.url).await?;
    let (mut plain, mut verified) = (Vec::new(), Vec::new());
    for _ in 0..options.heats {
        for (rates, guard) in [(&mut plain, None), (&mut verified, Some(&guard))] {
            let start = Instant::now();
            let mut count = 0_u32;
            while start.elapsed() < options.heat {
                transaction(&mut connection, guard).await?;
                count += 1;
            }
            rates.push(f64::from(count) / start.elapsed().as_secs_f64());
        }
    }
    figures.note("transactions_per_second", median(plain));
    figures.note("transactions_per_second_verified", median(verified));
    guard.release().await?;
    client.close(tag_lock::AtClose::Release).await;
    Ok(())
}

async fn transaction(connection: &mut MySqlConnection, guard: Option<&LockGuard>) -> Result<()> {
    run(connection, "START TRANSACTION").await?;
    if let Some(guard) = guard {
        guard.verify_in(connection).await?;
    }
    run(connection, "UPDATE account SET n = n + 1 WHERE id = 1").await?;
    run(connection, "COMMIT").await
}
