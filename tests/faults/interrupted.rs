//! A statement that the server undoes and acknowledges all the same: no call in a transaction takes that for an answer.
//!
//! `TAG_LOCK_TEST_ROUNDS` sets how many calls are made while queries are killed.

use std::time::{Duration, Instant};

use crate::support::calls::{CALLS, Call, Stage};
use crate::support::proxy::{Command, Fault, Proxy, once};
use crate::support::{connect, is_mariadb, number, run};
use rand::RngExt;
use sqlx::AssertSqlSafe;
use sqlx::mysql::MySqlConnection;
use tag_lock::Error;
use tokio::sync::mpsc;

const LEVELS: [&str; 4] = [
    "READ UNCOMMITTED",
    "READ COMMITTED",
    "REPEATABLE READ",
    "SERIALIZABLE",
];

fn rounds() -> usize {
    std::env::var("TAG_LOCK_TEST_ROUNDS").map_or(1_400, |rounds| rounds.parse().expect("a number"))
}

#[tokio::test]
async fn an_acknowledgement_that_shows_no_row_is_no_answer() {
    let stage = Stage::new().await;
    let proxy = Proxy::before(&stage.database.url).await.expect("a proxy");
    let mut connection = connect(&proxy.url(&stage.database.url)).await;
    for level in LEVELS {
        for call in CALLS {
            let begin = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
            run(&mut connection, &begin).await;
            run(&mut connection, "START TRANSACTION").await;
            let changes = |command: &Command| command.contains_word("UPDATE");
            proxy.on_command(once(changes, Fault::Undone));
            let answer = stage.call(call, &mut connection).await;
            assert!(
                matches!(&answer, Err(Error::Interrupted { source: None, .. })),
                "{level}: {call:?}: {answer:?}"
            );
            let again = stage.call(call, &mut connection).await;
            again.unwrap_or_else(|error| panic!("{level}: {call:?}: {error}"));
            run(&mut connection, "ROLLBACK").await;
        }
    }
    stage.database.remove().await;
}

/// A guard whose row is gone has lost its lease, and is not told to try again for ever.
#[tokio::test]
async fn a_lease_whose_row_was_deleted_is_lost() {
    let stage = Stage::new().await;
    let mut connection = stage.database.connection().await;
    let delete = "DELETE FROM t_tag_lock WHERE lock_name='held'";
    run(&mut connection, delete).await;
    for level in LEVELS {
        for call in [Call::Verify, Call::Release] {
            let begin = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
            run(&mut connection, &begin).await;
            run(&mut connection, "START TRANSACTION").await;
            let answer = stage.call(call, &mut connection).await;
            assert!(
                matches!(answer, Err(Error::LockLost { .. })),
                "{level}: {answer:?}"
            );
            run(&mut connection, "ROLLBACK").await;
        }
    }
    stage.database.remove().await;
}

/// Runs a statement until no kill hits it.
async fn surely(connection: &mut MySqlConnection, sql: &str) {
    let attempt = async |connection: &mut MySqlConnection| {
        let sql = AssertSqlSafe(sql.to_owned());
        sqlx::raw_sql(sql).execute(connection).await
    };
    while let Err(error) = attempt(connection).await {
        assert!(error.as_database_error().is_some(), "{sql}: {error}");
    }
}

/// Kills the query of a connection whenever it is told to, in a moment of its own, and says when it has done so.
async fn kill(mut killer: MySqlConnection, mut begin: mpsc::Receiver<i64>, done: mpsc::Sender<()>) {
    while let Some(id) = begin.recv().await {
        let pause = Duration::from_micros(rand::rng().random_range(0..1_500));
        let start = Instant::now();
        while start.elapsed() < pause {
            tokio::task::yield_now().await;
        }
        run(&mut killer, &format!("KILL QUERY {id}")).await;
        done.send(()).await.expect("somebody waits");
    }
}

/// How the calls ended that were disturbed.
#[derive(Debug, Default)]
struct Answers {
    granted: usize,
    interrupted: usize,
    /// Acknowledged by the server, which had undone it.
    undone: usize,
    /// MySQL forgot the rest of what was sent, and closed the connection.
    closed: usize,
}

/// Calls, disturbed by `disturb` and at rest after `calm`, in transactions that commit what they add.
async fn make_calls(
    mut disturb: impl AsyncFnMut(&mut MySqlConnection, &Answers),
    mut calm: impl AsyncFnMut(&mut MySqlConnection),
    stage: &Stage,
    connection: &mut MySqlConnection,
) -> Answers {
    let mut answers = Answers::default();
    let mut value = 0;
    for round in 0..rounds() {
        let call = CALLS[round % CALLS.len()];
        let level = LEVELS[round / CALLS.len() % LEVELS.len()];
        let begin = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
        surely(connection, &begin).await;
        surely(connection, "START TRANSACTION").await;
        disturb(connection, &answers).await;
        let answer = stage.call(call, connection).await;
        calm(connection).await;
        if let Err(Error::Unreachable { .. }) = &answer
            && !is_mariadb()
        {
            answers.closed += 1;
            *connection = stage.database.connection().await;
            continue;
        }
        // A kill that came late hits this.
        surely(connection, "DO 0").await;
        match answer {
            Ok(counted) => {
                answers.granted += 1;
                let added = i64::from(matches!(call, Call::Add | Call::AddWithin));
                if let Some(counted) = counted {
                    assert_eq!(counted, value + added, "{level}: {call:?}");
                }
                value += added;
                run(connection, if added == 1 { "COMMIT" } else { "ROLLBACK" }).await;
            }
            Err(Error::Interrupted { source, .. }) => {
                answers.interrupted += 1;
                answers.undone += usize::from(source.is_none());
                run(connection, "ROLLBACK").await;
            }
            Err(error) => panic!("{level}: {call:?}, the {round}th: {error}"),
        }
    }
    let sum = "SELECT count FROM t_tag_lock WHERE lock_name='c' AND kind=2";
    assert_eq!(
        number(connection, sum).await,
        value,
        "what was acknowledged"
    );
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_queries_are_no_answers() {
    let stage = Stage::new().await;
    let mut connection = stage.database.connection().await;
    let (begin, begins) = mpsc::channel(1);
    let (ends, mut end) = mpsc::channel(1);
    let killing = tokio::spawn(kill(stage.database.connection().await, begins, ends));
    let disturb = async |connection: &mut MySqlConnection, _: &Answers| {
        let id = number(connection, "SELECT CONNECTION_ID()").await;
        begin.send(id).await.expect("a killer");
    };
    let calm = async |_: &mut MySqlConnection| end.recv().await.expect("a killer");
    let answers = make_calls(disturb, calm, &stage, &mut connection).await;
    println!("under KILL QUERY: {answers:?}");
    assert!(
        answers.granted > 0 && answers.interrupted > 0,
        "{answers:?}"
    );
    drop(begin);
    killing.await.expect("a killer");
    stage.database.remove().await;
}

/// MariaDB only: MySQL limits reads, and none of a transaction's.
#[tokio::test]
async fn statements_out_of_time_are_no_answers() {
    if !is_mariadb() {
        return;
    }
    let stage = Stage::new().await;
    let mut connection = stage.database.connection().await;
    // In seconds; such that one in four is out of time, on every machine.
    let mut limit = 0.001;
    let disturb = async |connection: &mut MySqlConnection, answers: &Answers| {
        limit *= if answers.granted < 3 * answers.interrupted {
            1.1
        } else {
            0.9
        };
        let seconds = f64::max(limit, 0.000_02) * rand::rng().random_range(0.5..1.5);
        surely(connection, &format!("SET max_statement_time={seconds:.6}")).await;
    };
    let calm = async |connection: &mut MySqlConnection| {
        surely(connection, "SET max_statement_time=0").await;
    };
    let answers = make_calls(disturb, calm, &stage, &mut connection).await;
    println!("under max_statement_time: {answers:?}");
    assert!(
        answers.granted > 0 && answers.interrupted > 0,
        "{answers:?}"
    );
    stage.database.remove().await;
}
