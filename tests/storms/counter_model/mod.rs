//! Random operations on counters, many at once, against a model: what the callers were told must be
//! what some order of the operations, one after the other, would have told them. So it is at rest, and while queries and connections
//! are killed and cut.
//!
//! `TAG_LOCK_TEST_ROUNDS` multiplies the number of cases.

mod model;

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::proxy::{Command, Fault, Proxy, RandomFaults, Upstream};
use crate::support::{TestDatabase, connected, number, patient, run};
use futures_util::future::join_all;
use model::{Call, Set, State, Window, any_call, call, explain, make};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rand::RngExt;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};
use tag_lock::{LockClient, LockClientBuilder};

fn rounds() -> u32 {
    let rounds = std::env::var("TAG_LOCK_TEST_ROUNDS");
    rounds.map_or(1, |rounds| rounds.parse().expect("a number"))
}

fn config(cases: u32) -> Config {
    Config {
        cases: cases * rounds(),
        failure_persistence: None,
        ..Config::default()
    }
}

/// How many calls are made at once.
const AT_ONCE: usize = 9;

/// What the calls of a history need.
struct Stage {
    clients: [LockClient; 2],
    /// The application's own: one for each call, and one more.
    connections: Vec<MySqlConnection>,
}

impl Stage {
    async fn new(database: &TestDatabase, clients: [LockClientBuilder; 2]) -> Self {
        let [first, second] = clients.map(connected);
        let mut connections = Vec::new();
        for _ in 0..=AT_ONCE {
            connections.push(database.connection().await);
        }
        Self {
            clients: [first.await, second.await],
            connections,
        }
    }

    /// Makes calls at once, and checks that they can be explained; what the counter may be then.
    async fn step(
        &mut self,
        name: &str,
        before: &HashSet<State>,
        ends: bool,
        calls: &[Call],
    ) -> Result<HashSet<State>, TestCaseError> {
        let (own, others) = self.connections.split_last_mut().expect("a connection");
        // Long enough ago for a purge.
        let of = format!("WHERE lock_name = '{name}' AND kind = 2");
        let age = "SET modify_time = modify_time - INTERVAL 2 HOUR";
        run(own, &format!("UPDATE t_tag_lock {age} {of}")).await;
        let mut before = before.clone();
        if ends {
            let windows = "deadline > '1970-01-01' AND deadline < '9999-12-31'";
            let end = format!("UPDATE t_tag_lock SET deadline = '2020-01-01' {of} AND {windows}");
            run(own, &end).await;
            before = before.into_iter().map(State::ended).collect();
        }
        let calls = calls.iter().zip(others).enumerate();
        let made = calls.map(async |(number, (call, connection))| {
            let client = self.clients[number % 2].clone();
            (*call, make(*call, client, name, Some(connection)).await)
        });
        let done = join_all(made).await;
        let after = explain(&before, &done);
        prop_assert!(
            !after.is_empty(),
            "from {before:?}, no order gives {done:?}"
        );
        Ok(after)
    }
}

/// Histories of a counter each, in steps one after the other; what stands in one step runs at once.
fn explain_histories(runtime: &tokio::runtime::Runtime, stage: &mut Stage, cases: u32) {
    let calls = prop::collection::vec(any_call(), 1..=AT_ONCE);
    let steps = prop::collection::vec((prop::bool::weighted(0.2), calls), 1..12);
    let case = Cell::new(0);
    let stage = std::cell::RefCell::new(stage);
    let result = TestRunner::new(config(cases)).run(&steps, |steps| {
        case.set(case.get() + 1);
        let name = format!("n{}", case.get());
        let mut stage = stage.borrow_mut();
        let mut states = HashSet::from([State::default()]);
        for (ends, calls) in steps {
            states = runtime.block_on(stage.step(&name, &states, ends, &calls))?;
        }
        let left = stage.clients[0].counter(&name);
        let left = runtime.block_on(left.get_if_set()).unwrap();
        let explained = |state: &State| state.set.map(|set| set.value) == left;
        prop_assert!(
            states.iter().any(explained),
            "{left:?} was left, not {states:?}"
        );
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn some_order_explains_every_answer() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = runtime.block_on(TestDatabase::new());
    let clients = [patient(&database.url), patient(&database.url)];
    let mut stage = runtime.block_on(Stage::new(&database, clients));
    explain_histories(&runtime, &mut stage, 40);
    runtime.block_on(database.remove());
}

/// Kills queries and connections that are not the application's, at random, for ever.
async fn kill(
    mut killer: MySqlConnection,
    database: String,
    spared: HashSet<i64>,
    killed: Arc<AtomicU64>,
) {
    loop {
        let sql = format!(
            "SELECT CAST(id AS SIGNED) FROM information_schema.processlist \
             WHERE db = '{database}' AND id <> CONNECTION_ID()"
        );
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut killer);
        let ids = rows.await.unwrap().into_iter();
        let ids: Vec<i64> = ids
            .map(|row| row.try_get_unchecked(0).unwrap())
            .filter(|id| !spared.contains(id))
            .collect();
        if !ids.is_empty() {
            let id = ids[rand::rng().random_range(0..ids.len())];
            let what = if rand::rng().random_ratio(1, 4) {
                "CONNECTION"
            } else {
                "QUERY"
            };
            // It may be gone by now.
            let sql = AssertSqlSafe(format!("KILL {what} {id}"));
            let result = sqlx::raw_sql(sql).execute(&mut killer).await;
            killed.fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
        }
        let pause = Duration::from_micros(rand::rng().random_range(0..40_000));
        tokio::time::sleep(pause).await;
    }
}

#[test]
fn some_order_explains_every_answer_while_connections_break() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = runtime.block_on(TestDatabase::new());
    let proxy = runtime.block_on(Proxy::before(&database.url)).unwrap();
    // A killed packet may never be answered: that costs its time limit, and no request's time is over meanwhile.
    let client = |url: &str| {
        LockClient::builder(url.parse().unwrap()).request_timeout(Duration::from_secs(1_800))
    };
    let clients = [client(&database.url), client(&proxy.url(&database.url))];
    let mut stage = runtime.block_on(Stage::new(&database, clients));
    let faults = RandomFaults::new(rand::random())
        .only(Command::contains_commit)
        .with(0.04, Fault::CutAfter(Upstream::Forwarded))
        .with(0.04, Fault::CutAfter(Upstream::Replied))
        .with(0.04, Fault::CutBefore)
        .with(0.02, Fault::Truncate)
        .with(0.02, Fault::TruncateReply);
    proxy.on_command(faults.into_hook());
    let mut spared = HashSet::new();
    for connection in &mut stage.connections {
        let id = runtime.block_on(number(connection, "SELECT CAST(CONNECTION_ID() AS SIGNED)"));
        spared.insert(id);
    }
    let killer = runtime.block_on(database.connection());
    let killed = Arc::new(AtomicU64::new(0));
    let killing = kill(killer, database.name.clone(), spared, Arc::clone(&killed));
    let killing = runtime.spawn(killing);
    explain_histories(&runtime, &mut stage, 10);
    assert!(!killing.is_finished(), "the killer goes on");
    killing.abort();
    let (killed, cut) = (
        killed.load(Ordering::Relaxed),
        proxy.counters().all_faults(),
    );
    println!("{killed} kills, {cut} cuts");
    assert!(killed > 0 && cut > 0);
    runtime.block_on(database.remove());
}

/// How many counters are changed at once, each by one operation.
const ROWS: usize = 64;

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
    let step = prop::collection::vec(call(), ROWS);
    let (case, asked) = (Cell::new(0), Cell::new(0));
    let result = TestRunner::new(config(6)).run(&prop::collection::vec(step, 4..10), |steps| {
        case.set(case.get() + 1);
        let prefix = format!("{}:", case.get());
        let names: Vec<String> = (0..ROWS).map(|row| format!("{prefix}{row:02}")).collect();
        let mut states = vec![State::default(); ROWS];
        for step in steps {
            let calls = step.iter().zip(&names);
            let made = calls.map(|(call, name)| make(*call, client.clone(), name, None));
            let answers = runtime.block_on(join_all(made));
            asked.set(asked.get() + ROWS);
            for ((state, call), answer) in states.iter_mut().zip(step).zip(answers) {
                let after = state.after(call);
                prop_assert_eq!(answer, after[0].1, "{:?} of {:?}", call, state);
                *state = after[0].0;
            }
            let listed = runtime.block_on(client.list_counters(&prefix, None, 100));
            let listed = listed.unwrap().into_iter();
            let listed: BTreeMap<String, Set> = listed
                .map(|counter| {
                    let window = match counter.window_ends {
                        Some(_) => Window::Runs,
                        None => Window::Without,
                    };
                    let value = counter.value;
                    (counter.name, Set { value, window })
                })
                .collect();
            let set = names.iter().cloned().zip(&states);
            let set: BTreeMap<String, Set> = set
                .filter_map(|(name, state)| Some((name, state.set?)))
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
