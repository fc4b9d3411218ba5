//! Faults that were found once, each with the test that shows it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use sqlx::Connection;
use support::proxy::{Command, Fault, FaultKind, Proxy, Upstream};
use support::{TestDatabase, connected, is_batch, patient, run};
use tag_lock::{AtClose, Error, LockClient};
use tokio::task::JoinSet;

/// Far longer than anything here takes, far shorter than for ever.
const HANG: Duration = Duration::from_secs(60);

/// A lane whose row is gone must not run a batch without a number, and then again.
#[tokio::test]
async fn a_lane_without_its_row_doubles_nothing() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let counter = client.counter("a");
    let mut connection = database.connection().await;
    for value in 1..=5 {
        assert_eq!(counter.add(1).await.unwrap(), value);
        run(&mut connection, "DELETE FROM t_tag_lock_lane").await;
        client
            .lock("a")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        run(&mut connection, "DELETE FROM t_tag_lock_lane").await;
    }
    assert_eq!(counter.get().await.unwrap(), 5);
    database.remove().await;
}

/// An id that is forgotten at once would be run again and again.
#[tokio::test]
async fn a_retention_that_is_too_short_is_refused() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let counter = client.counter("a").retention(Duration::from_micros(1));
    let result = counter.add_once("id", 1).await;
    assert!(
        matches!(result, Err(Error::InvalidOption { .. })),
        "{result:?}"
    );
    assert_eq!(counter.get().await.unwrap(), 0);
    database.remove().await;
}

/// One level of an owner's must not take off another one.
#[tokio::test]
async fn an_owner_cannot_release_two_levels_at_once() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let outer = client.lock("l").owner("o").acquire().await.unwrap();
    let inner = client.lock("l").owner("o").acquire().await.unwrap();
    let mut connection = database.connection().await;
    let mut transaction = connection.begin().await.unwrap();
    let refused = inner.release_in(&mut transaction).await;
    assert!(
        matches!(refused, Err(Error::InvalidOption { .. })),
        "{refused:?}"
    );
    transaction.commit().await.unwrap();
    inner.release().await.unwrap();
    assert!(outer.is_held());
    assert!(client.lock("l").try_acquire().await.unwrap().is_none());
    outer.release().await.unwrap();
    assert!(client.lock("l").try_acquire().await.unwrap().is_some());
    database.remove().await;
}

/// A row that is locked for a moment must not hide from an owner that it may enter.
#[tokio::test]
async fn an_owner_enters_after_its_row_was_locked() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let _outer = client.lock("l").owner("o").acquire().await.unwrap();
    let mut connection = database.connection().await;
    run(
        &mut connection,
        "BEGIN; SELECT * FROM t_tag_lock WHERE lock_name='l' AND kind=1 AND slot=0 FOR UPDATE",
    )
    .await;
    let entering = tokio::spawn({
        let client = client.clone();
        async move { client.lock("l").owner("o").acquire().await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    run(&mut connection, "COMMIT").await;
    let inner = tokio::time::timeout(HANG, entering).await.expect("enters");
    inner.unwrap().unwrap().release().await.unwrap();
    database.remove().await;
}

/// Who does not want to wait gets an answer also while this process gives way to another one.
#[tokio::test]
async fn try_acquire_answers_while_another_process_goes_first() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.client().await, database.client().await);
    for round in 0..10 {
        let name = format!("l{round}");
        let guard = here.lock(&name).acquire().await.unwrap();
        let waiting = tokio::spawn({
            let (there, name) = (there.clone(), name.clone());
            async move { there.lock(&name).acquire().await.unwrap() }
        });
        tokio::time::sleep(Duration::from_millis(60)).await;
        drop(guard);
        let lock = here.lock(&name);
        let answer = tokio::time::timeout(HANG, lock.try_acquire()).await;
        drop(answer.expect("an answer").unwrap());
        drop(
            tokio::time::timeout(HANG, waiting)
                .await
                .expect("its turn")
                .unwrap(),
        );
    }
    database.remove().await;
}

/// The arithmetic of merged bounded additions must not leave its type.
#[tokio::test]
async fn giant_bounded_steps_merge() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    client.counter("a").set(i64::MIN).await.unwrap();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.counter("a").add_within(1 << 62, ..).await })
        })
        .collect();
    let mut values = Vec::new();
    for task in tasks {
        values.push(task.await.unwrap().unwrap());
    }
    values.sort_unstable();
    assert_eq!(values, [None, Some(-(1 << 62)), Some(0), Some(1 << 62)],);
    database.remove().await;
}

/// A client whose runtime has ended answers, instead of letting its callers wait for ever.
#[test]
fn a_client_that_outlives_its_runtime_is_closed() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(async {
        let database = TestDatabase::new().await;
        database.client().await
    });
    drop(runtime);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let counter = client.counter("a");
        let added = tokio::time::timeout(HANG, counter.add(1)).await;
        assert!(matches!(added, Ok(Err(Error::Closed))), "{added:?}");
        let read = tokio::time::timeout(HANG, counter.get()).await;
        assert!(matches!(read, Ok(Err(Error::Closed))), "{read:?}");
        let lock = tokio::time::timeout(HANG, client.lock("a").acquire()).await;
        assert!(matches!(lock, Ok(Err(Error::Closed))), "{lock:?}");
    });
}

/// A grant that is on its way when the client is closed is released, not left to its ttl.
#[tokio::test]
async fn close_releases_what_is_on_its_way() {
    let database = TestDatabase::new().await;
    let other = database.client().await;
    for round in 0..20 {
        let client = database.client().await;
        let name = format!("c{round}");
        let acquiring = tokio::spawn({
            let (client, name) = (client.clone(), name.clone());
            async move { client.lock(&name).acquire().await.map(drop) }
        });
        tokio::time::sleep(Duration::from_micros(500 + 300 * round)).await;
        client.close(AtClose::Release).await;
        let _ = acquiring.await.unwrap();
        assert!(
            other.lock(&name).try_acquire().await.unwrap().is_some(),
            "round {round}: still taken"
        );
    }
    database.remove().await;
}

/// Names that begin with a control character are listed too.
#[tokio::test]
async fn every_name_is_listed() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut guards = Vec::new();
    for name in ["\0", "\0a", "\t", "\n", "a", "é", "🎁"] {
        guards.push(client.lock(name).acquire().await.unwrap());
    }
    let mut names = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = client.list(after.as_deref(), 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.name.clone());
        names.extend(page.into_iter().map(|info| info.name));
    }
    names.sort_unstable();
    assert_eq!(names, ["\0", "\0a", "\t", "\n", "a", "é", "🎁"]);
    database.remove().await;
}

/// A row that was held for a moment need not wait for all those that are held for long.
#[tokio::test]
async fn a_row_that_is_free_again_goes_before_those_that_are_held() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut holders = Vec::new();
    let mut stuck = JoinSet::new();
    for number in 0..40 {
        let name = format!("c{number}");
        client.counter(&name).add(1).await.unwrap();
        holders.push(hold(&database, &name).await);
        let client = client.clone();
        stuck.spawn(async move { client.counter(&name).add(1).await.unwrap() });
    }
    // One after the other they would take twenty seconds, at a second each for two connections.
    free_again(&database, &client, "x").await;
    for holder in &mut holders {
        run(holder, "COMMIT").await;
    }
    while let Some(value) = stuck.join_next().await {
        assert_eq!(value.unwrap(), 2);
    }
    database.remove().await;
}

/// Requests for one row that is held take one place among those that wait, however many they are.
#[tokio::test]
async fn one_row_that_is_held_keeps_no_other_waiting() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    client.counter("x").add(1).await.unwrap();
    let mut holder = hold(&database, "x").await;
    let mut stuck = JoinSet::new();
    for _ in 0..60 {
        let client = client.clone();
        stuck.spawn(async move { client.counter("x").add(1).await.unwrap() });
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    free_again(&database, &client, "y").await;
    run(&mut holder, "COMMIT").await;
    let mut values = Vec::new();
    while let Some(value) = stuck.join_next().await {
        values.push(value.unwrap());
    }
    values.sort_unstable();
    assert_eq!(values, (2..=61).collect::<Vec<i64>>());
    database.remove().await;
}

/// Holds a new counter for a moment in which an addition comes, which has to be answered soon after.
async fn free_again(database: &TestDatabase, client: &LockClient, name: &'static str) {
    client.counter(name).add(1).await.unwrap();
    let mut holder = hold(database, name).await;
    let adding = tokio::spawn({
        let client = client.clone();
        async move { client.counter(name).add(1).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    run(&mut holder, "COMMIT").await;
    let start = Instant::now();
    assert_eq!(adding.await.unwrap().unwrap(), 2);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
}

/// Holds a counter in a transaction of its own.
async fn hold(database: &TestDatabase, name: &str) -> sqlx::MySqlConnection {
    let mut connection = database.connection().await;
    let row = format!("lock_name='{name}' AND kind=2 AND slot=0");
    let sql = format!("BEGIN; SELECT * FROM t_tag_lock WHERE {row} FOR UPDATE");
    run(&mut connection, &sql).await;
    connection
}

/// A new name on a stripe that somebody holds must not stop those who use other names, renewals among them.
#[tokio::test]
async fn a_new_name_on_a_stuck_stripe_stops_nobody_else() {
    let database = TestDatabase::new().await;
    let client = connected(patient(&database.url).lanes(1)).await;
    let stripe = |name: &str| crc32fast::hash(name.as_bytes()) % 100;
    let fresh = "fresh";
    let ttl = Duration::from_secs(15);
    let mut names: Vec<String> = (0..100).map(|number| format!("lock{number}")).collect();
    let mut same = (0..).map(|number| format!("same{number}"));
    names.push(same.find(|name| stripe(name) == stripe(fresh)).unwrap());
    let mut guards = Vec::new();
    for name in &names {
        guards.push(client.lock(name).ttl(ttl).acquire().await.unwrap());
    }
    let mut names = (0..).map(|number| format!("counter{number}"));
    let counter = names.find(|name| stripe(name) != stripe(fresh)).unwrap();
    client.counter(&counter).add(1).await.unwrap();
    let mut holder = database.connection().await;
    let row = format!("lock_name='center_lock_{:02}' AND kind=0", stripe(fresh));
    let sql = format!("BEGIN; SELECT * FROM t_tag_lock WHERE {row} FOR UPDATE");
    run(&mut holder, &sql).await;
    let adding = tokio::spawn({
        let client = client.clone();
        async move { client.counter(fresh).add(1).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Far less than the request timeout of two minutes.
    for value in 2..=4 {
        let added = tokio::time::timeout(HANG / 2, client.counter(&counter).add(1)).await;
        assert_eq!(added.expect("an answer").unwrap(), value);
    }
    tokio::time::sleep(ttl).await;
    for guard in &guards {
        assert!(guard.is_held(), "{} was not renewed", guard.name());
    }
    run(&mut holder, "COMMIT").await;
    assert_eq!(adding.await.unwrap().unwrap(), 1);
    database.remove().await;
}

/// A client that held the lock once while others waited looks no more at its row than is needed.
#[tokio::test]
async fn a_holder_does_not_look_at_its_own_row() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let here = connected(patient(&proxy.url(&database.url))).await;
    let there = database.client().await;
    let first = here.lock("l").acquire().await.unwrap();
    let waiting = there.lock("l").wait(Duration::from_millis(300)).acquire();
    waiting.await.unwrap_err();
    // This process gives way now, to one that does not come.
    first.release().await.unwrap();
    let held = loop {
        if let Some(guard) = here.lock("l").try_acquire().await.unwrap() {
            break guard;
        }
    };
    let before = proxy.counters().commands;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let commands = proxy.counters().commands - before;
    assert!(
        commands < 50,
        "{commands} commands of a client that does nothing"
    );
    held.release().await.unwrap();
    database.remove().await;
}

/// An addition with an id waits in the server for a counter that is held, instead of asking over and over.
#[tokio::test]
async fn an_addition_with_an_id_waits_for_its_counter() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let client = connected(patient(&proxy.url(&database.url))).await;
    client.counter("c").add(1).await.unwrap();
    let mut holder = hold(&database, "c").await;
    let adding = tokio::spawn({
        let client = client.clone();
        async move { client.counter("c").add_once("id", 1).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = proxy.counters().commands;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let commands = proxy.counters().commands - before;
    assert!(commands < 50, "{commands} commands");
    run(&mut holder, "COMMIT").await;
    assert_eq!(adding.await.unwrap().unwrap(), 2);
    database.remove().await;
}

/// A wish that was met, or that nobody has any more, is not given way to for ever.
#[tokio::test]
async fn a_wish_that_nobody_has_costs_little() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.client().await, database.client().await);
    let first = there.lock("l").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let here = here.clone();
        async move { here.lock("l").acquire().await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    first.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    let mut pauses = 0;
    for _ in 0..30 {
        let mut took = [Duration::ZERO; 2];
        // Nobody has ever waited for the other one.
        for (name, took) in ["l", "other"].into_iter().zip(&mut took) {
            let start = Instant::now();
            let guard = here.lock(name).acquire().await.unwrap();
            *took = start.elapsed();
            guard.release().await.unwrap();
        }
        // It gave way for 150 ms.
        pauses += u32::from(took[0] > took[1] + Duration::from_millis(120));
    }
    assert!(pauses <= 12, "gave way {pauses} times of 30");
    database.remove().await;
}

/// A closed client that left its leases still tells those who work under one that it has ended.
#[tokio::test]
async fn a_lease_that_was_kept_at_close_ends_with_a_signal() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let guard = client.lock("l").ttl(Duration::from_secs(3));
    let guard = guard.acquire().await.unwrap();
    let signal = guard.cancellation_token();
    client.close(AtClose::Keep).await;
    let told = tokio::time::timeout(HANG, signal.cancelled()).await;
    told.expect("it tells");
    assert!(!guard.is_held());
    let next = database.client().await;
    drop(next.lock("l").acquire().await.unwrap());
    database.remove().await;
}

/// A lease that could not be extended, because a transaction holds its row, is not said to be.
#[tokio::test]
async fn an_extension_that_was_skipped_is_an_error() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let guard = client.lock("l").ttl(HANG).auto_renew(false);
    let guard = guard.acquire().await.unwrap();
    let mut connection = database.connection().await;
    let mut transaction = connection.begin().await.unwrap();
    guard.verify_in(&mut transaction).await.unwrap();
    let extended = guard.extend(HANG * 10).await;
    assert!(matches!(extended, Err(Error::Busy { .. })), "{extended:?}");
    assert!(guard.is_held());
    transaction.rollback().await.unwrap();
    guard.extend(HANG * 10).await.unwrap();
    assert!(guard.remaining() > HANG * 9);
    database.remove().await;
}

/// After a release by force no task of the old holder's process is given the lock for long.
#[tokio::test(flavor = "multi_thread")]
async fn turns_in_memory_end_after_a_release_by_force() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.client().await, database.client().await);
    // Its renewals come once a minute.
    let ttl = Duration::from_secs(180);
    let mut tasks = JoinSet::new();
    let (sender, mut turns) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..8 {
        let here = here.clone();
        let sender = sender.clone();
        tasks.spawn(async move {
            loop {
                let guard = here.lock("l").ttl(ttl).acquire().await.unwrap();
                let _ = sender.send(());
                tokio::time::sleep(Duration::from_millis(1)).await;
                drop(guard);
            }
        });
    }
    turns.recv().await.unwrap();
    assert!(there.force_release("l").await.unwrap());
    let taken = there.lock("l").ttl(ttl).acquire();
    let guard = tokio::time::timeout(HANG, taken).await.expect("its turn");
    let guard = guard.unwrap();
    // Once it looks at the row, it knows.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let turn = here.lock("l").ttl(ttl).wait(Duration::from_secs(2));
    let turn = turn.acquire().await;
    assert!(matches!(turn, Err(Error::Timeout { .. })), "{turn:?}");
    assert!(guard.is_held());
    tasks.shutdown().await;
    guard.release().await.unwrap();
    database.remove().await;
}

/// Questions that nobody waits for any more keep nobody waiting.
#[tokio::test]
async fn questions_of_those_who_went_away_are_not_asked() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let builder = LockClient::builder(proxy.url(&database.url).parse().unwrap())
        .packet_timeout(Duration::from_secs(3))
        .request_timeout(Duration::from_secs(3));
    let client = connected(builder).await;
    proxy.on_command(|_| Fault::CutBefore);
    for _ in 0..40 {
        let asked = tokio::time::timeout(Duration::from_millis(1), client.inspect("a"));
        drop(asked.await);
    }
    // One after the other they would take two minutes.
    let read = tokio::time::timeout(HANG, client.counter("a").get()).await;
    read.expect("an answer").unwrap_err();
    database.remove().await;
}

/// Callers that come and go without an end must not keep a lane from sending.
#[tokio::test(flavor = "current_thread")]
async fn callers_without_an_end_are_answered() {
    let database = TestDatabase::new().await;
    let client = connected(patient(&database.url).lanes(1)).await;
    let busy = {
        let client = client.clone();
        tokio::spawn(async move {
            loop {
                let counter = client.counter("busy");
                for _ in 0..4 {
                    drop(futures_util::FutureExt::now_or_never(counter.add(1)));
                }
                tokio::task::yield_now().await;
            }
        })
    };
    for value in 1..=3 {
        let added = tokio::time::timeout(HANG, client.counter("patient").add(1)).await;
        assert_eq!(added.expect("an answer").unwrap(), value);
    }
    busy.abort();
    client.close(AtClose::Release).await;
    database.remove().await;
}

/// A row that somebody has deleted is not taken for a lock that is held, or for a counter that is exhausted.
#[tokio::test]
async fn a_deleted_row_is_neither_held_nor_exhausted() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    let counter = client.counter("c");
    for round in 1..=2 {
        if round == 2 {
            // It has locked the gap, and cannot go on; the next one can.
            let mut transaction = connection.begin().await.unwrap();
            let value = counter.add_within_in(&mut transaction, 1, ..=1).await;
            assert!(matches!(value, Err(Error::Interrupted { .. })), "{value:?}");
            transaction.rollback().await.unwrap();
        }
        let mut transaction = connection.begin().await.unwrap();
        let locked = client.try_lock_in(&mut transaction, "l").await.unwrap();
        assert!(locked.is_some(), "round {round}");
        let value = counter.add_within_in(&mut transaction, 1, ..=1).await;
        assert_eq!(value.unwrap(), Some(1), "round {round}");
        assert_eq!(counter.get_in(&mut transaction).await.unwrap(), 1);
        let value = counter.add_within_in(&mut transaction, 1, ..=1).await;
        assert_eq!(value.unwrap(), None, "round {round}");
        transaction.commit().await.unwrap();
        let sql = "DELETE FROM t_tag_lock WHERE lock_name IN ('l','c')";
        run(&mut connection, sql).await;
    }
    database.remove().await;
}

type Flag = Arc<AtomicBool>;

/// Nobody knows whether a batch ran whose lane's row was deleted, also when the settlement is asked twice.
#[tokio::test]
async fn a_batch_without_a_proof_is_not_run_again() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let client = connected(patient(&proxy.url(&database.url))).await;
    let counter = client.counter("a");
    assert_eq!(counter.add(1).await.unwrap(), 1);
    let contains = |command: &Command, text: &[u8]| {
        let sql = command.sql().unwrap_or_default();
        sql.windows(text.len()).any(|part| part == text)
    };
    // The batch is committed, no settlement gets through before the lane's row is gone, and then the reply to the first
    // one is lost.
    let (cut, deleted, fenced) = (Flag::default(), Flag::default(), Flag::default());
    proxy.on_command({
        let (cut, deleted, fenced) = (cut.clone(), deleted.clone(), fenced.clone());
        move |command| {
            if contains(command, b"seq=GREATEST(seq,") && !deleted.load(SeqCst) {
                Fault::CutBefore
            } else if (is_batch(command) && !cut.swap(true, SeqCst))
                || (contains(command, b"(id,seq,results,") && !fenced.swap(true, SeqCst))
            {
                Fault::CutAfter(Upstream::Replied)
            } else {
                Fault::Pass
            }
        }
    });
    let adding = tokio::spawn({
        let client = client.clone();
        async move { client.counter("a").add(1).await }
    });
    let mut connection = database.connection().await;
    while proxy.counters().faults(FaultKind::CutBefore) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    run(&mut connection, "DELETE FROM t_tag_lock_lane").await;
    deleted.store(true, SeqCst);
    let added = adding.await.unwrap();
    assert!(
        matches!(added, Err(Error::OutcomeUnknown { .. })),
        "{added:?}"
    );
    assert!(fenced.load(SeqCst));
    assert_eq!(counter.get().await.unwrap(), 2);
    database.remove().await;
}
