//! What the integration tests share. They need a server: run them with `scripts/with-mysql cargo test`.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "written for all tests; each program uses a part of it"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

pub mod account;
pub mod alone;
pub mod calls;
pub mod deadlocks;
pub mod dropping;
pub mod fenced;
pub mod lateness;
pub mod ledger;
pub mod packets;
pub mod processes;
pub mod proxy;
#[cfg(target_os = "linux")]
pub mod wall_clock;

use std::process::Child;
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Row};
use tag_lock::{Error, LockClient, LockClientBuilder};

pub use alone::alone;
pub use deadlocks::{makes_deadlocks, no_deadlocks_since, server_deadlocks};
pub use processes::{in_own_process, spawn_worker};

/// The server's URL, as `scripts/with-mysql` sets it. Without a server a test cannot pass.
pub fn server_url() -> String {
    std::env::var("DATABASE_URL")
        .expect("these tests need a server: run `scripts/with-mysql cargo test`")
}

/// A database of a test's own, with the tables in it.
pub struct TestDatabase {
    pub name: String,
    pub url: String,
}

impl TestDatabase {
    /// Creates an empty database.
    pub async fn empty() -> Self {
        Self::empty_at(&server_url()).await
    }

    /// Creates an empty database on the server of `base`, a URL.
    pub async fn empty_at(base: &str) -> Self {
        let name = format!("t{:016x}", rand::random::<u64>());
        let mut connection = connect(base).await;
        run(
            &mut connection,
            &format!("CREATE DATABASE {name} CHARACTER SET utf8mb4"),
        )
        .await;
        let (head, _) = base.rsplit_once('/').expect("the URL names a database");
        Self {
            url: format!("{head}/{name}"),
            name,
        }
    }

    /// Creates a database and migrates it.
    pub async fn new() -> Self {
        let database = Self::empty().await;
        database.client().await.migrate().await.expect("migrates");
        database
    }

    /// A new client, as another process would have one.
    pub async fn client(&self) -> LockClient {
        connected(patient(&self.url)).await
    }

    /// A plain connection, as the application would have one.
    pub async fn connection(&self) -> MySqlConnection {
        connect(&self.url).await
    }

    /// Drops the database. Not called when a test fails, so that one can look.
    pub async fn remove(self) {
        let mut connection = connect(&server_url()).await;
        run(&mut connection, &format!("DROP DATABASE {}", self.name)).await;
    }
}

/// A client's options, with which a slow machine is no reason for an error.
pub fn patient(url: &str) -> LockClientBuilder {
    LockClient::builder(url.parse().expect("a URL"))
        .packet_timeout(Duration::from_secs(30))
        .request_timeout(Duration::from_secs(120))
}

/// Connects, however long that takes: a client with a short packet timeout gives up a slow machine's server.
pub async fn connected(builder: LockClientBuilder) -> LockClient {
    let start = std::time::Instant::now();
    loop {
        match builder.clone().connect().await {
            Ok(client) => return client,
            Err(Error::Unreachable { .. }) if start.elapsed() < Duration::from_secs(120) => {}
            Err(error) => panic!("connects: {error}"),
        }
    }
}

/// A plain connection. On a server with hostile defaults it commits each statement by itself and reads as usual, which the
/// tests' own statements are written for; the server's SQL mode stays, but for ORACLE, which does not know the `BEGIN` with
/// which sqlx begins a transaction.
pub async fn connect(url: &str) -> MySqlConnection {
    let options: MySqlConnectOptions = url.parse().expect("a URL");
    let mut connection = options
        .disable_statement_logging()
        .connect()
        .await
        .expect("connects");
    if std::env::var_os("TAG_LOCK_SERVER_DEFAULTS").is_some() {
        let usual = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; \
             SET autocommit=1,sql_mode=REPLACE(@@sql_mode,'ORACLE,','')";
        run(&mut connection, usual).await;
    }
    connection
}

/// Runs statements.
pub async fn run(connection: &mut MySqlConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(connection)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// The first column of the first row as a number.
pub async fn number(connection: &mut MySqlConnection, sql: &str) -> i64 {
    let row = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .fetch_one(connection)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    row.try_get_unchecked(0).expect("a number")
}

/// Whether a command is a batch, which its lane numbers; not the registration or the settlement of a lane.
pub fn is_batch(command: &proxy::Command) -> bool {
    let sql = command.sql().unwrap_or_default();
    [&b"seq=IF(seq+1="[..], b"EXECUTE tag_lock_"]
        .iter()
        .any(|part| sql.windows(part.len()).any(|window| window == *part))
}

pub fn is_mariadb() -> bool {
    match std::env::var("TAG_LOCK_SERVER_KIND") {
        Ok(kind) => matches!(kind.as_str(), "mariadb" | "galera"),
        Err(_) => panic!("TAG_LOCK_SERVER_KIND is not set: run `scripts/with-mysql cargo test`"),
    }
}

/// Sends a signal to a process.
pub fn signal(process: &Child, signal: rustix::process::Signal) {
    let pid =
        rustix::process::Pid::from_raw(i32::try_from(process.id()).expect("a pid")).expect("a pid");
    rustix::process::kill_process(pid, signal).expect("signals");
}

/// Fails unless an error and its source say all of this.
#[track_caller]
pub fn assert_says(error: &Error, words: &[&str]) {
    let mut message = error.to_string();
    if let Some(source) = std::error::Error::source(error) {
        message = format!("{message}: {source}");
    }
    for word in words {
        assert!(message.contains(word), "{word:?} is not in: {message}");
    }
}

/// The deadline of a lock by its row, as microseconds of the server's clock.
pub async fn deadline(connection: &mut MySqlConnection, name: &str) -> i64 {
    let sql = format!(
        "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', deadline) FROM t_tag_lock \
         WHERE lock_name = '{name}' AND kind = 1"
    );
    number(connection, &sql).await
}

/// Microseconds of the server's clock: now, and the lock's deadline.
pub async fn times(connection: &mut MySqlConnection, name: &str) -> (i64, i64) {
    let now = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    (
        number(connection, now).await,
        deadline(connection, name).await,
    )
}

/// Waits until `condition` holds; panics with `what` if it takes unreasonably long.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let start = std::time::Instant::now();
    while !condition().await {
        assert!(start.elapsed() < Duration::from_secs(120), "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
