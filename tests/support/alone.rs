//! For tests that change what all tests of a server share: they run one at a time, and what they change is changed back
//! even if they fail.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row};
use tokio::sync::{Mutex, MutexGuard};

use super::{connect, run, server_url};

static ALONE: Mutex<()> = Mutex::const_new(());

/// Waits until no other test of this program has the server. Keep what it returns until the test ends.
pub async fn alone() -> MutexGuard<'static, ()> {
    let alone = ALONE.lock().await;
    let options: MySqlConnectOptions = server_url().parse().expect("a URL");
    match options.connect().await {
        Ok(connection) => drop(connection.close().await),
        // A test that failed has left it stopped.
        Err(_) => server("start").await,
    }
    alone
}

/// Runs `start`, `stop` or `kill` of the server's directory, and waits until it is done.
pub async fn server(script: &str) {
    let directory = std::env::var_os("TAG_LOCK_SERVER_DIR").expect(
        "this test restarts the server: run `scripts/with-mysql cargo test` without TAG_LOCK_USE_SERVER",
    );
    let status = tokio::process::Command::new(PathBuf::from(directory).join(script))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .await
        .expect("a script");
    assert!(status.success(), "{script}: {status}");
}

/// A global variable of the server that has another value until this is dropped.
pub struct Global {
    variable: String,
    usual: String,
}

impl Global {
    /// `value` is a literal, or what else may stand there.
    pub async fn set(variable: &str, value: &str) -> Self {
        let mut connection = connect(&server_url()).await;
        let sql = format!("SELECT CAST(@@GLOBAL.{variable} AS CHAR)");
        let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(&mut connection);
        let usual: String = row.await.expect("a variable").get_unchecked(0);
        let usual = match usual.parse::<f64>() {
            Ok(_) => usual,
            Err(_) => format!("'{usual}'"),
        };
        let changed = Self {
            variable: variable.to_owned(),
            usual,
        };
        run(&mut connection, &format!("SET GLOBAL {variable}={value}")).await;
        let _ = connection.close().await;
        changed
    }
}

impl Drop for Global {
    fn drop(&mut self) {
        let sql = format!("SET GLOBAL {}={}", self.variable, self.usual);
        // A runtime in which a test fails may run nothing any more.
        let restored = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(restore(&sql))
        });
        let restored = restored.join().expect("no panic");
        if let Err(error) = restored {
            eprintln!("the server keeps what a test has set: {error}");
        }
    }
}

/// Under some values a statement or a connection may fail.
async fn restore(sql: &str) -> sqlx::Result<()> {
    let options: MySqlConnectOptions = server_url().parse().expect("a URL");
    let mut tries = 0;
    loop {
        let restored = async {
            let mut connection = options.connect().await?;
            let sql = AssertSqlSafe(sql.to_owned());
            sqlx::raw_sql(sql).execute(&mut connection).await?;
            connection.close().await
        };
        match restored.await {
            Err(_) if tries < 50 => tokio::time::sleep(Duration::from_millis(100)).await,
            restored => return restored,
        }
        tries += 1;
    }
}
