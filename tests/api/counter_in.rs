//! `Counter::add_in`, `add_within_in`, `get_in`: a counter changes with the caller's data, or not at all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::lateness::Lateness;
use crate::support::{
    TestDatabase, connected, eventually, is_mariadb, makes_deadlocks, no_deadlocks_since, number,
    run, server_deadlocks,
};
use futures_util::FutureExt;
use futures_util::future::join_all;
use sqlx::mysql::MySqlConnection;
use tag_lock::{Error, LockClient};

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

async fn begin(connection: &mut MySqlConnection, level: &str) {
    let sql = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}; START TRANSACTION");
    run(connection, &sql).await;
}

#[tokio::test]
async fn it_commits_or_rolls_back_with_the_callers_data() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    run(&mut connection, "CREATE TABLE orders (id INT PRIMARY KEY)").await;
    let stock = client.counter("stock");
    stock.set(10).await.expect("sets");
    let mut orders = 0;
    for level in LEVELS {
        for end in ["COMMIT", "ROLLBACK"] {
            let before = stock.get().await.expect("reads");
            begin(&mut connection, level).await;
            let value = stock.add_in(&mut connection, -1).await.expect("adds");
            assert_eq!(value, before - 1);
            let none = stock.add_within_in(&mut connection, -100, 0..).await;
            assert_eq!(none.expect("an answer"), None);
            let value = stock.add_within_in(&mut connection, -1, 0..).await;
            assert_eq!(value.expect("an answer"), Some(before - 2));
            let order = format!("INSERT INTO orders VALUES ({})", orders + 1);
            run(&mut connection, &order).await;
            assert_eq!(
                stock.get_in(&mut connection).await.expect("reads"),
                before - 2
            );
            assert_eq!(
                stock.get().await.expect("reads"),
                before,
                "others see nothing yet"
            );
            run(&mut connection, end).await;
            let kept = i64::from(end == "COMMIT");
            orders += kept;
            assert_eq!(
                stock.get().await.expect("reads"),
                before - 2 * kept,
                "{level} {end}"
            );
            let rows = number(&mut connection, "SELECT COUNT(*) FROM orders").await;
            assert_eq!(rows, orders);
        }
    }
}

#[tokio::test]
async fn values_of_all_sizes_come_back_exactly() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    let counter = client.counter("edges");
    let (min, max) = (i64::MIN, i64::MAX);
    // What the application's session may be like.
    let mut modes = vec![
        "",
        "ANSI_QUOTES,PIPES_AS_CONCAT",
        "TRADITIONAL",
        "NO_UNSIGNED_SUBTRACTION",
    ];
    if is_mariadb() {
        modes.extend(["SIMULTANEOUS_ASSIGNMENT", "ORACLE"]);
    }
    for mode in modes {
        let session =
            format!("SET SESSION sql_mode='{mode}', time_zone='+09:00', sql_safe_updates=1");
        run(&mut connection, &session).await;
        for (start, delta, end) in [
            (0, 0, Some(0)),
            (0, 1, Some(1)),
            (0, -1, Some(-1)),
            (-1, 1, Some(0)),
            (5, -7, Some(-2)),
            (0, max, Some(max)),
            (0, min, Some(min)),
            (max, min, Some(-1)),
            (min, max, Some(-1)),
            (-1, min + 1, Some(min)),
            (max, 0, Some(max)),
            (min, 0, Some(min)),
            (max - 1, 1, Some(max)),
            (min + 1, -1, Some(min)),
            (max, 1, None),
            (min, -1, None),
            (1, max, None),
            (-1, min, None),
            (max, max, None),
            (min, min, None),
        ] {
            counter.set(start).await.expect("sets");
            run(&mut connection, "START TRANSACTION").await;
            let value = counter.add_in(&mut connection, delta).await;
            match (end, value) {
                (Some(end), Ok(value)) => assert_eq!(value, end, "{mode}: {start} + {delta}"),
                (
                    None,
                    Err(Error::Overflow {
                        value, delta: told, ..
                    }),
                ) => {
                    assert_eq!((value, told), (start, delta));
                }
                (_, value) => panic!("{mode}: {start} + {delta} gave {value:?}"),
            }
            run(&mut connection, "COMMIT").await;
            assert_eq!(
                counter.get().await.expect("reads"),
                end.unwrap_or(start),
                "{mode}"
            );
        }
    }
}

#[tokio::test]
async fn a_range_is_never_left() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    let counter = client.counter("range");
    run(&mut connection, "START TRANSACTION").await;
    let mut add = async |delta, low, high| {
        let value = counter
            .add_within_in(&mut connection, delta, low..=high)
            .await;
        value.expect("an answer")
    };
    assert_eq!(add(-3, -3, 3).await, Some(-3));
    assert_eq!(add(-1, -3, 3).await, None);
    assert_eq!(add(6, -3, 3).await, Some(3));
    assert_eq!(add(1, -3, 3).await, None);
    assert_eq!(add(0, -3, 3).await, Some(3));
    assert_eq!(add(0, -3, 2).await, None, "it is outside already");
    assert_eq!(add(i64::MAX, i64::MIN, i64::MAX).await, None);
    assert_eq!(add(-4, i64::MIN, -1).await, Some(-1));
    assert_eq!(add(i64::MIN, 0, 3).await, None);
    // Stock 1 applied and stock 0 refused both leave 0; the answers differ.
    assert_eq!(add(1, 0, 0).await, Some(0));
    assert_eq!(add(-1, 0, i64::MAX).await, None);
    #[allow(clippy::reversed_empty_ranges, reason = "this is what is refused")]
    let empty = counter.add_within_in(&mut connection, 1, 5..5).await;
    assert!(
        matches!(empty, Err(Error::InvalidOption { .. })),
        "{empty:?}"
    );
}

#[tokio::test]
async fn a_window_begins_in_the_transaction_too() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    let long = client.counter("long").window(Duration::from_secs(3_600));
    for end in ["ROLLBACK", "COMMIT"] {
        run(&mut connection, "START TRANSACTION").await;
        assert_eq!(long.add_in(&mut connection, 5).await.expect("adds"), 5);
        run(&mut connection, end).await;
    }
    assert_eq!(long.add(1).await.expect("adds"), 6);
    let left = "SELECT TIMESTAMPDIFF(MINUTE, UTC_TIMESTAMP(), deadline) FROM t_tag_lock WHERE lock_name='long' AND kind=2";
    assert!((58..=60).contains(&number(&mut connection, left).await));

    // One whose window has ended starts again at 0.
    let ended =
        "UPDATE t_tag_lock SET deadline = UTC_TIMESTAMP(6) WHERE lock_name='long' AND kind=2";
    run(&mut connection, ended).await;
    run(&mut connection, "START TRANSACTION").await;
    assert_eq!(long.get_in(&mut connection).await.expect("reads"), 0);
    let within = long.add_within_in(&mut connection, 3, 0..=3).await;
    assert_eq!(within.expect("an answer"), Some(3));
    run(&mut connection, "COMMIT").await;
    assert_eq!(long.get().await.expect("reads"), 3);
    assert!(
        (58..=60).contains(&number(&mut connection, left).await),
        "a new window"
    );
}

/// Several transactions and a lane at once: nothing is lost, and each value is given out once.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_and_lanes_share_a_counter() {
    const TASKS: usize = 6;
    const TIMES: usize = 15;
    let database = Arc::new(TestDatabase::new().await);
    let client = database.client().await;
    let deadlocks = server_deadlocks().await;
    let tasks = (0..TASKS).map(|place| {
        let (database, client) = (Arc::clone(&database), client.clone());
        tokio::spawn(async move {
            let mut connection = database.connection().await;
            let mut values = Vec::new();
            for time in 0..TIMES {
                let counter = client.counter("shared");
                if place % 2 == 0 {
                    values.push(counter.add(1).await.expect("adds"));
                    continue;
                }
                begin(&mut connection, LEVELS[(place + time) % LEVELS.len()]).await;
                let value = counter.add_in(&mut connection, 1).await.expect("adds");
                if time % 3 == 0 {
                    run(&mut connection, "ROLLBACK").await;
                } else {
                    run(&mut connection, "COMMIT").await;
                    values.push(value);
                }
            }
            values
        })
    });
    let mut values = Vec::new();
    for task in join_all(tasks).await {
        values.extend(task.expect("a task"));
    }
    values.sort_unstable();
    let count = i64::try_from(values.len()).expect("small");
    assert_eq!(values, (1..=count).collect::<Vec<i64>>());
    assert_eq!(client.counter("shared").get().await.expect("reads"), count);
    no_deadlocks_since(deadlocks).await;
}

/// A name of the same stripe as `name`.
fn neighbour_in_stripe(name: &str, number: usize) -> String {
    let stripe = |name: &str| crc32fast::hash(name.as_bytes()) % 100;
    let mut candidates = (0..).map(|tried| format!("{name} {number} {tried}"));
    candidates
        .find(|other| stripe(other) == stripe(name))
        .expect("one in a hundred")
}

/// A slow transaction delays its own name only: what travels in the same batches goes on, of the same
/// stripe too.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_transaction_delays_only_its_name() {
    let database = TestDatabase::new().await;
    let client = LockClient::builder(database.url.parse().expect("a URL"))
        .lanes(1)
        // What waits for the transaction waits for as long as a slow machine takes for the rest.
        .request_timeout(Duration::from_secs(1_800))
        .connect()
        .await
        .expect("connects");
    for level in LEVELS {
        let name = format!("slow {level}");
        let mut connection = database.connection().await;
        begin(&mut connection, level).await;
        let slow = client.counter(&name);
        assert_eq!(slow.add_in(&mut connection, 1).await.expect("adds"), 1);
        let lane = client.clone();
        let waits = tokio::spawn({
            let name = name.clone();
            async move { lane.counter(&name).add(10).await }
        });
        let others: Vec<String> = (0..20)
            .map(|number| neighbour_in_stripe(&name, number))
            .collect();
        // First without what waits, then with it: each batch that waited for the row would take a second.
        let mut took = [const { Vec::new() }; 2];
        for time in 1..=20 {
            let start = Instant::now();
            let with = time > 10;
            let more = client.counter(&name);
            let mut more = std::pin::pin!(more.add(0));
            if with {
                // It goes with the others, in one batch.
                assert!(more.as_mut().now_or_never().is_none());
            }
            let adds = others
                .iter()
                .map(async |name| client.counter(name).add(1).await);
            for value in join_all(adds).await {
                assert_eq!(value.expect("goes on"), time);
            }
            took[usize::from(with)].push(start.elapsed());
        }
        // What half of them took: a machine that stood still now and then does not count.
        let [without, with] = took.map(|mut took| {
            took.sort_unstable();
            took[took.len() / 2]
        });
        assert!(
            with < without * 4 + Duration::from_millis(500),
            "{level}: {with:?} beside the transaction, {without:?} before"
        );
        assert!(
            !waits.is_finished(),
            "{level}: it waits for the transaction"
        );
        run(&mut connection, "COMMIT").await;
        assert_eq!(waits.await.expect("a task").expect("adds"), 11, "{level}");
    }
}

/// `get_in` holds the counter: what is decided by the value stays true until the commit.
#[tokio::test]
async fn reading_holds_the_counter() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    for level in LEVELS {
        let mut connection = database.connection().await;
        let counter = client.counter(level);
        begin(&mut connection, level).await;
        assert_eq!(counter.get_in(&mut connection).await.expect("reads"), 0);
        let (lane, name) = (client.clone(), level.to_owned());
        let waits = tokio::spawn(async move { lane.counter(&name).add(1).await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(
            counter.get_in(&mut connection).await.expect("reads"),
            0,
            "{level}"
        );
        assert!(!waits.is_finished());
        run(&mut connection, "ROLLBACK").await;
        assert_eq!(waits.await.expect("a task").expect("adds"), 1);
    }
}

/// A caller that asks a lane for a row that its own transaction holds waits for itself. It gets an error
/// that says so, whatever the two limits are, and the counter is as it was.
#[tokio::test]
async fn a_call_through_a_lane_on_a_row_of_ones_own_is_busy() {
    let database = TestDatabase::new().await;
    for (packet, request) in [(1_500, 2_000), (300, 1_000), (300, 300)] {
        let limits = [packet, request].map(Duration::from_millis);
        // A machine that was late by more than a part of the limits shows nothing: again, with longer ones.
        let mut factor = 1;
        while !busy_with_its_own_row(&database, limits.map(|limit| limit * factor)).await {
            factor *= 2;
        }
    }
}

/// False if the machine was too late for limits so short.
async fn busy_with_its_own_row(database: &TestDatabase, [packet, request]: [Duration; 2]) -> bool {
    let lateness = Lateness::watch();
    let hasty = LockClient::builder(database.url.parse().expect("a URL"))
        .packet_timeout(packet)
        .request_timeout(request);
    let hasty = connected(hasty).await;
    let patient = database.client().await;
    let name = format!("mistake {packet:?} {request:?}");
    let mut connection = database.connection().await;
    begin(&mut connection, "READ COMMITTED").await;
    let counter = patient.counter(&name);
    counter.add_in(&mut connection, 1).await.expect("adds");
    let start = Instant::now();
    let busy = hasty.counter(&name).add(10).await;
    println!("{name}: {:?} after {:?}", busy, start.elapsed());
    let once = hasty.counter(&name).add_once(&name, 10).await;
    let is_busy = |error: &Error| matches!(error, Error::Busy { name: told } if *told == name);
    for result in [&busy, &once] {
        let error = result.as_ref().expect_err("its row is held");
        let shows_nothing = matches!(
            error,
            Error::Unreachable { .. } | Error::OutcomeUnknown { .. } | Error::Overloaded { .. }
        ) && lateness.so_far() > packet.min(request) / 4;
        if shows_nothing {
            run(&mut connection, "ROLLBACK").await;
            return false;
        }
        assert!(is_busy(error), "{name}: {error:?}");
        let text = error.to_string();
        assert!(text.contains("is it your own?"), "{text}");
    }
    run(&mut connection, "COMMIT").await;
    assert_eq!(
        counter.get().await.expect("reads"),
        1,
        "the busy ones did nothing"
    );
    assert_eq!(counter.add(1).await.expect("adds"), 2);
    eventually("the hasty one goes on", async || {
        hasty.counter("another").add(1).await.is_ok()
    })
    .await;
    assert_eq!(counter.get().await.expect("reads"), 2, "nor later");
    true
}

/// The victim of a deadlock is told that its transaction is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_is_named() {
    let _makes_one = makes_deadlocks().await;
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let counters = [client.counter("a"), client.counter("b")];
    let mut connections = [database.connection().await, database.connection().await];
    for (counter, connection) in counters.iter().zip(&mut connections) {
        begin(connection, "READ COMMITTED").await;
        counter.add_in(connection, 1).await.expect("adds");
    }
    let [first, second] = &mut connections;
    // Each waits for the other; whoever goes on ends, so that the other one does, too.
    let add = async |counter: &tag_lock::Counter, connection: &mut MySqlConnection| {
        let added = counter.add_in(connection, 1).await;
        let again = match &added {
            Ok(_) => None,
            Err(_) => Some(counter.add_in(connection, 1).await),
        };
        run(connection, "ROLLBACK").await;
        (added, again)
    };
    let (one, other) = tokio::join!(add(&counters[1], first), add(&counters[0], second));
    let [undone] = [one, other]
        .map(|(added, again)| added.err().zip(again))
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .try_into()
        .expect("one of them");
    assert!(
        matches!(undone.0, Error::RolledBack { .. }),
        "{:?}",
        undone.0
    );
    assert!(undone.0.is_retryable() && undone.0.name().is_some());
    assert!(
        matches!(undone.1, Err(Error::NoTransaction { .. })),
        "{:?}",
        undone.1
    );
    database.remove().await;
}
