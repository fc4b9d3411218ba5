//! The levels of a re-entrant lock: each has a lease of its own, whoever else of the same owner renews or enters.

use std::time::{Duration, Instant};

use tag_lock::{AtClose, LockClient, LockGuard};

use crate::support::lateness::with_ttl;
use crate::support::{TestDatabase, eventually};

/// What these tests begin with: a machine that is late gets more.
const TTL: Duration = Duration::from_secs(2);

async fn enter(client: &LockClient, ttl: Duration) -> LockGuard {
    let lock = client.lock("job").owner("order 7").ttl(ttl);
    lock.acquire().await.unwrap()
}

async fn depth(client: &LockClient) -> u64 {
    client.inspect("job").await.unwrap().unwrap().depth
}

/// Its process goes away: nobody renews it, nobody releases it.
async fn dies(client: LockClient, level: LockGuard) {
    client.close(AtClose::Keep).await;
    std::mem::forget(level);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_level_whose_process_died_ends_while_another_is_renewed() {
    with_ttl(TTL, dies_beside_a_renewal).await;
}

async fn dies_beside_a_renewal(ttl: Duration) {
    let database = TestDatabase::new().await;
    let (a, b, other) = (
        database.client().await,
        database.client().await,
        database.client().await,
    );
    let outer = enter(&a, ttl).await;
    let inner = enter(&b, ttl).await;
    assert_eq!(depth(&other).await, 2);
    dies(b, inner).await;
    eventually("the level is counted no more", || async {
        depth(&other).await == 1
    })
    .await;
    assert!(outer.is_held());
    outer.release().await.unwrap();
    let free = other.lock("job").try_acquire().await.unwrap();
    free.expect("nobody holds it").release().await.unwrap();
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_level_whose_process_died_ends_while_its_owner_enters_and_leaves() {
    with_ttl(TTL, dies_beside_its_owner).await;
}

async fn dies_beside_its_owner(ttl: Duration) {
    let database = TestDatabase::new().await;
    let (a, b, other) = (
        database.client().await,
        database.client().await,
        database.client().await,
    );
    let outer = enter(&a, ttl).await;
    let inner = enter(&b, ttl).await;
    dies(b, inner).await;
    outer.release().await.unwrap();
    let waiting = tokio::spawn(async move {
        let guard = other.lock("job").acquire().await.unwrap();
        guard.release().await.unwrap();
    });
    let start = Instant::now();
    let mut entered = 0;
    while !waiting.is_finished() {
        assert!(
            start.elapsed() < 30 * ttl,
            "the owner kept it, entering {entered} times"
        );
        let lock = a.lock("job").owner("order 7").ttl(ttl);
        if let Some(guard) = lock.try_acquire().await.unwrap() {
            entered += 1;
            guard.release().await.unwrap();
        }
        tokio::time::sleep(ttl / 3).await;
    }
    println!("the owner entered {entered} times in {:?}", start.elapsed());
    waiting.await.unwrap();
    database.remove().await;
}

/// Levels come and go, some die: the lock is the owner's as long as one of them runs, and free when the last has been released.
#[tokio::test(flavor = "multi_thread")]
async fn levels_that_run_keep_the_lock_whichever_others_die() {
    with_ttl(TTL, come_and_go).await;
}

async fn come_and_go(ttl: Duration) {
    const ROUNDS: usize = 12;
    let database = TestDatabase::new().await;
    let other = database.client().await;
    let ttls = [ttl / 2, ttl, 2 * ttl];
    let mut levels = Vec::new();
    for (number, each) in ttls.iter().cycle().take(ROUNDS).enumerate() {
        let client = database.client().await;
        let lock = client.lock("job").owner("order 7").ttl(*each);
        levels.push((client.clone(), lock.acquire().await.unwrap()));
        tokio::time::sleep(ttl / 4).await;
        // Every third dies, and every third is released.
        match number % 3 {
            0 => {
                let (client, level) = levels.remove(0);
                dies(client, level).await;
            }
            1 if levels.len() > 1 => levels.remove(0).1.release().await.unwrap(),
            _ => {}
        }
        // A machine that stands still for a second loses leases.
        levels.retain(|(_, level)| level.is_held());
        let running = levels.len();
        if running > 0 {
            let taken = other.lock("job").try_acquire().await.unwrap();
            assert!(taken.is_none(), "{running} levels run");
        }
    }
    let running = u64::try_from(levels.len()).unwrap();
    assert!(running > 1, "{running}");
    eventually("those that died are counted no more", || async {
        depth(&other).await == running
    })
    .await;
    for (_, level) in levels {
        assert!(other.lock("job").try_acquire().await.unwrap().is_none());
        level.release().await.unwrap();
    }
    let free = other.lock("job").try_acquire().await.unwrap();
    free.expect("nobody holds it").release().await.unwrap();
    database.remove().await;
}
