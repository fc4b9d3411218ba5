//! While `COMMIT` hangs, a client leaves few sessions on the server, and none of its additions is lost or doubled.
//! No other test can commit meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tag_lock::LockClient;
use tokio::task::JoinSet;

use crate::support::alone::Global;
use crate::support::{
    TestDatabase, alone, connect, connected, is_mariadb, number, run, server_url,
};

/// A `COMMIT` that hangs, as with semi-synchronous replication without a replica.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_keeps_few_connections_however_long_commits_hang() {
    // Two lanes: 16, one that was opened when all of them hung, and one that asks whether they still do.
    const MOST: i64 = 2 * 2 + 12 + 2;
    let _alone = alone().await;
    let database = TestDatabase::new().await;
    let builder = LockClient::builder(database.url.parse().unwrap())
        .packet_timeout(Duration::from_secs(1))
        .request_timeout(Duration::from_secs(2));
    let client = connected(builder).await;
    for number in 0..20 {
        client.counter(&format!("n{number}")).add(1).await.unwrap();
    }
    let mut operator = connect(&server_url()).await;
    let words = if is_mariadb() {
        [
            "rpl_semi_sync_master_timeout",
            "rpl_semi_sync_master_wait_no_slave",
            "rpl_semi_sync_master_enabled",
        ]
    } else {
        run(
            &mut operator,
            "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
        )
        .await;
        [
            "rpl_semi_sync_source_timeout",
            "rpl_semi_sync_source_wait_for_replica_count",
            "rpl_semi_sync_source_enabled",
        ]
    };
    let _patient = Global::set(words[0], "600000").await;
    let _lonely = Global::set(words[1], "1").await;
    let hanging = Global::set(words[2], "1").await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut set = JoinSet::new();
    for number in 0..20 {
        let (client, stop) = (client.clone(), Arc::clone(&stop));
        set.spawn(async move {
            let (mut least, mut most) = (1, 1);
            while !stop.load(Relaxed) {
                most += 1;
                if client.counter(&format!("n{number}")).add(1).await.is_ok() {
                    least += 1;
                }
            }
            (number, least, most)
        });
    }
    let count = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db='{}'",
        database.name
    );
    let mut seen = Vec::new();
    for _ in 0..15 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        seen.push(number(&mut operator, &count).await);
    }
    println!("connections of one client while commits hang: {seen:?}");
    stop.store(true, Relaxed);
    drop(hanging);
    assert!(seen.iter().all(|seen| *seen <= MOST), "{seen:?}");
    for (number, least, most) in set.join_all().await {
        let value = client.counter(&format!("n{number}")).get().await.unwrap();
        assert!(
            (least..=most).contains(&value),
            "{least} to {most}: {value}"
        );
    }
    database.remove().await;
}
