//! `LockClient::purge`: rows go that nobody needs, beside a full load, and tokens still rise; what goes is counted beforehand.
//!
//! `TAG_LOCK_TEST_ROUNDS` sets how many rows are purged beside the load.

mod counting;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::proxy::{Command, Fault, Gate, Hold, Proxy, once};
use crate::support::{
    TestDatabase, connected, no_deadlocks_since, number, patient, run, server_deadlocks,
};
use rand::RngExt;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};
use tag_lock::{Error, LockClient, LockState};

const HOUR: Duration = Duration::from_secs(3_600);

/// Makes rows look as if nothing had changed them for two hours.
async fn age(connection: &mut MySqlConnection, condition: &str) {
    let sql = format!(
        "UPDATE t_tag_lock SET modify_time = modify_time - INTERVAL 2 HOUR WHERE kind>0 AND {condition}"
    );
    run(connection, &sql).await;
}

/// The rows there are, except stripes, as `name/kind`.
async fn rows(connection: &mut MySqlConnection) -> Vec<String> {
    let sql =
        "SELECT CONCAT(lock_name,'/',kind) FROM t_tag_lock WHERE kind>0 ORDER BY lock_name,kind";
    let rows = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .fetch_all(connection)
        .await;
    let rows = rows.expect("rows");
    rows.iter()
        .map(|row| row.try_get_unchecked(0).expect("text"))
        .collect()
}

async fn leave(client: &LockClient, name: &str) -> u64 {
    let guard = client.lock(name).acquire().await.expect("acquires");
    let token = guard.fencing_token();
    guard.release().await.expect("releases");
    token
}

#[tokio::test]
async fn what_nobody_needs_goes_and_the_rest_stays() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    let short = Duration::from_millis(50);
    leave(&client, "released").await;
    leave(&client, "Released").await;
    let expired = client
        .lock("expired")
        .ttl(short)
        .auto_renew(false)
        .acquire()
        .await;
    let expired = expired.expect("acquires");
    expired.lost().await;
    let held = client.lock("held").acquire().await.expect("acquires");
    let kept = client
        .lock("kept")
        .hold_at_least(HOUR)
        .acquire()
        .await
        .expect("acquires");
    kept.release().await.expect("releases");
    client.counter("released").add(3).await.expect("adds");
    client.counter("zero").add(0).await.expect("adds");
    let windowed = client.counter("window").window(short);
    windowed.add(1).await.expect("adds");
    // It ends.
    tokio::time::sleep(2 * short).await;
    client
        .counter("c")
        .add_once("remembered", 1)
        .await
        .expect("adds");
    client
        .counter("c")
        .add_once("forgotten", 1)
        .await
        .expect("adds");
    run(
        &mut connection,
        "UPDATE t_tag_lock SET deadline = UTC_TIMESTAMP(6) WHERE lock_name='forgotten'",
    )
    .await;

    let none = client.purge(HOUR).await.expect("purges");
    assert_eq!(none.rows, 0, "all were just used");
    age(&mut connection, "1").await;
    // The lease ended only by its time, within the ttl of its keeper's last look.
    drop(expired);
    leave(&client, "recent").await;
    let info = client
        .inspect("held")
        .await
        .expect("inspects")
        .expect("a row");
    assert_eq!(info.state, LockState::Held);
    let old = client.purge(3 * HOUR).await.expect("purges");
    assert_eq!(old.rows, 0, "younger than three hours");
    let purged = client.purge(HOUR).await.expect("purges");
    let left = rows(&mut connection).await;
    // The expired lease may have been released by its guard meanwhile: then it was used just now.
    let expired_stays = usize::from(left.contains(&"expired/1".to_owned()));
    assert_eq!(
        purged.rows,
        5 - u64::try_from(expired_stays).expect("small")
    );
    let expected = [
        "c/2",
        "held/1",
        "kept/1",
        "recent/1",
        "released/2",
        "remembered/3",
        "zero/2",
    ];
    let left: Vec<&str> = left
        .iter()
        .map(String::as_str)
        .filter(|row| *row != "expired/1")
        .collect();
    assert_eq!(left, expected);
    let stripes = "SELECT COUNT(*) FROM t_tag_lock WHERE kind=0";
    assert_eq!(number(&mut connection, stripes).await, 100);

    assert_eq!(client.counter("released").get().await.expect("reads"), 3);
    assert_eq!(
        client
            .counter("c")
            .add_once("remembered", 1)
            .await
            .expect("repeats"),
        1
    );
    assert_eq!(
        client
            .counter("c")
            .add_once("forgotten", 1)
            .await
            .expect("adds"),
        3
    );
    held.release().await.expect("still held");
    for wrong in [Duration::ZERO, HOUR - Duration::from_secs(1), Duration::MAX] {
        let refused = client.purge(wrong).await;
        assert!(
            matches!(refused, Err(Error::InvalidOption { .. })),
            "{refused:?}"
        );
    }
}

/// Tokens rise over a purge also if the server's clock was ahead when the last ones were given out.
#[tokio::test]
async fn the_next_token_is_higher_than_the_last() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    let mut last = HashMap::new();
    for number in 0..150 {
        let name = format!("name {number}");
        leave(&client, &name).await;
        last.insert(name, 0_u64);
    }
    // As if the clock had been ahead by a time of its own for each: up to months.
    run(
        &mut connection,
        "UPDATE t_tag_lock SET fence = fence + CRC32(lock_name) * 1000 WHERE kind=1",
    )
    .await;
    for (name, token) in &mut last {
        *token = leave(&client, name).await;
    }
    age(&mut connection, "1").await;
    assert_eq!(client.purge(HOUR).await.expect("purges").rows, 150);
    assert!(rows(&mut connection).await.is_empty());
    let other = database.client().await;
    for (number, (name, token)) in last.iter_mut().enumerate() {
        let next = if number % 2 == 0 {
            leave(&other, name).await
        } else {
            run(&mut connection, "START TRANSACTION").await;
            let lock = other.lock_in(&mut connection, name).await.expect("locks");
            run(&mut connection, "COMMIT").await;
            lock.fencing_token
        };
        assert!(next > *token, "{name}: {next} after {token}");
        *token = next;
    }
    // And once more: a floor stays where it is when rows below it go.
    age(&mut connection, "1").await;
    assert_eq!(client.purge(HOUR).await.expect("purges").rows, 150);
    for (name, token) in &last {
        assert!(leave(&client, name).await > *token);
    }
}

/// A row that is used between the purge's look and its step stays, as does one that is locked.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_used_at_the_last_moment_stays() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    // Its packet is held while others are at work, for as long as that takes.
    let purger = connected(patient(&proxy.url(&database.url))).await;
    for name in ["acquired", "used again", "locked", "unused"] {
        leave(&client, name).await;
    }
    let counter = client.counter("c");
    counter.add_once("id", 1).await.expect("adds");
    run(
        &mut connection,
        "UPDATE t_tag_lock SET deadline = UTC_TIMESTAMP(6) WHERE kind=3",
    )
    .await;
    age(&mut connection, "1").await;
    let gate = Gate::new();
    let step = |command: &Command| command.contains_word("DELETE");
    proxy.on_command(once(step, Fault::HoldCommand(Hold::Until(gate.clone()))));
    let purge = tokio::spawn(async move { purger.purge(HOUR).await });
    gate.reached().await;
    let guard = client.lock("acquired").acquire().await.expect("acquires");
    leave(&client, "used again").await;
    // Old again, but not what the purge has seen.
    age(&mut connection, "lock_name IN ('used again', 'acquired')").await;
    assert_eq!(counter.add_once("id", 1).await.expect("adds"), 2);
    let mut transaction = database.connection().await;
    run(&mut transaction, "START TRANSACTION").await;
    let locked = client
        .lock_in(&mut transaction, "locked")
        .await
        .expect("locks");
    gate.open();
    let purged = purge
        .await
        .expect("a task")
        .expect("does not wait for the row");
    assert_eq!(purged.rows, 1, "the unused one");
    run(&mut transaction, "COMMIT").await;
    let left = rows(&mut connection).await;
    assert_eq!(
        left,
        ["acquired/1", "c/2", "id/3", "locked/1", "used again/1"]
    );
    guard.release().await.expect("still held");
    assert!(leave(&client, "locked").await > locked.fencing_token);
    assert_eq!(counter.add_once("id", 1).await.expect("repeats"), 2);
}

/// Lanes' rows go after a day, never before, and a client whose row was taken still numbers its batches.
#[tokio::test]
async fn old_lanes_go() {
    let database = TestDatabase::new().await;
    let (client, other) = (database.client().await, database.client().await);
    let mut connection = database.connection().await;
    let lanes = "SELECT COUNT(*) FROM t_tag_lock_lane";
    let old = "UPDATE t_tag_lock_lane SET modify_time = UTC_TIMESTAMP(6) - INTERVAL";
    // One of each stripe's lane.
    for number in 0..10 {
        let counter = format!("counter {number}");
        assert_eq!(client.counter(&counter).add(1).await.expect("adds"), 1);
    }
    let before = number(&mut connection, lanes).await;
    assert!(before >= 2);
    run(&mut connection, &format!("{old} 23 HOUR")).await;
    assert_eq!(other.purge(HOUR).await.expect("purges").lanes, 0);
    run(&mut connection, &format!("{old} 47 HOUR")).await;
    assert_eq!(other.purge(48 * HOUR).await.expect("purges").lanes, 0);
    let purged = other.purge(HOUR).await.expect("purges");
    assert_eq!(purged.lanes, u64::try_from(before).expect("small"));
    assert_eq!(number(&mut connection, lanes).await, 0);
    // The lane's row is there again, numbered, with its next batch.
    for number in 0..10 {
        let counter = format!("counter {number}");
        assert_eq!(client.counter(&counter).add(1).await.expect("adds"), 2);
    }
    for number in 0..10 {
        let counter = format!("counter {number}");
        assert_eq!(client.counter(&counter).add(1).await.expect("adds"), 3);
    }
    leave(&client, "a").await;
    let numbered = "SELECT COUNT(*) FROM t_tag_lock_lane WHERE seq>0";
    assert!(
        number(&mut connection, numbered).await >= 2,
        "batches are numbered"
    );
}

/// What the load knows: the last token of each name, and what the counters must have.
#[derive(Default)]
struct Known {
    tokens: Mutex<HashMap<String, u64>>,
    added: AtomicI64,
    grants: AtomicI64,
    stop: AtomicBool,
}

const NAMES: usize = 25;

async fn load(client: LockClient, known: Arc<Known>, task: usize) {
    let mut time = 0;
    while !known.stop.load(Ordering::Relaxed) {
        time += 1;
        match task % 4 {
            0 | 1 => {
                let name = format!("lock {}", rand::rng().random_range(0..NAMES));
                let guard = client.lock(&name).acquire().await.expect("acquires");
                let token = guard.fencing_token();
                let before = known.tokens.lock().unwrap().insert(name.clone(), token);
                assert!(
                    before.unwrap_or_default() < token,
                    "{name}: {token} after {before:?}"
                );
                known.grants.fetch_add(1, Ordering::Relaxed);
                guard.release().await.expect("releases");
            }
            2 => {
                client.counter("sum").add(1).await.expect("adds");
                known.added.fetch_add(1, Ordering::Relaxed);
            }
            _ => {
                let id = format!("id {task} {time}");
                let first = client.counter("sum").add_once(&id, 1).await.expect("adds");
                known.added.fetch_add(1, Ordering::Relaxed);
                let again = client
                    .counter("sum")
                    .add_once(&id, 1)
                    .await
                    .expect("repeats");
                assert_eq!(first, again);
            }
        }
    }
}

/// Ages rows one by one, as only time would.
async fn grow_old(mut connection: MySqlConnection, known: Arc<Known>) {
    run(
        &mut connection,
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )
    .await;
    let others = [
        "lock_name='held' AND kind=1 AND slot=0",
        "lock_name='kept' AND kind=1 AND slot=0",
        "lock_name='sum' AND kind=2 AND slot=0",
        "lock_name='once' AND kind=3 AND slot=0",
    ];
    for other in others.iter().cycle() {
        if known.stop.load(Ordering::Relaxed) {
            break;
        }
        age(&mut connection, other).await;
        for _ in 0..8 {
            let name = rand::rng().random_range(0..NAMES);
            let one = format!("lock_name='lock {name}' AND kind=1 AND slot=0");
            age(&mut connection, &one).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_runs_beside_a_full_load() {
    let wanted = std::env::var("TAG_LOCK_TEST_ROUNDS");
    let wanted = wanted.map_or(60, |rounds| rounds.parse().expect("a number"));
    let database = TestDatabase::new().await;
    let clients = [database.client().await, database.client().await];
    let deadlocks = server_deadlocks().await;
    let known = Arc::new(Known::default());
    let held = clients[0].lock("held").acquire().await.expect("acquires");
    let kept = clients[0]
        .lock("kept")
        .hold_at_least(HOUR)
        .acquire()
        .await
        .expect("acquires");
    kept.release().await.expect("releases");
    let once = clients[0]
        .counter("other")
        .add_once("once", 7)
        .await
        .expect("adds");
    let mut tasks: Vec<_> = (0..16)
        .map(|task| tokio::spawn(load(clients[task % 2].clone(), Arc::clone(&known), task)))
        .collect();
    for _ in 0..2 {
        tasks.push(tokio::spawn(grow_old(
            database.connection().await,
            Arc::clone(&known),
        )));
    }
    let purger = database.client().await;
    let mut rows = 0;
    while rows < wanted {
        rows += purger.purge(HOUR).await.expect("purges").rows;
    }
    known.stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("a task");
    }
    println!(
        "{rows} rows purged beside {} grants",
        known.grants.load(Ordering::Relaxed)
    );
    let sum = clients[1].counter("sum").get().await.expect("reads");
    assert_eq!(
        sum,
        known.added.load(Ordering::Relaxed),
        "no addition was lost or doubled"
    );
    assert_eq!(
        clients[1]
            .counter("other")
            .add_once("once", 7)
            .await
            .expect("repeats"),
        once
    );
    let info = clients[1]
        .inspect("kept")
        .await
        .expect("inspects")
        .expect("a row");
    assert_eq!(info.state, LockState::Kept);
    held.release().await.expect("still held");
    no_deadlocks_since(deadlocks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_are_built_so_purge_by_themselves() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    for number in 0..250 {
        leave(&client, &format!("old {number}")).await;
    }
    let kept = client.lock("kept").acquire().await.expect("acquires");
    client.counter("kept").add(7).await.expect("adds");
    age(&mut connection, "1").await;
    leave(&client, "recent").await;
    let mut purgers = Vec::new();
    for _ in 0..3 {
        purgers.push(connected(patient(&database.url).purge_after(HOUR)).await);
    }
    let old = "SELECT COUNT(*) FROM t_tag_lock WHERE kind=1 AND lock_name LIKE 'old %'";
    while number(&mut connection, old).await > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // One had the turn, and nobody has another one for a while.
    let turn = client.inspect("tag_lock: purge").await.expect("inspects");
    assert_ne!(turn.expect("a row").state, LockState::Free);
    let left = rows(&mut connection).await;
    assert_eq!(left, ["kept/1", "kept/2", "recent/1", "tag_lock: purge/1"]);
    kept.release().await.expect("still held");
    for purger in purgers {
        purger.close(tag_lock::AtClose::Release).await;
    }
    for wrong in [Duration::ZERO, HOUR - Duration::from_secs(1), Duration::MAX] {
        let refused = patient(&database.url).purge_after(wrong).connect().await;
        assert!(matches!(refused, Err(Error::InvalidOption { .. })));
    }
    database.remove().await;
}

#[tokio::test]
async fn permits_that_are_free_go() {
    let database = TestDatabase::new().await;
    let (client, mut connection) = (database.client().await, database.connection().await);
    let api = client.semaphore("api", 2).ttl(HOUR);
    let kept = api.acquire().await.expect("granted");
    let freed = api.acquire().await.expect("granted");
    let token = freed.fencing_token();
    freed.release().await.expect("releases");
    age(&mut connection, "kind=5").await;
    assert_eq!(client.purge(HOUR).await.expect("purges").rows, 1);
    let left = format!("api#{}/5", kept.slot());
    assert_eq!(rows(&mut connection).await, [left]);
    let again = api.acquire().await.expect("granted");
    assert!(again.fencing_token() > token);
    database.remove().await;
}
