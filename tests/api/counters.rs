//! Counters: every caller gets its own exact value, and nothing leaves its range.

use std::sync::Arc;
use std::time::Duration;

use crate::support;
use crate::support::{TestDatabase, number, run};
use tag_lock::{Counter, Error};
use tokio::sync::Barrier;

const HOUR: Duration = Duration::from_secs(3_600);

async fn assert_overflows(counter: &Counter, by: i64, at: i64) {
    match counter.add(by).await {
        Err(Error::Overflow { name, value, delta }) => {
            assert_eq!((name.as_str(), value, delta), ("n", at, by));
        }
        other => panic!("{at} + {by}: {other:?}"),
    }
    assert_eq!(counter.get().await.unwrap(), at, "an overflow changed it");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_by_itself() {
    let database = TestDatabase::new().await;
    let (a, b) = (database.client().await, database.client().await);
    let (n, m) = (a.counter("n"), b.counter("n"));
    assert_eq!(n.get().await.unwrap(), 0);
    assert_eq!(n.add(5).await.unwrap(), 5);
    assert_eq!(m.add(-7).await.unwrap(), -2);
    assert_eq!(n.add(0).await.unwrap(), -2);
    assert_eq!(m.set(10).await.unwrap(), -2);
    assert_eq!(n.set(10).await.unwrap(), 10);
    assert_eq!(n.compare_exchange(9, 1).await.unwrap(), Err(10));
    assert_eq!(n.compare_exchange(10, 11).await.unwrap(), Ok(10));
    assert_eq!(m.compare_exchange(11, 11).await.unwrap(), Ok(11));
    assert_eq!(m.get().await.unwrap(), 11);
    assert_eq!(m.reset().await.unwrap(), 11);
    assert_eq!(n.reset().await.unwrap(), 0);
    assert_eq!(n.get().await.unwrap(), 0);
    // Names that were never used before.
    assert_eq!(a.counter("fresh 1").reset().await.unwrap(), 0);
    let exchanged = a.counter("fresh 2").compare_exchange(0, -1).await.unwrap();
    assert_eq!(exchanged, Ok(0));
    let exchanged = a.counter("fresh 3").compare_exchange(1, -1).await.unwrap();
    assert_eq!(exchanged, Err(0));
    assert_eq!(a.counter("fresh 4").add_within(1, 2..).await.unwrap(), None);
    // A lock of the same name is something else.
    let guard = a.lock("n").acquire().await.unwrap();
    assert_eq!(m.add(1).await.unwrap(), 1);
    guard.release().await.unwrap();
    assert_eq!(n.get().await.unwrap(), 1);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_edges_of_64_bits() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let n = client.counter("n");
    for edge in [i64::MIN, i64::MAX] {
        assert_eq!(n.add(edge).await.unwrap(), edge);
        assert_eq!(n.get().await.unwrap(), edge);
        assert_eq!(n.add(0).await.unwrap(), edge);
        let away = edge.signum();
        assert_overflows(&n, away, edge).await;
        assert_overflows(&n, edge, edge).await;
        assert_eq!(n.add(-away).await.unwrap(), edge - away);
        assert_overflows(&n, 2 * away, edge - away).await;
        assert_eq!(n.compare_exchange(edge, 0).await.unwrap(), Err(edge - away));
        assert_eq!(n.set(edge).await.unwrap(), edge - away);
        assert_eq!(n.compare_exchange(edge, edge).await.unwrap(), Ok(edge));
        assert_eq!(n.reset().await.unwrap(), edge);
    }
    assert_eq!(n.set(i64::MIN).await.unwrap(), 0);
    assert_eq!(n.add(i64::MAX).await.unwrap(), -1);
    assert_eq!(n.add(i64::MIN).await.unwrap_err().to_string(), {
        format!(
            "adding {} to counter \"n\", which is -1, leaves the 64-bit range",
            i64::MIN
        )
    });
    assert_eq!(n.add(i64::MIN + 1).await.unwrap(), i64::MIN);
    assert_eq!(n.set(i64::MAX).await.unwrap(), i64::MIN);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bounded_additions_at_their_edges() {
    const MIN: i64 = i64::MIN;
    const MAX: i64 = i64::MAX;
    // Value, delta, low, high: the model is plain arithmetic that cannot overflow.
    let cases = [
        (0, -1, 0, MAX), // stock 0: refused
        (1, -1, 0, MAX), // stock 1: applied, and 0 afterwards as well
        (1, -2, 0, MAX),
        (9, 1, 0, 10),
        (10, 1, 0, 10),
        (10, 0, 0, 10),
        (11, 0, 0, 10),
        (20, -5, 0, 10),
        (20, -10, 0, 10),
        (-5, 5, 0, 10),
        (-6, 5, 0, 10),
        (-6, 17, 0, 10),
        (MAX, 1, MIN, MAX),
        (MAX, 0, MIN, MAX),
        (MAX - 1, 1, MIN, MAX),
        (MAX, MIN, MIN, MAX),
        (MAX, MIN, -1, -1),
        (MIN, -1, MIN, MAX),
        (MIN, MAX, -1, -1),
        (MIN, MIN, MIN, MAX),
        (0, MIN, MIN, MIN),
        (0, MAX, MAX, MAX),
        (-1, MIN, MIN, MAX),
        // Ranges that no value reaches by this step.
        (0, MAX, MIN, -2),
        (MIN, MAX, MIN, -2),
        (MAX, MIN, MAX, MAX),
        (0, MIN, 0, MAX),
        (MIN, 1, MIN, MIN),
        (MAX, -1, MAX, MAX),
    ];
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let n = client.counter("n");
    for (value, delta, low, high) in cases {
        n.set(value).await.unwrap();
        let after = i128::from(value) + i128::from(delta);
        let expected = (i128::from(low)..=i128::from(high))
            .contains(&after)
            .then(|| i64::try_from(after).unwrap());
        let case = format!("{value} + {delta} within {low}..={high}");
        let got = n.add_within(delta, low..=high).await.unwrap();
        assert_eq!(got, expected, "{case}");
        let left = n.get().await.unwrap();
        assert_eq!(left, expected.unwrap_or(value), "left by {case}");
    }
    let refused = n.add_within(1, 5..5).await;
    assert!(matches!(refused, Err(Error::InvalidOption { option, .. }) if option == "range"));
    database.remove().await;
}

/// All additions at once, so that many merge; each result is what it would have been alone.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_at_once_get_distinct_exact_values() {
    const TASKS: usize = 2_000;
    let database = TestDatabase::new().await;
    let clients = [database.client().await, database.client().await];
    let start = Arc::new(Barrier::new(2 * TASKS));
    let mut tasks = Vec::new();
    for number in 0..2 * TASKS {
        let (client, start) = (clients[number % 2].clone(), Arc::clone(&start));
        // The value says what was added last: no two sums of a prefix are alike.
        let delta = i64::try_from(number % 5 + 1).unwrap();
        tasks.push(tokio::spawn(async move {
            start.wait().await;
            (delta, client.counter("n").add(delta).await.unwrap())
        }));
    }
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers.sort_by_key(|(_, value)| *value);
    let mut sum = 0;
    for (delta, value) in answers {
        sum += delta;
        assert_eq!(value, sum, "after adding {delta}");
    }
    assert_eq!(clients[0].counter("n").get().await.unwrap(), sum);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_is_given_out_exactly_once() {
    const STOCK: i64 = 500;
    let database = TestDatabase::new().await;
    let clients = [database.client().await, database.client().await];
    clients[0].counter("n").set(STOCK).await.unwrap();
    let start = Arc::new(Barrier::new(1_600));
    let mut tasks = Vec::new();
    for number in 0..1_600 {
        let (client, start) = (clients[number % 2].clone(), Arc::clone(&start));
        tasks.push(tokio::spawn(async move {
            start.wait().await;
            client.counter("n").add_within(-1, 0..).await.unwrap()
        }));
    }
    let mut drawn = Vec::new();
    for task in tasks {
        drawn.extend(task.await.unwrap());
    }
    drawn.sort_unstable();
    assert_eq!(drawn, (0..STOCK).collect::<Vec<_>>());
    assert_eq!(clients[0].counter("n").get().await.unwrap(), 0);
    database.remove().await;
}

/// The way from one end to the other is longer than any 64-bit number.
#[tokio::test(flavor = "multi_thread")]
async fn giant_steps_at_once() {
    const STEP: i64 = 1 << 62;
    let database = TestDatabase::new().await;
    let client = database.client().await;
    for (from, step) in [(i64::MIN, STEP), (i64::MAX, -STEP)] {
        client.counter("n").set(from).await.unwrap();
        let start = Arc::new(Barrier::new(20));
        let mut tasks = Vec::new();
        for _ in 0..20 {
            let (client, start) = (client.clone(), Arc::clone(&start));
            tasks.push(tokio::spawn(async move {
                start.wait().await;
                client.counter("n").add_within(step, ..).await
            }));
        }
        let mut values = Vec::new();
        for task in tasks {
            values.extend(task.await.unwrap().unwrap());
        }
        values.sort_unstable_by_key(|value| value.abs_diff(from));
        assert_eq!(
            values,
            [from + step, from + step + step, from + step + step + step]
        );
    }
    database.remove().await;
}

/// Together they leave the 64 bits, though not all do by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn an_overflow_among_many_hits_only_those_that_overflow() {
    const ROOM: i64 = 20;
    let database = TestDatabase::new().await;
    let client = database.client().await;
    client.counter("n").set(i64::MAX - ROOM).await.unwrap();
    let start = Arc::new(Barrier::new(60));
    let mut tasks = Vec::new();
    for _ in 0..60 {
        let (client, start) = (client.clone(), Arc::clone(&start));
        tasks.push(tokio::spawn(async move {
            start.wait().await;
            client.counter("n").add(1).await
        }));
    }
    let (mut values, mut overflows) = (Vec::new(), 0);
    for task in tasks {
        match task.await.unwrap() {
            Ok(value) => values.push(i64::MAX - value),
            Err(Error::Overflow { value, .. }) => {
                assert_eq!(value, i64::MAX);
                overflows += 1;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    values.sort_unstable();
    assert_eq!(values, (0..ROOM).collect::<Vec<_>>());
    assert_eq!(overflows, 60 - ROOM);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_starts_again_after_its_deadline() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let window = Duration::from_secs(1);
    let n = client.counter("n").window(window);
    assert_eq!(n.add(5).await.unwrap(), 5);
    support::eventually("the window ends", async || n.get().await.unwrap() == 0).await;
    assert_eq!(n.add_within(1, 5..).await.unwrap(), None, "the old value");
    // Counted anew, whatever the row says: the first value of the next window.
    assert_eq!(n.add(3).await.unwrap(), 3);

    // With windows that end when the test says so.
    let mut connection = database.connection().await;
    let m = client.counter("m").window(HOUR);
    let deadline = "SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01',deadline) FROM t_tag_lock \
                    WHERE lock_name='m' AND kind=2";
    let end = "UPDATE t_tag_lock SET deadline='2000-01-01' WHERE lock_name='m' AND kind=2";
    assert_eq!(m.add(5).await.unwrap(), 5);
    let first = number(&mut connection, deadline).await;
    assert_eq!(m.add(2).await.unwrap(), 7);
    assert_eq!(m.add_within(1, ..=8).await.unwrap(), Some(8));
    assert_eq!(m.set(9).await.unwrap(), 8);
    assert_eq!(m.compare_exchange(9, 10).await.unwrap(), Ok(9));
    let same = number(&mut connection, deadline).await;
    assert_eq!(same, first, "a change within the window does not extend it");
    assert_eq!(m.reset().await.unwrap(), 10);
    let second = number(&mut connection, deadline).await;
    assert!(second > first, "a reset begins a new window");
    for (change, expected) in [("add", 4), ("set", 6), ("exchange", 7)] {
        m.set(100).await.unwrap();
        run(&mut connection, end).await;
        assert_eq!(m.get().await.unwrap(), 0);
        match change {
            "add" => assert_eq!(m.add(expected).await.unwrap(), expected),
            "set" => assert_eq!(m.set(expected).await.unwrap(), 0),
            _ => {
                assert_eq!(m.compare_exchange(100, 1).await.unwrap(), Err(0));
                assert_eq!(m.compare_exchange(0, expected).await.unwrap(), Ok(0));
            }
        }
        assert_eq!(m.get().await.unwrap(), expected);
        assert!(number(&mut connection, deadline).await > first);
    }

    let endless = client.counter("endless");
    assert_eq!(endless.add(1).await.unwrap(), 1);
    let far = "SELECT COUNT(*) FROM t_tag_lock WHERE lock_name='endless' AND kind=2 \
               AND deadline>'9000-01-01'";
    assert_eq!(number(&mut connection, far).await, 1);
    let invalid = client.counter("n").window(Duration::MAX).add(1).await;
    assert!(matches!(
        invalid,
        Err(Error::InvalidOption {
            option: "window",
            ..
        })
    ));
    database.remove().await;
}
