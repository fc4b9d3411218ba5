//! `Counter::add_once`: the caller's own idempotency key.

use std::sync::Arc;
use std::time::Duration;

use crate::support;
use crate::support::proxy::Proxy;
use crate::support::{
    TestDatabase, connected, no_deadlocks_since, number, patient, run, server_deadlocks,
    spawn_worker,
};
use futures_util::future::join_all;
use tag_lock::{Error, LockClient};

fn count(length: usize) -> i64 {
    i64::try_from(length).expect("small")
}

async fn get(client: &LockClient, name: &str) -> i64 {
    client.counter(name).get().await.expect("reads")
}

/// Ids that several tasks of several clients add at the same time: one result each, and one change.
#[tokio::test(flavor = "multi_thread")]
async fn repeats_at_once_change_once() {
    const IDS: i64 = 12;
    let database = TestDatabase::new().await;
    let clients = [
        database.client().await,
        database.client().await,
        database.client().await,
    ];
    let deadlocks = server_deadlocks().await;
    let calls = (0..IDS).flat_map(|id| (0..9_usize).map(move |call| (id, call % 3)));
    let answers = join_all(calls.map(|(id, place)| {
        let client = clients[place].clone();
        tokio::spawn(async move {
            let value = client
                .counter("tickets")
                .add_once(&format!("id {id}"), 1)
                .await;
            (id, value.expect("adds"))
        })
    }))
    .await;
    let mut first = vec![None; usize::try_from(IDS).expect("small")];
    for answer in answers {
        let (id, value) = answer.expect("a task");
        let place = &mut first[usize::try_from(id).expect("small")];
        assert_eq!(*place.get_or_insert(value), value, "one result for one id");
    }
    let mut values: Vec<i64> = first.into_iter().flatten().collect();
    values.sort_unstable();
    assert_eq!(
        values,
        (1..=IDS).collect::<Vec<_>>(),
        "one change for one id"
    );
    assert_eq!(get(&clients[0], "tickets").await, IDS);
    no_deadlocks_since(deadlocks).await;
}

/// The same from several processes, each of which says what it was told.
#[tokio::test(flavor = "multi_thread")]
async fn processes_are_told_the_same() {
    let database = TestDatabase::new().await;
    let variables = [("TAG_LOCK_ONCE_URL", database.url.clone())];
    let workers: Vec<_> = (0..3).map(|_| spawn_worker("worker", &variables)).collect();
    let mut told = Vec::new();
    for worker in workers {
        let output = tokio::task::spawn_blocking(move || worker.wait_with_output());
        let output = output.await.expect("a task").expect("a worker");
        let text = String::from_utf8(output.stdout).expect("text");
        let line = text
            .lines()
            .find(|line| line.starts_with("values"))
            .map(str::to_owned);
        told.push(line.unwrap_or_else(|| panic!("a worker failed: {text}")));
    }
    assert!(told.iter().all(|line| *line == told[0]), "{told:?}");
    assert_eq!(get(&database.client().await, "processes").await, 20);
}

#[tokio::test]
#[ignore = "a worker of processes_are_told_the_same"]
async fn worker() {
    let Ok(url) = std::env::var("TAG_LOCK_ONCE_URL") else {
        return;
    };
    let client = support::connected(support::patient(&url)).await;
    let counter = client.counter("processes");
    let mut values = Vec::new();
    for id in 0..20 {
        values.push(
            counter
                .add_once(&format!("id {id}"), 1)
                .await
                .expect("adds"),
        );
    }
    println!("\nvalues {values:?}");
}

/// The packet creates the counter once, whoever of those in it wants it.
#[tokio::test(flavor = "multi_thread")]
async fn several_ids_begin_a_counter_in_a_packet_or_two() {
    const IDS: i64 = 32;
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.unwrap();
    let client = connected(patient(&proxy.url(&database.url)).lanes(1)).await;
    // Its connections are there.
    client.counter("other").add_once("id", 1).await.unwrap();
    for round in 0..10 {
        let before = proxy.counters();
        let name = format!("tickets {round}");
        let adds = (0..IDS).map(async |id| {
            let id = format!("{round}/{id}");
            client.counter(&name).add_once(&id, 1).await.unwrap()
        });
        let mut values = join_all(adds).await;
        values.sort_unstable();
        assert_eq!(values, (1..=IDS).collect::<Vec<_>>());
        let packets = proxy.counters().since(&before).commits;
        assert!(packets <= 8, "{packets} packets");
    }
    database.remove().await;
}

#[tokio::test]
async fn a_repeat_gives_the_first_result() {
    let database = TestDatabase::new().await;
    let (client, other) = (database.client().await, database.client().await);
    let counter = client.counter("a");
    assert_eq!(counter.add_once("first", 5).await.expect("adds"), 5);
    assert_eq!(counter.add(100).await.expect("adds"), 105);
    assert_eq!(counter.add_once("second", -7).await.expect("adds"), 98);
    for client in [&client, &other] {
        let counter = client.counter("a");
        assert_eq!(counter.add_once("first", 5).await.expect("repeats"), 5);
        assert_eq!(counter.add_once("second", -7).await.expect("repeats"), 98);
    }
    assert_eq!(get(&other, "a").await, 98);
    // An id is a name of its own kind: the counter's own name, and a lock's, will do.
    let lock = client.lock("a").acquire().await.expect("acquires");
    assert_eq!(counter.add_once("a", 2).await.expect("adds"), 100);
    assert_eq!(counter.add_once("a", 2).await.expect("repeats"), 100);
    lock.release().await.expect("releases");
}

#[tokio::test]
async fn another_meaning_is_a_mismatch() {
    let database = TestDatabase::new().await;
    let (client, other) = (database.client().await, database.client().await);
    let counter = client.counter("a");
    assert_eq!(counter.add_once("id", 5).await.expect("adds"), 5);
    let mismatch = |result: Result<Option<i64>, Error>| match result {
        Err(Error::OperationMismatch { id }) => assert_eq!(id, "id"),
        other => panic!("{other:?}"),
    };
    let a = other.counter("a");
    mismatch(a.add_once("id", 6).await.map(Some));
    mismatch(a.add_once("id", -5).await.map(Some));
    mismatch(a.add_once_within("id", 5, 0..).await);
    mismatch(a.add_once_within("id", 5, ..=5).await);
    mismatch(other.counter("b").add_once("id", 5).await.map(Some));
    mismatch(other.counter("A").add_once("id", 5).await.map(Some));
    // The range that every value is in is none.
    let whole = a.add_once_within("id", 5, ..).await.expect("repeats");
    assert_eq!(whole, Some(5));
    assert_eq!((get(&client, "a").await, get(&client, "b").await), (5, 0));
}

#[tokio::test]
async fn a_refusal_is_a_result_too() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let counter = client.counter("stock");
    counter.set(1).await.expect("sets");
    let once = async |id: &str| {
        counter
            .add_once_within(id, -1, 0..)
            .await
            .expect("an answer")
    };
    assert_eq!(once("x").await, Some(0));
    assert_eq!(once("y").await, None);
    counter.add(10).await.expect("adds");
    assert_eq!(once("x").await, Some(0));
    assert_eq!(once("y").await, None, "its answer was no");
    assert_eq!(once("z").await, Some(9));
    assert_eq!(counter.get().await.expect("reads"), 9);

    let unreachable = counter.add_once_within("far", 5, ..=i64::MIN).await;
    assert_eq!(unreachable.expect("an answer"), None);
    counter.set(i64::MAX).await.expect("sets");
    for _ in 0..2 {
        let overflow = counter.add_once("over", 1).await;
        assert!(
            matches!(
                overflow,
                Err(Error::Overflow {
                    value: i64::MAX,
                    delta: 1,
                    ..
                })
            ),
            "{overflow:?}"
        );
        counter.set(i64::MAX).await.expect("sets");
    }
    counter.set(i64::MIN).await.expect("sets");
    assert_eq!(counter.add_once("up", i64::MAX).await.expect("adds"), -1);
    assert_eq!(
        counter.add_once("down", i64::MIN + 1).await.expect("adds"),
        i64::MIN
    );
    assert_eq!(counter.add_once("up", i64::MAX).await.expect("repeats"), -1);
}

#[tokio::test]
async fn an_id_is_forgotten_after_its_retention() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    let hour = Duration::from_secs(3_600);
    let counter = client.counter("a").retention(hour);
    assert_eq!(counter.add_once("id", 1).await.expect("adds"), 1);
    let left = "SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), deadline) FROM t_tag_lock WHERE lock_name='id' AND kind=3";
    let seconds = number(&mut connection, left).await;
    assert!((3_400..=3_600).contains(&seconds), "{seconds}");
    // A repeat does not make it longer.
    run(
        &mut connection,
        "UPDATE t_tag_lock SET deadline = UTC_TIMESTAMP(6) + INTERVAL 100 SECOND WHERE kind=3",
    )
    .await;
    assert_eq!(counter.add_once("id", 1).await.expect("repeats"), 1);
    assert!(number(&mut connection, left).await <= 100);
    // When it has ended, the id stands for something new.
    run(
        &mut connection,
        "UPDATE t_tag_lock SET deadline = UTC_TIMESTAMP(6) WHERE kind=3",
    )
    .await;
    assert_eq!(counter.add_once("id", 2).await.expect("adds"), 3);
    assert_eq!(counter.add_once("id", 2).await.expect("repeats"), 3);
    for wrong in [Duration::ZERO, Duration::from_secs(u64::MAX / 2)] {
        let refused = client.counter("a").retention(wrong).add_once("b", 1).await;
        assert!(
            matches!(refused, Err(Error::InvalidOption { .. })),
            "{refused:?}"
        );
    }
    // A retention that ends before the answer is read must not add twice.
    let short = client.counter("short").retention(Duration::from_micros(1));
    match short.add_once("c", 1).await {
        Err(Error::InvalidOption { .. }) => assert_eq!(get(&client, "short").await, 0),
        answer => {
            assert_eq!(answer.expect("adds"), 1);
            assert_eq!(get(&client, "short").await, 1);
        }
    }
}

#[tokio::test]
async fn a_window_that_ended_starts_again() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    let counter = client.counter("a").window(Duration::from_secs(3_600));
    assert_eq!(counter.add_once("one", 4).await.expect("adds"), 4);
    run(
        &mut connection,
        "UPDATE t_tag_lock SET deadline = UTC_TIMESTAMP(6) WHERE kind=2",
    )
    .await;
    assert_eq!(counter.add_once("two", 4).await.expect("adds"), 4);
    assert_eq!(counter.add(1).await.expect("adds"), 5);
    assert_eq!(counter.add_once("one", 4).await.expect("repeats"), 4);
    assert_eq!(counter.get().await.expect("reads"), 5);
}

/// Many ids on one counter and on many, between plain and bounded additions in the same lanes.
#[tokio::test(flavor = "multi_thread")]
async fn it_mixes_with_other_additions() {
    const COUNTERS: usize = 5;
    const TASKS: usize = 40;
    let database = Arc::new(TestDatabase::new().await);
    let clients = [database.client().await, database.client().await];
    let deadlocks = server_deadlocks().await;
    let tasks = (0..TASKS).map(|task| {
        let client = clients[task % 2].clone();
        tokio::spawn(async move {
            let one = client
                .counter("one")
                .add_once(&format!("{task}"), 1)
                .await
                .expect("adds");
            for time in 0..4 {
                let many = format!("many {}", (task + time) % COUNTERS);
                let many = client.counter(&many);
                let id = format!("{task} {time}");
                let value = many.add_once_within(&id, 1, 0..).await.expect("adds");
                many.add(1).await.expect("adds");
                many.add_within(1, 0..)
                    .await
                    .expect("adds")
                    .expect("within");
                let again = many.add_once_within(&id, 1, 0..).await.expect("repeats");
                assert_eq!(again, value);
                client.counter("one").add(1).await.expect("adds");
            }
            let again = client.counter("one").add_once(&format!("{task}"), 1).await;
            assert_eq!(again.expect("repeats"), one);
        })
    });
    for task in join_all(tasks).await {
        task.expect("a task");
    }
    assert_eq!(get(&clients[0], "one").await, count(TASKS * 5));
    let mut total = 0;
    for counter in 0..COUNTERS {
        total += get(&clients[0], &format!("many {counter}")).await;
    }
    assert_eq!(total, count(TASKS * 4 * 3));
    no_deadlocks_since(deadlocks).await;
}

/// Beside an open transaction on the counter it waits; what has nothing to do with that goes on.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_transaction_on_the_counter_is_waited_for() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    for end in ["COMMIT", "ROLLBACK"] {
        let name = format!("a {end}");
        let counter = client.counter(&name);
        run(&mut connection, "START TRANSACTION").await;
        counter.add_in(&mut connection, 10).await.expect("adds");
        let waiting: Vec<_> = (0..3)
            .map(|id| {
                let (client, name) = (client.clone(), name.clone());
                // The third repeats the first.
                let id = format!("{name} {}", id % 2);
                tokio::spawn(async move { client.counter(&name).add_once(&id, 1).await })
            })
            .collect();
        for time in 1..=3 {
            let other = client
                .counter("other")
                .add_once(&format!("{end} {time}"), 1)
                .await;
            other.expect("goes on");
        }
        assert!(waiting.iter().all(|task| !task.is_finished()), "they wait");
        run(&mut connection, end).await;
        let base = if end == "COMMIT" { 10 } else { 0 };
        let mut values = Vec::new();
        for task in waiting {
            values.push(task.await.expect("a task").expect("adds"));
        }
        assert_eq!(values[0], values[2], "a repeat");
        let mut distinct = [values[0], values[1]];
        distinct.sort_unstable();
        assert_eq!(distinct, [base + 1, base + 2]);
        assert_eq!(counter.get().await.expect("reads"), base + 2);
    }
}
