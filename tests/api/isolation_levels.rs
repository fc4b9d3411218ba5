//! Each call in a transaction under each isolation level: first in the transaction, behind another statement, and where
//! it has to wait.
//!
//! `TAG_LOCK_TEST_ROUNDS` sets how many transactions each task of the last test runs, under each level.

use std::sync::Arc;
use std::time::Duration;

use crate::support::calls::{CALLS, Call};
use crate::support::{TestDatabase, eventually, no_deadlocks_since, number, run, server_deadlocks};
use futures_util::future::join_all;
use sqlx::Row;
use sqlx::mysql::MySqlConnection;
use tag_lock::{Error, LockClient, LockGuard};

const LEVELS: [&str; 4] = [
    "READ UNCOMMITTED",
    "READ COMMITTED",
    "REPEATABLE READ",
    "SERIALIZABLE",
];

fn rounds() -> i64 {
    std::env::var("TAG_LOCK_TEST_ROUNDS").map_or(25, |rounds| rounds.parse().expect("a number"))
}

async fn begin(connection: &mut MySqlConnection, level: &str) {
    let sql = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}; START TRANSACTION");
    run(connection, &sql).await;
}

/// A read of the caller's own: with it, or before, the transaction's snapshot is taken.
async fn read_first(connection: &mut MySqlConnection) {
    number(connection, "SELECT COUNT(*) FROM other").await;
}

/// What the call is about, as a row's `kind`.
fn kind(call: Call) -> u8 {
    match call {
        Call::Verify | Call::Release | Call::Lock | Call::TryLock => 1,
        Call::Add | Call::AddWithin | Call::Get => 2,
    }
}

/// One call on a name.
struct Case {
    client: LockClient,
    name: String,
    call: Call,
    /// The lease that the call is about.
    lease: Option<LockGuard>,
}

impl Case {
    /// Whether it was granted; not if a transaction holds a lock that is only tried.
    async fn run(&self, connection: &mut MySqlConnection) -> Result<bool, Error> {
        let counter = self.client.counter(&self.name);
        let lease = || self.lease.as_ref().expect("a lease");
        match self.call {
            Call::Verify => lease().verify_in(connection).await.map(|()| true),
            Call::Release => lease().release_in(connection).await.map(|()| true),
            Call::Lock => {
                let lock = self.client.lock_in(connection, &self.name).await;
                lock.map(|_| true)
            }
            Call::TryLock => {
                let lock = self.client.try_lock_in(connection, &self.name).await;
                lock.map(|lock| lock.is_some())
            }
            Call::Add => counter.add_in(connection, 1).await.map(|_| true),
            Call::AddWithin => {
                let value = counter.add_within_in(connection, 1, 0..).await;
                value.map(|value| value.is_some())
            }
            Call::Get => counter.get_in(connection).await.map(|_| true),
        }
    }
}

struct Stage {
    database: TestDatabase,
    /// Whether the server fails a transaction that meets a row which is newer than its snapshot.
    compares: bool,
}

impl Stage {
    async fn new() -> Self {
        let database = TestDatabase::new().await;
        let mut connection = database.connection().await;
        let tables = "CREATE TABLE journal (id INT AUTO_INCREMENT PRIMARY KEY); CREATE TABLE other (id INT PRIMARY KEY)";
        run(&mut connection, tables).await;
        let variable = sqlx::raw_sql("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'")
            .fetch_optional(&mut connection)
            .await
            .expect("the server's variables");
        let compares = variable.is_some_and(|row| row.get::<String, _>(1) == "ON");
        println!("innodb_snapshot_isolation: {compares}");
        Self { database, compares }
    }

    /// A call of a client that has not used the name, on a row that is there, or is not.
    async fn case(&self, level: &str, call: Call, exists: bool) -> Case {
        let name = format!("{level} {call:?} {exists}");
        if exists {
            let other = self.database.client().await;
            match kind(call) {
                1 => {
                    let guard = other.lock(&name).acquire().await.expect("acquires");
                    guard.release().await.expect("releases");
                }
                _ => assert_eq!(other.counter(&name).add(0).await.expect("adds"), 0),
            }
        }
        let client = self.database.client().await;
        let lease = if matches!(call, Call::Verify | Call::Release) {
            let lease = client.lock(&name).ttl(Duration::from_secs(3_600));
            Some(lease.auto_renew(false).acquire().await.expect("acquires"))
        } else {
            None
        };
        Case {
            client,
            name,
            call,
            lease,
        }
    }

    /// Whether the transaction's first read fixes what its calls may meet.
    fn is_fixed(&self, level: &str) -> bool {
        self.compares && level == "REPEATABLE READ"
    }

    /// Runs a case while a stranger's transaction holds its row; that commits when the case waits for it.
    async fn wait(&self, case: &Case, connection: &mut MySqlConnection) -> Result<bool, Error> {
        let mut stranger = self.database.connection().await;
        let hold = format!(
            "START TRANSACTION; INSERT INTO journal VALUES (); \
             UPDATE t_tag_lock SET modify_time=UTC_TIMESTAMP(6) WHERE lock_name='{}' AND kind={} AND slot=0",
            case.name,
            kind(case.call)
        );
        run(&mut stranger, &hold).await;
        let id = number(connection, "SELECT CONNECTION_ID()").await;
        let waits = format!(
            "SELECT COUNT(*) FROM information_schema.INNODB_TRX \
             WHERE trx_mysql_thread_id={id} AND trx_state='LOCK WAIT'"
        );
        let mut observer = self.database.connection().await;
        let let_go = async {
            // What is only tried does not wait.
            if case.call != Call::TryLock {
                let observer = tokio::sync::Mutex::new(&mut observer);
                eventually("it waits", async || {
                    // MariaDB's table is a copy, made anew when nobody has read it for 100 ms.
                    tokio::time::sleep(Duration::from_millis(110)).await;
                    number(&mut **observer.lock().await, &waits).await == 1
                })
                .await;
                run(&mut stranger, "COMMIT").await;
            }
        };
        let (answer, ()) = tokio::join!(case.run(connection), let_go);
        run(&mut stranger, "COMMIT").await;
        answer
    }
}

#[tokio::test]
async fn first_in_the_transaction() {
    let stage = Stage::new().await;
    let mut connection = stage.database.connection().await;
    for level in LEVELS {
        for call in CALLS {
            for exists in [false, true] {
                let case = stage.case(level, call, exists).await;
                begin(&mut connection, level).await;
                let answer = case.run(&mut connection).await;
                assert!(matches!(answer, Ok(true)), "{}: {answer:?}", case.name);
                read_first(&mut connection).await;
                run(&mut connection, "COMMIT").await;
            }
        }
    }
    stage.database.remove().await;
}

/// A row that is there is not changed for the call's sake, behind the snapshot. Only what has to be created is newer.
#[tokio::test]
async fn behind_another_statement() {
    let stage = Stage::new().await;
    let mut connection = stage.database.connection().await;
    for level in LEVELS {
        for call in CALLS {
            for exists in [false, true] {
                let case = stage.case(level, call, exists).await;
                begin(&mut connection, level).await;
                read_first(&mut connection).await;
                let mut answer = case.run(&mut connection).await;
                if stage.is_fixed(level) && !exists && case.lease.is_none() {
                    assert!(
                        matches!(answer, Err(Error::StaleSnapshot { .. })),
                        "{}: {answer:?}",
                        case.name
                    );
                    run(&mut connection, "ROLLBACK").await;
                    begin(&mut connection, level).await;
                    read_first(&mut connection).await;
                    answer = case.run(&mut connection).await;
                }
                assert!(matches!(answer, Ok(true)), "{}: {answer:?}", case.name);
                run(&mut connection, "COMMIT").await;
            }
        }
    }
    stage.database.remove().await;
}

/// What it waited for is no reason to fail, and the transaction sees what the one before has committed.
#[tokio::test]
async fn first_in_the_transaction_it_waits() {
    let stage = Stage::new().await;
    let mut connection = stage.database.connection().await;
    for level in LEVELS {
        for call in CALLS {
            let case = stage.case(level, call, true).await;
            let lines = "SELECT COUNT(*) FROM journal";
            let before = number(&mut connection, lines).await;
            begin(&mut connection, level).await;
            let answer = stage.wait(&case, &mut connection).await;
            let granted = call != Call::TryLock;
            assert!(
                matches!(answer, Ok(told) if told == granted),
                "{}: {answer:?}",
                case.name
            );
            if granted {
                assert_eq!(number(&mut connection, lines).await, before + 1, "{level}");
            }
            run(&mut connection, "COMMIT").await;
        }
    }
    stage.database.remove().await;
}

/// Behind a read, a row that was waited for is newer than what was read: where the server compares, it says so.
#[tokio::test]
async fn behind_another_statement_it_waits() {
    let stage = Stage::new().await;
    let mut connection = stage.database.connection().await;
    for level in LEVELS {
        for call in CALLS {
            let case = stage.case(level, call, true).await;
            begin(&mut connection, level).await;
            read_first(&mut connection).await;
            let answer = stage.wait(&case, &mut connection).await;
            let as_it_should = match answer {
                Ok(granted) if call == Call::TryLock => !granted,
                Ok(granted) => granted && !stage.is_fixed(level),
                Err(Error::StaleSnapshot { .. }) => stage.is_fixed(level),
                Err(_) => false,
            };
            assert!(as_it_should, "{}: {answer:?}", case.name);
            run(&mut connection, "ROLLBACK").await;
        }
    }
    stage.database.remove().await;
}

/// Many at once, each first in its transaction: each addition counts, and none fails.
#[tokio::test(flavor = "multi_thread")]
async fn many_transactions_on_one_counter() {
    const TASKS: i64 = 4;
    let stage = Arc::new(Stage::new().await);
    let client = stage.database.client().await;
    let deadlocks = server_deadlocks().await;
    for level in LEVELS {
        let tasks = (0..TASKS).map(|_| {
            let (stage, client) = (Arc::clone(&stage), client.clone());
            tokio::spawn(async move {
                let mut connection = stage.database.connection().await;
                let mut stale = 0;
                for _ in 0..rounds() {
                    begin(&mut connection, level).await;
                    let counter = client.counter(level);
                    match counter.add_within_in(&mut connection, 1, 0..).await {
                        Ok(value) => assert!(value.is_some(), "{level}: in range"),
                        Err(Error::StaleSnapshot { .. }) => stale += 1,
                        Err(error) => panic!("{level}: {error}"),
                    }
                    run(&mut connection, "COMMIT").await;
                }
                stale
            })
        });
        let mut stale = 0;
        for task in join_all(tasks).await {
            stale += task.expect("a task");
        }
        println!("{level}: {stale} of {} were stale", TASKS * rounds());
        assert_eq!(stale, 0, "{level}");
        let value = client.counter(level).get().await.expect("reads");
        assert_eq!(value, TASKS * rounds(), "{level}");
    }
    no_deadlocks_since(deadlocks).await;
}
