//! Global variables of a server that a test changes, and that are put back however the test ends.

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection, Row};

use crate::support::{connect, run};

/// What was changed. Dropped, it puts all back, the last change first.
pub(crate) struct Globals {
    url: String,
    connection: MySqlConnection,
    /// Statements that undo what was done.
    undo: Vec<String>,
}

impl Globals {
    /// Of the server at this address.
    pub(crate) async fn at(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            connection: connect(url).await,
            undo: Vec::new(),
        }
    }

    /// Changes a variable; `false` if the server does not know it.
    pub(crate) async fn set(&mut self, name: &str, value: &str) -> bool {
        let Some(before) = self.value(name).await else {
            return false;
        };
        self.change(&assignment(name, value), &assignment(name, &before))
            .await;
        true
    }

    /// Runs a statement, and remembers the one that undoes it.
    pub(crate) async fn change(&mut self, sql: &str, undo: &str) {
        // Before: a statement that failed in the middle is undone, too.
        self.undo.push(undo.to_owned());
        run(&mut self.connection, sql).await;
    }

    pub(crate) fn connection(&mut self) -> &mut MySqlConnection {
        &mut self.connection
    }

    /// A variable's value; none if the server does not know it.
    async fn value(&mut self, name: &str) -> Option<String> {
        let sql = format!("SHOW GLOBAL VARIABLES LIKE '{name}'");
        let row = sqlx::raw_sql(AssertSqlSafe(sql))
            .fetch_optional(&mut self.connection)
            .await
            .unwrap()?;
        Some(row.try_get_unchecked(1).unwrap())
    }
}

impl Drop for Globals {
    fn drop(&mut self) {
        let (url, undo) = (self.url.clone(), std::mem::take(&mut self.undo));
        // The test's runtime may be about to end, and this must not.
        let undone = std::thread::spawn(move || put_back(&url, &undo)).join();
        if std::thread::panicking() {
            // What the test has found comes first.
            if let Err(error) = undone {
                eprintln!("the server stays as the test has made it: {error:?}");
            }
        } else {
            undone.expect("all is put back");
        }
    }
}

fn put_back(url: &str, undo: &[String]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut failed = Vec::new();
        // All of them, whatever one of them says.
        for sql in undo.iter().rev() {
            // A session takes its own variables from the globals as they are when it begins.
            let mut connection = connect(url).await;
            let undone = sqlx::raw_sql(AssertSqlSafe(sql.as_str())).execute(&mut connection);
            if let Err(error) = undone.await {
                failed.push(format!("{sql}: {error}"));
            }
            let _ = connection.close().await;
        }
        assert!(failed.is_empty(), "{failed:?}");
    });
}

/// Gives a global variable a value.
pub(crate) fn assignment(name: &str, value: &str) -> String {
    if value.parse::<i64>().is_ok() {
        format!("SET GLOBAL {name}={value}")
    } else {
        format!("SET GLOBAL {name}='{value}'")
    }
}
