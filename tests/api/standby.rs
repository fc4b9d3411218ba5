//! Waiting for minutes costs little, and whoever does is not passed over.

use std::time::{Duration, Instant};

use crate::support;
use crate::support::lateness::Lateness;
use crate::support::proxy::Proxy;
use crate::support::{TestDatabase, connected, eventually, patient};
use futures_util::future::join_all;

const HOUR: Duration = Duration::from_secs(3_600);
const NAMES: [&str; 3] = ["leader", "nightly", "reports"];

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_asks_once_a_second_and_goes_first() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let url = proxy.url(&database.url);
    let client = async || connected(patient(&url)).await;
    let (holder, standby, newcomer) = (client().await, client().await, client().await);
    let held = join_all(NAMES.map(|name| holder.lock(name).ttl(HOUR).acquire())).await;
    let waiting = NAMES.map(|name| tokio::spawn(standby.lock(name).acquire()));
    eventually("all of them stand by", async || {
        const STANDING_BY: &str = "SELECT COUNT(*) FROM t_tag_lock WHERE kind=1 \
                                   AND wanted_until>UTC_TIMESTAMP(6)+INTERVAL 120 SECOND";
        support::number(&mut database.connection().await, STANDING_BY).await == 3
    })
    .await;
    let info = newcomer.inspect(NAMES[0]).await.unwrap().unwrap();
    let urgency = info.wish.map(|wish| wish.urgency);
    assert_eq!(urgency, Some(tag_lock::Urgency::StandsBy));
    // The next look tells them that the wish is known.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (began, before) = (Instant::now(), proxy.round_trips());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = proxy.round_trips() - before;
    let seconds = began.elapsed().as_secs();
    println!(
        "{asked} commands in {seconds:.1} s for {} names",
        NAMES.len()
    );
    assert!(asked <= seconds + 4, "{asked} in {seconds} s");
    let lateness = Lateness::watch();
    let released = Instant::now();
    for guard in held {
        guard.unwrap().release().await.unwrap();
    }
    let mut guards = Vec::new();
    for (name, waiting) in NAMES.into_iter().zip(waiting) {
        let overtaken = loop {
            if waiting.is_finished() {
                break false;
            }
            if newcomer.lock(name).try_acquire().await.unwrap().is_some() {
                break true;
            }
        };
        assert!(
            !overtaken || lateness.so_far() > Duration::from_millis(100),
            "somebody who came later has {name}"
        );
        guards.push(waiting.await.unwrap().unwrap());
        println!("{name} after {:?}", released.elapsed());
    }
    drop(guards);
    database.remove().await;
}
