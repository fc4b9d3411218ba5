//! Random operations on counters, many at once, against a model: what the callers were told must be
//! what some order of the operations, one after the other, would have told them.
//!
//! `TAG_LOCK_TEST_ROUNDS` multiplies the number of cases.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod support;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use support::{TestDatabase, connected, number, patient};
use tag_lock::{Counter, Error};

const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Clone, Copy, Debug)]
enum Operation {
    Get,
    GetIfSet,
    Add(i64),
    AddWithin(i64, i64, i64),
    /// With an id that nobody else has.
    AddOnce(i64),
    AddOnceWithin(i64, i64, i64),
    Set(i64),
    CompareExchange(i64, i64),
    Reset,
    Init(i64),
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Value(i64),
    Refused,
    /// With the value that was in the way.
    Overflow(i64),
    Found(i64),
    /// What it was set to, if it was.
    Was(Option<i64>),
    /// Whether it was set by this.
    Begun(bool),
}

impl Operation {
    /// The counter itself, in two lines each: what it is set to afterwards, if it is, and the answer.
    fn on(self, set: Option<i64>) -> (Option<i64>, Answer) {
        let value = set.unwrap_or_default();
        match self {
            Self::Get => (set, Answer::Value(value)),
            Self::GetIfSet => (set, Answer::Was(set)),
            Self::Add(delta) | Self::AddOnce(delta) => match value.checked_add(delta) {
                Some(sum) => (Some(sum), Answer::Value(sum)),
                None => (set, Answer::Overflow(value)),
            },
            Self::AddWithin(delta, low, high) | Self::AddOnceWithin(delta, low, high) => {
                match value.checked_add(delta) {
                    Some(sum) if (low..=high).contains(&sum) => (Some(sum), Answer::Value(sum)),
                    _ => (set, Answer::Refused),
                }
            }
            Self::Set(new) => (Some(new), Answer::Value(value)),
            Self::CompareExchange(expected, new) if value == expected => {
                (Some(new), Answer::Value(value))
            }
            Self::CompareExchange(..) => (set, Answer::Found(value)),
            Self::Reset => (Some(0), Answer::Value(value)),
            Self::Init(new) => (set.or(Some(new)), Answer::Begun(set.is_none())),
            Self::Delete => (None, Answer::Was(set)),
        }
    }

    async fn run(self, counter: Counter) -> Answer {
        let sum = |sum| match sum {
            Ok(sum) => Answer::Value(sum),
            Err(Error::Overflow { value, .. }) => Answer::Overflow(value),
            Err(error) => panic!("{error}"),
        };
        let id = || format!("{:032x}", rand::random::<u128>());
        match self {
            Self::Get => Answer::Value(counter.get().await.unwrap()),
            Self::GetIfSet => Answer::Was(counter.get_if_set().await.unwrap()),
            Self::Add(delta) => sum(counter.add(delta).await),
            Self::AddOnce(delta) => sum(counter.add_once(&id(), delta).await),
            Self::AddWithin(delta, low, high) => {
                let sum = counter.add_within(delta, low..=high).await.unwrap();
                sum.map_or(Answer::Refused, Answer::Value)
            }
            Self::AddOnceWithin(delta, low, high) => {
                let sum = counter.add_once_within(&id(), delta, low..=high).await;
                sum.unwrap().map_or(Answer::Refused, Answer::Value)
            }
            Self::Set(new) => Answer::Value(counter.set(new).await.unwrap()),
            Self::CompareExchange(expected, new) => {
                let seen = counter.compare_exchange(expected, new).await.unwrap();
                seen.map_or_else(Answer::Found, Answer::Value)
            }
            Self::Reset => Answer::Value(counter.reset().await.unwrap()),
            Self::Init(new) => Answer::Begun(counter.init(new).await.unwrap()),
            Self::Delete => Answer::Was(counter.delete().await.unwrap()),
        }
    }
}

type Values = HashSet<Option<i64>>;

/// What the counter may be set to after `done`, in whatever order, if it was one of `before`; nothing
/// if no order explains the answers.
fn explain(before: &Values, done: &[(Operation, Answer)]) -> Values {
    let all = (1_u32 << done.len()) - 1;
    let mut open: Vec<(u32, Option<i64>)> = before.iter().map(|value| (0, *value)).collect();
    let mut seen: HashSet<(u32, Option<i64>)> = open.iter().copied().collect();
    while let Some((past, value)) = open.pop() {
        for (position, (operation, answer)) in done.iter().enumerate() {
            let (after, told) = operation.on(value);
            let state = (past | 1 << position, after);
            if past & 1 << position == 0 && told == *answer && seen.insert(state) {
                open.push(state);
            }
        }
    }
    let ends = seen.into_iter().filter(|(past, _)| *past == all);
    ends.map(|(_, value)| value).collect()
}

#[test]
fn the_explanation_can_fail() {
    let zero = HashSet::from([Some(0)]);
    let unset = HashSet::from([None]);
    let add = |value| (Operation::Add(1), Answer::Value(value));
    assert_eq!(explain(&zero, &[add(2), add(1)]), HashSet::from([Some(2)]));
    assert_eq!(explain(&zero, &[add(1), add(1)]), HashSet::new());
    assert_eq!(explain(&zero, &[add(3), add(1)]), HashSet::new());
    let get = (Operation::Get, Answer::Value(2));
    assert_eq!(explain(&zero, &[add(1), get]), HashSet::new());
    let set = (Operation::Set(7), Answer::Value(0));
    assert_eq!(explain(&zero, &[set, add(1)]), HashSet::new());
    let refused = (Operation::AddWithin(-1, 0, 9), Answer::Refused);
    assert_eq!(explain(&zero, &[add(1), refused]), HashSet::from([Some(1)]));
    assert_eq!(explain(&unset, &[refused]), unset);
    let begun = |begun| (Operation::Init(5), Answer::Begun(begun));
    assert_eq!(
        explain(&unset, &[begun(false), begun(true)]),
        HashSet::from([Some(5)])
    );
    assert_eq!(explain(&unset, &[begun(true), begun(true)]), HashSet::new());
    assert_eq!(explain(&zero, &[begun(true)]), HashSet::new());
    let deleted = |was| (Operation::Delete, Answer::Was(was));
    assert_eq!(explain(&zero, &[deleted(Some(0)), deleted(None)]), unset);
    assert_eq!(explain(&unset, &[deleted(Some(0))]), HashSet::new());
    assert_eq!(explain(&zero, &[deleted(Some(1)), add(1)]), unset);
}

fn value() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => -3..=3_i64,
        1 => Just(i64::MIN),
        1 => Just(i64::MAX),
        1 => i64::MAX - 3..=i64::MAX,
        1 => i64::MIN..=i64::MIN + 3,
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        1 => Just(Operation::Get),
        1 => Just(Operation::GetIfSet),
        4 => value().prop_map(Operation::Add),
        // Few kinds of them, so that many merge.
        2 => (prop_oneof![Just(-1), Just(2)], Just(0), Just(3))
            .prop_map(|(delta, low, high)| Operation::AddWithin(delta, low, high)),
        2 => (value(), value(), value())
            .prop_map(|(delta, a, b)| Operation::AddWithin(delta, a.min(b), a.max(b))),
        1 => value().prop_map(Operation::Set),
        1 => (value(), value()).prop_map(|(old, new)| Operation::CompareExchange(old, new)),
        1 => Just(Operation::Reset),
        1 => value().prop_map(Operation::AddOnce),
        1 => (value(), value(), value())
            .prop_map(|(delta, a, b)| Operation::AddOnceWithin(delta, a.min(b), a.max(b))),
        3 => value().prop_map(Operation::Init),
        3 => Just(Operation::Delete),
    ]
}

fn rounds() -> u32 {
    let rounds = std::env::var("TAG_LOCK_TEST_ROUNDS");
    rounds.map_or(1, |rounds| rounds.parse().expect("a number"))
}

#[test]
fn some_order_explains_every_answer() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = runtime.block_on(TestDatabase::new());
    let clients = runtime.block_on(async { [database.client().await, database.client().await] });
    // Steps one after the other; what stands in one step runs at once.
    let steps = prop::collection::vec(prop::collection::vec(operation(), 1..=9), 1..12);
    let config = Config {
        cases: 40 * rounds(),
        failure_persistence: None,
        ..Config::default()
    };
    let case = std::cell::Cell::new(0);
    let result = TestRunner::new(config).run(&steps, |steps| {
        case.set(case.get() + 1);
        let name = format!("n{}", case.get());
        let mut values = HashSet::from([None]);
        for step in steps {
            let answers = runtime.block_on(async {
                let tasks: Vec<_> = step
                    .iter()
                    .enumerate()
                    .map(|(number, operation)| {
                        let counter = clients[number / 5].counter(&name);
                        tokio::spawn(operation.run(counter))
                    })
                    .collect();
                let mut answers = Vec::new();
                for task in tasks {
                    answers.push(task.await.unwrap());
                }
                answers
            });
            let done: Vec<_> = step.into_iter().zip(answers).collect();
            let after = explain(&values, &done);
            prop_assert!(
                !after.is_empty(),
                "from {values:?}, no order gives {done:?}"
            );
            values = after;
        }
        let left = clients[0].counter(&name);
        let left = runtime.block_on(left.get_if_set()).unwrap();
        prop_assert!(values.contains(&left), "{left:?} was left, not {values:?}");
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    runtime.block_on(database.remove());
}

/// How many counters are changed at once, each by one operation.
const ROWS: usize = 64;

/// Whether a counter has a window after an operation which asks for one or not, if it had one before.
fn window(had: Option<bool>, operation: Operation, answer: Answer, asked: bool) -> bool {
    let changes = match answer {
        Answer::Value(_) => !matches!(operation, Operation::Get),
        Answer::Begun(begun) => begun,
        Answer::Refused | Answer::Overflow(_) | Answer::Found(_) | Answer::Was(_) => false,
    };
    let had_one = had.unwrap_or_default();
    let begins = had.is_none() || matches!(operation, Operation::Reset) || (asked && !had_one);
    if changes && begins { asked } else { had_one }
}

/// A packet of many rows does to each what was asked for it, and tells each what came of that: begins some, with a window or without,
/// deletes others, and changes the rest.
#[test]
fn each_row_of_a_packet_has_what_was_asked_for_it() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let database = runtime.block_on(TestDatabase::new());
    let client = runtime.block_on(connected(patient(&database.url).lanes(1)));
    let mut connection = runtime.block_on(database.connection());
    let step = prop::collection::vec((operation(), any::<bool>()), ROWS);
    let config = Config {
        cases: 6 * rounds(),
        failure_persistence: None,
        ..Config::default()
    };
    let (case, asked) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let result = TestRunner::new(config).run(&prop::collection::vec(step, 4..10), |steps| {
        case.set(case.get() + 1);
        let prefix = format!("{}:", case.get());
        let names: Vec<String> = (0..ROWS).map(|row| format!("{prefix}{row:02}")).collect();
        // What each is set to, and whether it has a window.
        let mut model: Vec<Option<(i64, bool)>> = vec![None; ROWS];
        for step in steps {
            let runs = step.iter().zip(&names).map(|((operation, window), name)| {
                let counter = client.counter(name);
                let window = if *window { HOUR } else { Duration::ZERO };
                operation.run(counter.window(window))
            });
            let answers = runtime.block_on(join_all(runs));
            asked.set(asked.get() + ROWS);
            for (row, ((operation, windowed), answer)) in step.into_iter().zip(answers).enumerate()
            {
                let before = model[row];
                let (after, told) = operation.on(before.map(|(value, _)| value));
                prop_assert_eq!(answer, told, "{:?} of {:?}", operation, before);
                let had = before.map(|(_, window)| window);
                let windowed = window(had, operation, answer, windowed);
                model[row] = after.map(|value| (value, windowed));
            }
            let listed = runtime.block_on(client.list_counters(&prefix, None, 100));
            let listed = listed.unwrap().into_iter();
            let listed: BTreeMap<String, (i64, bool)> = listed
                .map(|counter| (counter.name, (counter.value, counter.window_ends.is_some())))
                .collect();
            let set = names.iter().cloned().zip(&model);
            let set: BTreeMap<String, (i64, bool)> = set
                .filter_map(|(name, set)| Some((name, (*set)?)))
                .collect();
            prop_assert_eq!(listed, set);
        }
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    let sent = "SELECT CAST(SUM(seq) AS SIGNED) FROM t_tag_lock_lane";
    let sent = runtime.block_on(number(&mut connection, sent));
    let sent = usize::try_from(sent).unwrap();
    assert!(sent < asked.get() / 4, "{sent} packets for {asked:?}");
    runtime.block_on(database.remove());
}
