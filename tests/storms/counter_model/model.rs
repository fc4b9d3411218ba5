//! The counter itself, in a few lines for each operation; and the search for an order of calls that explains their answers.

use std::collections::HashSet;
use std::time::Duration;

use proptest::prelude::*;
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;
use tag_lock::{Counter, Error, LockClient};

const HOUR: Duration = Duration::from_secs(3_600);

/// What each id of a counter stands for: what it adds, and between which values.
const IDS: [(i64, i64, i64); 4] = [
    (1, i64::MIN, i64::MAX),
    (-1, 0, 3),
    (2, 0, 3),
    (i64::MAX, i64::MIN, i64::MAX),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Get,
    GetIfSet,
    Add(i64),
    AddWithin(i64, i64, i64),
    /// With one of [`IDS`], which may have been used before.
    AddOnce(usize),
    /// In a transaction, which commits or not.
    AddIn(i64, bool),
    Set(i64),
    CompareExchange(i64, i64),
    Reset,
    Init(i64),
    Delete,
    Purge,
}

/// An operation, and whether the caller's counter has a window.
pub type Call = (Operation, bool);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    Value(i64),
    Refused,
    /// With the value that was in the way.
    Overflow(i64),
    Found(i64),
    /// What it was set to, if it was.
    Was(Option<i64>),
    /// Whether it was set by this.
    Begun(bool),
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Window {
    Without,
    Runs,
    Ended,
}

/// What a counter is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Set {
    pub value: i64,
    pub window: Window,
}

/// A counter, and what came of its ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    pub set: Option<Set>,
    ids: [Option<Answer>; IDS.len()],
}

impl State {
    /// Set to `value` by a call that asks for a window or not, and that begins a new one or not.
    fn with(self, value: i64, asks: bool, restarts: bool) -> Self {
        let begins = match self.set.map(|set| set.window) {
            None | Some(Window::Ended) => true,
            Some(Window::Without) => restarts || asks,
            Some(Window::Runs) => restarts,
        };
        let window = match self.set {
            Some(set) if !begins => set.window,
            _ if asks => Window::Runs,
            _ => Window::Without,
        };
        let set = Some(Set { value, window });
        Self { set, ..self }
    }

    /// Its window, if it has one, is over.
    #[must_use]
    pub fn ended(self) -> Self {
        let over = |set: Set| match set.window {
            Window::Without => set,
            Window::Runs | Window::Ended => Set {
                value: 0,
                window: Window::Ended,
            },
        };
        Self {
            set: self.set.map(over),
            ..self
        }
    }

    fn added(self, asks: bool, delta: i64, low: i64, high: i64) -> (Self, Answer) {
        let value = self.set.map_or(0, |set| set.value);
        match value.checked_add(delta) {
            Some(sum) if (low..=high).contains(&sum) => {
                (self.with(sum, asks, false), Answer::Value(sum))
            }
            None if (low, high) == (i64::MIN, i64::MAX) => (self, Answer::Overflow(value)),
            _ => (self, Answer::Refused),
        }
    }

    /// What it may be after a call, with the answer.
    pub fn after(self, (operation, asks): Call) -> Vec<(Self, Answer)> {
        let was = self.set.map(|set| set.value);
        let value = was.unwrap_or_default();
        let unset = Self { set: None, ..self };
        let one = match operation {
            Operation::Get => (self, Answer::Value(value)),
            Operation::GetIfSet => (self, Answer::Was(was)),
            Operation::Add(delta) => self.added(asks, delta, i64::MIN, i64::MAX),
            Operation::AddWithin(delta, low, high) => match self.added(asks, delta, low, high) {
                (state, Answer::Overflow(_)) => (state, Answer::Refused),
                sum => sum,
            },
            Operation::AddOnce(id) => {
                if let Some(answer) = self.ids[id] {
                    return vec![(self, answer)];
                }
                let (delta, low, high) = IDS[id];
                let (mut state, answer) = self.added(asks, delta, low, high);
                state.ids[id] = Some(answer);
                (state, answer)
            }
            Operation::AddIn(delta, commits) => {
                let (state, answer) = self.added(asks, delta, i64::MIN, i64::MAX);
                (if commits { state } else { self }, answer)
            }
            Operation::Set(new) => (self.with(new, asks, false), Answer::Value(value)),
            Operation::CompareExchange(expected, new) if value == expected => {
                (self.with(new, asks, false), Answer::Value(value))
            }
            Operation::CompareExchange(..) => (self, Answer::Found(value)),
            Operation::Reset => (self.with(0, asks, true), Answer::Value(value)),
            Operation::Init(new) if was.is_none() => {
                (self.with(new, asks, false), Answer::Begun(true))
            }
            Operation::Init(_) => (self, Answer::Begun(false)),
            Operation::Delete => (unset, Answer::Was(was)),
            // It takes what nobody has touched since long before, which the model does not know, and leaves what is locked.
            Operation::Purge => {
                let mut all = vec![(self, Answer::Done)];
                if self.set.is_some_and(|set| set.window == Window::Ended) {
                    all.push((unset, Answer::Done));
                }
                return all;
            }
        };
        vec![one]
    }
}

/// What a counter may be after `done`, in whatever order, if it was one of `before`; nothing if no order explains
/// the answers.
pub fn explain(before: &HashSet<State>, done: &[(Call, Answer)]) -> HashSet<State> {
    let all = (1_u32 << done.len()) - 1;
    let mut open: Vec<(u32, State)> = before.iter().map(|state| (0, *state)).collect();
    let mut seen: HashSet<(u32, State)> = open.iter().copied().collect();
    while let Some((past, state)) = open.pop() {
        for (position, (call, answer)) in done.iter().enumerate() {
            if past & 1 << position != 0 {
                continue;
            }
            for (after, told) in state.after(*call) {
                let next = (past | 1 << position, after);
                if told == *answer && seen.insert(next) {
                    open.push(next);
                }
            }
        }
    }
    let ends = seen.into_iter().filter(|(past, _)| *past == all);
    ends.map(|(_, state)| state).collect()
}

fn sum(result: Result<i64, Error>) -> Answer {
    match result {
        Ok(sum) => Answer::Value(sum),
        Err(Error::Overflow { value, .. }) => Answer::Overflow(value),
        Err(error) => panic!("{error}"),
    }
}

/// Makes a call on the counter of this name. `connection` is the application's own.
pub async fn make(
    call: Call,
    client: LockClient,
    name: &str,
    connection: Option<&mut MySqlConnection>,
) -> Answer {
    let (operation, asks) = call;
    let counter: Counter = client.counter(name);
    let counter = counter.window(if asks { HOUR } else { Duration::ZERO });
    match operation {
        Operation::Get => Answer::Value(counter.get().await.unwrap()),
        Operation::GetIfSet => Answer::Was(counter.get_if_set().await.unwrap()),
        Operation::Add(delta) => sum(counter.add(delta).await),
        Operation::AddWithin(delta, low, high) => {
            let sum = counter.add_within(delta, low..=high).await.unwrap();
            sum.map_or(Answer::Refused, Answer::Value)
        }
        Operation::AddOnce(id) => {
            let (delta, low, high) = IDS[id];
            let id = format!("{name} {id}");
            if (low, high) == (i64::MIN, i64::MAX) {
                return sum(counter.add_once(&id, delta).await);
            }
            let sum = counter.add_once_within(&id, delta, low..=high).await;
            sum.unwrap().map_or(Answer::Refused, Answer::Value)
        }
        Operation::AddIn(delta, commits) => {
            let connection = connection.expect("a connection");
            loop {
                let mut transaction = connection.begin().await.unwrap();
                let added = counter.add_in(&mut transaction, delta).await;
                tokio::task::yield_now().await;
                // A purge took its row: what makes rows look old here does so also where one was touched just now.
                let interrupted = matches!(added, Err(Error::Interrupted { .. }));
                if commits && !interrupted {
                    transaction.commit().await.unwrap();
                } else {
                    transaction.rollback().await.unwrap();
                }
                if !interrupted {
                    return sum(added);
                }
            }
        }
        Operation::Set(new) => Answer::Value(counter.set(new).await.unwrap()),
        Operation::CompareExchange(expected, new) => {
            let seen = counter.compare_exchange(expected, new).await.unwrap();
            seen.map_or_else(Answer::Found, Answer::Value)
        }
        Operation::Reset => Answer::Value(counter.reset().await.unwrap()),
        Operation::Init(new) => Answer::Begun(counter.init(new).await.unwrap()),
        Operation::Delete => Answer::Was(counter.delete().await.unwrap()),
        Operation::Purge => {
            // A purge whose connection is cut says so, and leaves the rest to the next one.
            let _ = client.purge(HOUR).await;
            Answer::Done
        }
    }
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

/// A change or a reading of one counter by a packet, or by a look.
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
        2 => (0..IDS.len()).prop_map(Operation::AddOnce),
        1 => value().prop_map(Operation::Set),
        1 => (value(), value()).prop_map(|(old, new)| Operation::CompareExchange(old, new)),
        1 => Just(Operation::Reset),
        3 => value().prop_map(Operation::Init),
        3 => Just(Operation::Delete),
    ]
}

pub fn call() -> impl Strategy<Value = Call> {
    (operation(), prop::bool::weighted(0.3))
}

/// The same, and what else may happen to a counter meanwhile.
pub fn any_call() -> impl Strategy<Value = Call> {
    prop_oneof![
        12 => call(),
        1 => (value(), any::<bool>()).prop_map(|(delta, commits)| (Operation::AddIn(delta, commits), false)),
        1 => Just((Operation::Purge, false)),
    ]
}

#[test]
fn the_explanation_can_fail() {
    let state = |set: Option<i64>| {
        let set = set.map(|value| Set {
            value,
            window: Window::Without,
        });
        State {
            set,
            ..State::default()
        }
    };
    let only = |set| HashSet::from([state(set)]);
    let none: HashSet<State> = HashSet::new();
    let explained = |before, done: &[(Operation, Answer)]| {
        let done: Vec<(Call, Answer)> = done
            .iter()
            .map(|(operation, answer)| ((*operation, false), *answer))
            .collect();
        explain(&only(before), &done)
    };
    let add = |value| (Operation::Add(1), Answer::Value(value));
    assert_eq!(explained(Some(0), &[add(2), add(1)]), only(Some(2)));
    assert_eq!(explained(Some(0), &[add(1), add(1)]), none);
    assert_eq!(explained(Some(0), &[add(3), add(1)]), none);
    let get = (Operation::Get, Answer::Value(2));
    assert_eq!(explained(Some(0), &[add(1), get]), none);
    let set = (Operation::Set(7), Answer::Value(0));
    assert_eq!(explained(Some(0), &[set, add(1)]), none);
    let refused = (Operation::AddWithin(-1, 0, 9), Answer::Refused);
    assert_eq!(explained(Some(0), &[add(1), refused]), only(Some(1)));
    assert_eq!(explained(None, &[refused]), only(None));
    let begun = |begun| (Operation::Init(5), Answer::Begun(begun));
    assert_eq!(explained(None, &[begun(false), begun(true)]), only(Some(5)));
    assert_eq!(explained(None, &[begun(true), begun(true)]), none);
    assert_eq!(explained(Some(0), &[begun(true)]), none);
    let deleted = |was| (Operation::Delete, Answer::Was(was));
    let twice = [deleted(Some(0)), deleted(None)];
    assert_eq!(explained(Some(0), &twice), only(None));
    assert_eq!(explained(None, &[deleted(Some(0))]), none);
    assert_eq!(explained(Some(0), &[deleted(Some(1)), add(1)]), only(None));
    let purged = (Operation::Purge, Answer::Done);
    assert_eq!(explained(Some(0), &[purged]), only(Some(0)));
    assert_eq!(explained(Some(0), &[purged, begun(true)]), none);
    let once = |value| (Operation::AddOnce(0), Answer::Value(value));
    assert_eq!(explained(Some(0), &[once(1), once(2)]), none);
    assert_eq!(explained(Some(0), &[once(1), once(1), get]), none);
    assert_eq!(explained(Some(0), &[once(1), once(1), add(2)]).len(), 1);
    let undone = (Operation::AddIn(1, false), Answer::Value(1));
    assert_eq!(explained(Some(0), &[undone]), only(Some(0)));
    // A window that runs stays, one that has ended may be purged, and then the counter may be begun.
    let windowed = explain(
        &only(None),
        &[((Operation::Set(4), true), Answer::Value(0))],
    );
    let ended: HashSet<State> = windowed.iter().map(|state| state.ended()).collect();
    let purged = ((Operation::Purge, false), Answer::Done);
    let begun = ((Operation::Init(5), false), Answer::Begun(true));
    assert_eq!(explain(&windowed, &[purged, begun]), none);
    assert_eq!(explain(&ended, &[begun]), none);
    assert_eq!(explain(&ended, &[purged, begun]), only(Some(5)));
}
