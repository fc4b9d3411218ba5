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

use std::collections::HashSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use support::TestDatabase;
use tag_lock::{Error, LockClient};

#[derive(Clone, Copy, Debug)]
enum Operation {
    Get,
    Add(i64),
    AddWithin(i64, i64, i64),
    Set(i64),
    CompareExchange(i64, i64),
    Reset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Value(i64),
    Refused,
    /// With the value that was in the way.
    Overflow(i64),
    Found(i64),
}

impl Operation {
    /// The counter itself, in two lines each: the value afterwards, and the answer.
    fn on(self, value: i64) -> (i64, Answer) {
        match self {
            Self::Get => (value, Answer::Value(value)),
            Self::Add(delta) => match value.checked_add(delta) {
                Some(sum) => (sum, Answer::Value(sum)),
                None => (value, Answer::Overflow(value)),
            },
            Self::AddWithin(delta, low, high) => match value.checked_add(delta) {
                Some(sum) if (low..=high).contains(&sum) => (sum, Answer::Value(sum)),
                _ => (value, Answer::Refused),
            },
            Self::Set(new) => (new, Answer::Value(value)),
            Self::CompareExchange(expected, new) if value == expected => {
                (new, Answer::Value(value))
            }
            Self::CompareExchange(..) => (value, Answer::Found(value)),
            Self::Reset => (0, Answer::Value(value)),
        }
    }

    async fn run(self, client: LockClient, name: String) -> Answer {
        let counter = client.counter(&name);
        match self {
            Self::Get => Answer::Value(counter.get().await.unwrap()),
            Self::Add(delta) => match counter.add(delta).await {
                Ok(sum) => Answer::Value(sum),
                Err(Error::Overflow { value, .. }) => Answer::Overflow(value),
                Err(error) => panic!("{error}"),
            },
            Self::AddWithin(delta, low, high) => {
                let sum = counter.add_within(delta, low..=high).await.unwrap();
                sum.map_or(Answer::Refused, Answer::Value)
            }
            Self::Set(new) => Answer::Value(counter.set(new).await.unwrap()),
            Self::CompareExchange(expected, new) => {
                let seen = counter.compare_exchange(expected, new).await.unwrap();
                seen.map_or_else(Answer::Found, Answer::Value)
            }
            Self::Reset => Answer::Value(counter.reset().await.unwrap()),
        }
    }
}

/// The values at which the counter may stand after `done`, in whatever order, if it stood at one of
/// `before`; none if no order explains the answers.
fn explain(before: &HashSet<i64>, done: &[(Operation, Answer)]) -> HashSet<i64> {
    let all = (1_u32 << done.len()) - 1;
    let mut open: Vec<(u32, i64)> = before.iter().map(|value| (0, *value)).collect();
    let mut seen: HashSet<(u32, i64)> = open.iter().copied().collect();
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
    let zero = HashSet::from([0]);
    let add = |value| (Operation::Add(1), Answer::Value(value));
    assert_eq!(explain(&zero, &[add(2), add(1)]), HashSet::from([2]));
    assert_eq!(explain(&zero, &[add(1), add(1)]), HashSet::new());
    assert_eq!(explain(&zero, &[add(3), add(1)]), HashSet::new());
    let get = (Operation::Get, Answer::Value(2));
    assert_eq!(explain(&zero, &[add(1), get]), HashSet::new());
    let set = (Operation::Set(7), Answer::Value(0));
    assert_eq!(explain(&zero, &[set, add(1)]), HashSet::new());
    let refused = (Operation::AddWithin(-1, 0, 9), Answer::Refused);
    assert_eq!(explain(&zero, &[add(1), refused]), HashSet::from([1]));
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
        4 => value().prop_map(Operation::Add),
        // Few kinds of them, so that many merge.
        2 => (prop_oneof![Just(-1), Just(2)], Just(0), Just(3))
            .prop_map(|(delta, low, high)| Operation::AddWithin(delta, low, high)),
        2 => (value(), value(), value())
            .prop_map(|(delta, a, b)| Operation::AddWithin(delta, a.min(b), a.max(b))),
        1 => value().prop_map(Operation::Set),
        1 => (value(), value()).prop_map(|(old, new)| Operation::CompareExchange(old, new)),
        1 => Just(Operation::Reset),
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
        let mut values = HashSet::from([0]);
        for step in steps {
            let answers = runtime.block_on(async {
                let tasks: Vec<_> = step
                    .iter()
                    .enumerate()
                    .map(|(number, operation)| {
                        let client = clients[number / 5].clone();
                        tokio::spawn(operation.run(client, name.clone()))
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
        let left = runtime.block_on(clients[0].counter(&name).get()).unwrap();
        prop_assert!(values.contains(&left), "{left} was left, not {values:?}");
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    runtime.block_on(database.remove());
}
