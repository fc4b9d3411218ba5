//! `LockClient::purgeable` counts what `purge` then takes, of each kind of row.

use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use tag_lock::{Error, LockClient, Purged, RunOnce};

use super::{HOUR, age, leave};
use crate::support::{TestDatabase, number, run};

struct Counting {
    database: TestDatabase,
    client: LockClient,
    connection: MySqlConnection,
}

impl Counting {
    async fn new() -> Self {
        let database = TestDatabase::new().await;
        Self {
            client: database.client().await,
            connection: database.connection().await,
            database,
        }
    }

    /// Makes all rows old, counts what may go, and has a purge take it.
    async fn takes(&mut self, rows: u64) {
        let young = self.client.purgeable(HOUR).await.expect("counts");
        assert_eq!(young, Purged::default(), "all were just used");
        age(&mut self.connection, "1").await;
        self.counted_then_taken(rows, 0).await;
    }

    /// Counts twice, since counting takes nothing.
    async fn counted_then_taken(&mut self, rows: u64, lanes: u64) {
        for _ in 0..2 {
            let counted = self.client.purgeable(HOUR).await.expect("counts");
            assert_eq!((counted.rows, counted.lanes), (rows, lanes));
        }
        let purged = self.client.purge(HOUR).await.expect("purges");
        assert_eq!((purged.rows, purged.lanes), (rows, lanes));
        let left = self.client.purgeable(HOUR).await.expect("counts");
        assert_eq!(left, Purged::default());
    }
}

/// Makes rows look as if their leases, or windows, had ended just now: a short lease may end before its grant has arrived.
async fn end(connection: &mut MySqlConnection, condition: &str) {
    let sql = format!("UPDATE t_tag_lock SET deadline=UTC_TIMESTAMP(6) WHERE {condition}");
    run(connection, &sql).await;
}

#[tokio::test]
async fn locks() {
    let mut all = Counting::new().await;
    let client = all.client.clone();
    leave(&client, "released").await;
    let dead = client.lock("dead").ttl(HOUR).auto_renew(false);
    std::mem::forget(dead.acquire().await.expect("acquires"));
    end(&mut all.connection, "kind=1 AND lock_name='dead'").await;
    let held = client.lock("held").ttl(HOUR).acquire().await;
    let held = held.expect("acquires");
    let kept = client.lock("kept").hold_at_least(HOUR).acquire().await;
    kept.expect("acquires").release().await.expect("releases");
    all.takes(2).await;
    held.release().await.expect("still held");
    all.database.remove().await;
}

#[tokio::test]
async fn counters() {
    let mut all = Counting::new().await;
    let client = all.client.clone();
    for name in ["kept", "zero", "deleted"] {
        client.counter(name).set(0).await.expect("sets");
    }
    client.counter("kept").add(3).await.expect("adds");
    let deleted = client.counter("deleted").delete().await;
    assert_eq!(deleted.expect("deletes"), Some(0));
    for name in ["over", "open"] {
        let windowed = client.counter(name).window(HOUR);
        windowed.add(1).await.expect("adds");
    }
    end(&mut all.connection, "kind=2 AND lock_name='over'").await;
    all.takes(2).await;
    all.database.remove().await;
}

#[tokio::test]
async fn ids_of_operations() {
    let mut all = Counting::new().await;
    let counter = all.client.counter("c");
    for id in ["remembered", "forgotten"] {
        counter.add_once(id, 1).await.expect("adds");
    }
    end(&mut all.connection, "kind=3 AND lock_name='forgotten'").await;
    all.takes(1).await;
    all.database.remove().await;
}

#[tokio::test]
async fn slots_of_jobs() {
    let mut all = Counting::new().await;
    let client = all.client.clone();
    let slot = |name: &str| client.job("job").slot(name).ttl(HOUR);
    let done = slot("done").run_once(async |_| ()).await;
    assert_eq!(done.expect("runs"), RunOnce::Done(()));
    let failed = slot("failed").run_once(async |_| Err::<(), _>(Error::Closed));
    assert!(failed.await.is_err());
    let running = slot("running").run_once(async |_| all.takes(2).await);
    assert_eq!(running.await.expect("still held"), RunOnce::Done(()));
    all.database.remove().await;
}

#[tokio::test]
async fn permits() {
    let mut all = Counting::new().await;
    let api = all.client.semaphore("api", 2).ttl(HOUR);
    let kept = api.acquire().await.expect("granted");
    let freed = api.acquire().await.expect("granted");
    freed.release().await.expect("releases");
    all.takes(1).await;
    kept.release().await.expect("still held");
    all.database.remove().await;
}

/// The door of a lock goes when all shared holds have ended; a hold that has ended goes while others run.
#[tokio::test]
async fn shared_holds_and_their_doors() {
    let mut all = Counting::new().await;
    let clients = [all.client.clone(), all.database.client().await];
    let shared = |client: &LockClient, name: &str| client.lock(name).ttl(HOUR).shared();
    let released = shared(&clients[0], "released").acquire().await;
    released.expect("shares").release().await.expect("releases");
    let dead = clients[0].lock("dead").ttl(HOUR).auto_renew(false);
    std::mem::forget(dead.shared().acquire().await.expect("shares"));
    end(&mut all.connection, "kind=6 AND lock_name='dead'").await;
    let held = shared(&clients[0], "held").acquire().await.expect("shares");
    let both = shared(&clients[0], "both").acquire().await.expect("shares");
    let ended = shared(&clients[1], "both").acquire().await;
    ended.expect("shares").release().await.expect("releases");
    // Two doors with a hold each, and the one that has ended beside another.
    all.takes(5).await;
    held.release().await.expect("still held");
    both.release().await.expect("still held");
    all.database.remove().await;
}

/// Lanes go after a day, whatever age the purge has.
#[tokio::test]
async fn lanes_of_clients_that_are_gone() {
    let mut all = Counting::new().await;
    for number in 0..10 {
        let counter = format!("counter {number}");
        all.client.counter(&counter).add(1).await.expect("adds");
    }
    let count = "SELECT COUNT(*) FROM t_tag_lock_lane";
    let lanes = number(&mut all.connection, count).await;
    assert!(lanes >= 2);
    let old = "UPDATE t_tag_lock_lane SET modify_time=UTC_TIMESTAMP(6) - INTERVAL";
    run(&mut all.connection, &format!("{old} 23 HOUR")).await;
    all.counted_then_taken(0, 0).await;
    run(&mut all.connection, &format!("{old} 25 HOUR")).await;
    all.counted_then_taken(0, lanes.unsigned_abs()).await;
    all.database.remove().await;
}

/// More than one query looks at.
#[tokio::test]
async fn many_rows() {
    let mut all = Counting::new().await;
    let digits = "(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 \
        UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)";
    let sql = format!(
        "INSERT INTO t_tag_lock (lock_name,kind) SELECT CONCAT('name ',a.n,b.n,c.n,d.n),1 \
         FROM {digits} a, {digits} b, {digits} c, {digits} d WHERE a.n<5"
    );
    run(&mut all.connection, &sql).await;
    age(&mut all.connection, "1").await;
    leave(&all.client, "name 0000").await;
    all.counted_then_taken(4_999, 0).await;
    all.database.remove().await;
}

#[tokio::test]
async fn an_age_that_no_purge_may_have_is_refused() {
    let all = Counting::new().await;
    for wrong in [Duration::ZERO, HOUR - Duration::from_secs(1), Duration::MAX] {
        let refused = all.client.purgeable(wrong).await;
        assert!(
            matches!(refused, Err(Error::InvalidOption { .. })),
            "{refused:?}"
        );
    }
    all.database.remove().await;
}
