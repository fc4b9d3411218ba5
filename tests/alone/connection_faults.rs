//! What happens to leases when the server closes connections, restarts or dies: they survive what they can, and the
//! lost signal comes in time where they cannot.

use std::time::{Duration, Instant};

use tag_lock::{Error, LockClient, LockGuard};

use crate::support::alone::{Global, server};
use crate::support::{TestDatabase, alone, eventually, times};

/// What these tests begin with: a machine that is late gets more.
const TTL: Duration = Duration::from_secs(3);

async fn acquire(client: &LockClient, name: &str, ttl: Duration) -> LockGuard {
    client.lock(name).ttl(ttl).acquire().await.expect("a lock")
}

#[tokio::test]
async fn leases_survive_that_idle_connections_are_closed() {
    let _alone = alone().await;
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let _short = [
        Global::set("wait_timeout", "1").await,
        Global::set("interactive_timeout", "1").await,
    ];
    // Renewals are further apart than the server lets a connection idle by default now.
    let ttl = Duration::from_secs(6);
    let client = database.client().await;
    let guard = acquire(&client, "idle", ttl).await;
    let (start, first) = times(&mut connection, "idle").await;
    let started = Instant::now();
    loop {
        let (now, end) = times(&mut connection, "idle").await;
        assert!(
            guard.is_held() && end > now,
            "lost after {:?}",
            started.elapsed()
        );
        if end > first + (first - start) * 3 / 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(client.counter("idle").add(1).await.expect("a value"), 1);
    guard.release().await.expect("it was held");
    database.remove().await;
}

#[tokio::test]
async fn a_lease_survives_a_restart_of_the_server() {
    let _alone = alone().await;
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let others = database.client().await;
    let guard = acquire(&client, "restart", Duration::from_secs(300)).await;
    let token = guard.fencing_token();
    server("stop").await;
    server("start").await;
    // The first requests may meet a server that is not there yet, or connections that have died.
    eventually("the lease is extended", || async {
        match guard.extend(Duration::from_secs(300)).await {
            Ok(()) => true,
            Err(Error::LockLost { .. }) => panic!("the lease did not survive"),
            Err(_) => false,
        }
    })
    .await;
    assert!(guard.is_held());
    let refused = others
        .lock("restart")
        .try_acquire()
        .await
        .expect("an answer");
    assert!(refused.is_none(), "somebody else got it");
    guard.release().await.expect("it was held");
    let next = others
        .lock("restart")
        .try_acquire()
        .await
        .expect("an answer");
    let next = next.expect("it is free");
    assert!(next.fencing_token() > token);
    next.release().await.expect("it was held");
    database.remove().await;
}

#[tokio::test]
async fn the_signal_fires_in_time_when_the_server_is_killed() {
    let _alone = alone().await;
    let database = TestDatabase::new().await;
    let client = database.client().await;
    // The next one may stand still for seconds, and is held on.
    let long = TTL * 3;
    let guard = acquire(&client, "killed", TTL).await;
    let fixed = client
        .lock("fixed")
        .ttl(TTL)
        .auto_renew(false)
        .acquire()
        .await
        .expect("a lock");
    server("kill").await;
    // Nobody but the local clock can tell.
    guard.lost().await;
    fixed.lost().await;
    assert!(!guard.is_held() && !fixed.is_held());
    let token = guard.fencing_token();
    server("start").await;
    let next = acquire(&database.client().await, "killed", long).await;
    assert!(next.fencing_token() > token);
    let released = guard.release().await;
    assert!(
        matches!(released, Err(Error::LockLost { .. })),
        "{released:?}"
    );
    assert!(next.is_held());
    next.release().await.expect("it was held");
    database.remove().await;
}
