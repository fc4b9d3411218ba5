//! Provisioning the tables.
//!
//! The migrations are sqlx migrations. They are kept in a migrations table of their own, so that the
//! application's `_sqlx_migrations` stays as it is; an application that runs its own migrator can copy
//! the files instead.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, SqlSafeStr};

use crate::error::Error;
use crate::sql::server_error::code_of;

/// The table in which sqlx notes which of these migrations ran.
const TABLE: &str = "t_tag_lock_migrations";
/// Two processes may start at once; the second one waits for so long.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often it is tried, while another process is at it.
const ATTEMPTS: u32 = 20;
/// What a migration meets when another one runs on another node of a cluster: its note is there, or its
/// table not yet; or the other's commit came first.
const ANOTHER: [u16; 7] = [1062, 1146, 1050, 1180, 1205, 1213, 3101];
/// The server's error for a function that it does not support: Galera has no `GET_LOCK`.
const NOT_SUPPORTED: u16 = 1235;

const MIGRATIONS: &[(i64, &str, &str)] = &[(
    20_261_121_000_001,
    "t tag lock",
    include_str!("../migrations/20261121000001_t_tag_lock.sql"),
)];

/// Brings the tables up to date. Safe when several processes do it at once.
///
/// sqlx's own lock waits with a time of -1, which MariaDB refuses: it is switched off, and the lock
/// taken here, with a time that both servers accept, and with a look at the answer.
pub(crate) async fn migrate(options: &MySqlConnectOptions) -> Result<(), Error> {
    let options = options.clone().disable_statement_logging();
    let mut connection = options.connect().await.map_err(Error::from_sqlx)?;
    let locked = lock(&mut connection).await.map_err(Error::from_sqlx)?;
    let result = run(&mut connection, locked).await;
    // The lock ends with the connection, whether that ends well or not.
    drop(connection.close().await);
    result
}

/// Takes the server's lock for this database; false where the server has none.
async fn lock(connection: &mut MySqlConnection) -> Result<bool, sqlx::Error> {
    let answer: Result<Option<i64>, sqlx::Error> = sqlx::query_scalar(
        "SELECT GET_LOCK(CONCAT('tag_lock:', CRC32(COALESCE(DATABASE(), ''))), ?)",
    )
    .bind(PATIENCE.as_secs())
    .fetch_one(&mut *connection)
    .await;
    match answer {
        Ok(Some(1)) => Ok(true),
        Ok(_) => Err(sqlx::Error::Protocol(
            "another migration has been running for two minutes; try again when it has ended"
                .into(),
        )),
        Err(error) if code_of(&error) == Some(NOT_SUPPORTED) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn run(connection: &mut MySqlConnection, locked: bool) -> Result<(), Error> {
    let mut migrator = Migrator::with_migrations(
        MIGRATIONS
            .iter()
            .map(|&(version, description, sql)| {
                Migration::new(
                    version,
                    Cow::Borrowed(description),
                    MigrationType::Simple,
                    sql.into_sql_str(),
                    false,
                )
            })
            .collect(),
    );
    migrator.set_locking(false);
    migrator.dangerous_set_table_name(TABLE);
    // Another process may be at it: where there is no lock, and on another node of a cluster, whose nodes
    // have locks of their own. Its notes look like a run that was cut off, until they do not.
    let mut attempts = ATTEMPTS;
    loop {
        attempts -= 1;
        match migrator.run_direct(None, connection, false).await {
            Ok(()) => return Ok(()),
            Err(error) if attempts == 0 => {
                return Err(match error {
                    MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
                        Error::from_sqlx(error)
                    }
                    error => Error::Migrate {
                        source: Arc::new(error),
                    },
                });
            }
            // A run was cut off. Each statement is repeatable: forget it, and run again.
            Err(MigrateError::Dirty(_)) if locked || attempts < 3 => {
                let forget = format!("DELETE FROM {TABLE} WHERE success = FALSE");
                sqlx::raw_sql(AssertSqlSafe(forget))
                    .execute(&mut *connection)
                    .await
                    .map_err(Error::from_sqlx)?;
            }
            Err(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _))
                if code_of(&error).is_none_or(|code| !ANOTHER.contains(&code)) =>
            {
                return Err(Error::from_sqlx(error));
            }
            Err(MigrateError::VersionMismatch(version)) => {
                return Err(Error::Migrate {
                    source: Arc::new(MigrateError::VersionMismatch(version)),
                });
            }
            Err(_) => tokio::time::sleep(PATIENCE / 400).await,
        }
    }
}
