//! Provisioning the tables.
//!
//! The migrations are sqlx migrations, and are noted as sqlx's migrator notes them, in a table of their own: the
//! application's `_sqlx_migrations` stays as it is. An application that runs its own migrator takes [`MIGRATIONS`] into it.
//!
//! sqlx's migrator itself does not run them here: it prepares statements, which a server may refuse, and it holds its lock by a
//! call that MariaDB refuses. What runs here is text, in a session with the library's own settings.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::mysql::{MySqlConnectOptions, MySqlPool};
use sqlx::{Row, SqlSafeStr};

use crate::address::check_database;
use crate::engine::session::Session;
use crate::error::Error;
use crate::sql::migration::{CREATE_NOTES, NOTES, TABLE, begun, done, lock};
use crate::sql::server_error::{Meaning, code_of};
use crate::sql::session::Commit;

/// Two processes may start at once; the second one waits for so long.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long one query may take.
const LIMIT: Duration = Duration::from_secs(150);
/// How often it is tried, while another process is at it.
const ATTEMPTS: u32 = 20;
/// What a migration meets when another one runs on another node of a cluster: its note is there, or its
/// table not yet. (What every packet meets there, too, is a [`Meaning::Conflict`].)
const ANOTHER: [u16; 3] = [1062, 1146, 1050];
/// The server's error for a function that it does not support: Galera has no `GET_LOCK`.
const NOT_SUPPORTED: u16 = 1235;

/// Version, description, text.
const FILES: &[(i64, &str, &str)] = &[(
    20_261_121_000_001,
    "t tag lock",
    include_str!("../migrations/20261121000001_t_tag_lock.sql"),
)];

/// The migrations, for an application that runs them with its own.
///
/// An application with migrations of its own takes these into one migrator with them. Its deployment then has one step, and
/// nobody calls [`LockClient::migrate`](crate::LockClient::migrate):
///
/// ```no_run
/// # async fn example(pool: sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
/// use std::path::Path;
///
/// use sqlx::migrate::Migrator;
/// use tag_lock::MIGRATIONS;
///
/// let own = Migrator::new(Path::new("./migrations")).await?; // or sqlx::migrate!()
/// let all = own.iter().chain(MIGRATIONS.iter()).cloned().collect();
/// Migrator::with_migrations(all).run(&pool).await?;
/// # Ok(())
/// # }
/// ```
///
/// They are noted in the application's `_sqlx_migrations` then. Their versions are times, as `sqlx migrate add` makes them. Later
/// versions of this crate may have more; a migrator runs what it has not run, also if it is older than the last one that ran.
/// sqlx's command line knows only the files of a directory: who uses it copies those of this crate's `migrations/`.
///
/// Run by itself, `MIGRATIONS.run(&pool)`, this migrator notes what it did in `t_tag_lock_migrations`, as
/// [`migrate_with`] and [`LockClient::migrate`](crate::LockClient::migrate) do: whichever comes second finds nothing to do. All three leave
/// alone what a later version of this crate has run.
///
/// It is sqlx's migrator, which those two are not. Run it in one process at a time on MariaDB, where its lock is
/// refused and it goes on without; on Galera it fails, unless `set_locking(false)` is called on a migrator made of these
/// migrations; with MariaDB's SQL mode ORACLE it fails; and a migration that was cut off it calls dirty, and does not complete.
pub static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let migrations = FILES.iter().map(|&(version, description, sql)| {
        let (description, sql) = (Cow::Borrowed(description), sql.into_sql_str());
        Migration::new(version, description, MigrationType::Simple, sql, false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    migrator.dangerous_set_table_name(TABLE);
    // A later version of this crate may have run more.
    migrator.set_ignore_missing(true);
    migrator
});

/// A migration that began here or elsewhere.
struct Note {
    version: i64,
    success: bool,
    checksum: Vec<u8>,
}

/// What a look at the notes led to.
enum Pass {
    /// All migrations were noted as done.
    Complete,
    /// Some were not, and were run. Whether they are now noted is for the next look.
    Ran,
    /// Another process is at it.
    Another,
}

/// Creates the tables in the pool's database, or brings them up to date: [`LockClient::migrate`](crate::LockClient::migrate)
/// without a client, for a deployment whose account may create tables.
///
/// It opens one connection of its own, with the pool's options, and takes none of the pool's: neither do their settings matter, nor
/// that all of them are in use. Safe when many processes start at once.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = sqlx::MySqlPool::connect("mysql://deploy:password@localhost/shop").await?;
/// tag_lock::migrate_with(&pool).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// As those of [`LockClient::migrate`](crate::LockClient::migrate); [`Error::InvalidOption`] if the pool's options name no
/// database.
///
/// # Cancel safety
///
/// A migration that was cut off is completed by the next one.
pub async fn migrate_with(pool: &MySqlPool) -> Result<(), Error> {
    let options = pool.connect_options();
    check_database(&options)?;
    migrate(&options).await
}

/// Brings the tables up to date. Safe when several processes do it at once.
pub(crate) async fn migrate(options: &MySqlConnectOptions) -> Result<(), Error> {
    let mut session = Session::open(options, Commit::Automatic, LIMIT)
        .await
        .map_err(Error::from_sqlx)?;
    let result = match take_lock(&mut session).await {
        Ok(locked) => run(&mut session, locked).await,
        Err(error) => Err(failed(error)),
    };
    // The lock ends with the connection, whether that ends well or not.
    session.close().await;
    result
}

/// Takes the server's lock for this database; false where the server has none.
async fn take_lock(session: &mut Session) -> Result<bool, MigrateError> {
    match session.query(lock(PATIENCE)).await {
        Ok(answer) if answer.as_deref() == Some("1") => Ok(true),
        Ok(_) => Err(MigrateError::Source(
            "another migration has been running for two minutes; try again when it has ended"
                .into(),
        )),
        Err(error) if code_of(&error) == Some(NOT_SUPPORTED) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn run(session: &mut Session, locked: bool) -> Result<(), Error> {
    // Another process may be at it: where there is no lock, and on another node of a cluster, whose nodes
    // have locks of their own. Its notes look like a run that was cut off, until they do not.
    let mut attempts = ATTEMPTS;
    loop {
        attempts -= 1;
        match pass(session, locked || attempts < 3).await {
            Ok(Pass::Complete) => return Ok(()),
            Ok(Pass::Ran) if attempts > 0 => {}
            Ok(Pass::Another) if attempts > 0 => tokio::time::sleep(PATIENCE / 400).await,
            Err(MigrateError::Execute(error)) if attempts > 0 && is_conflict(&error) => {
                tokio::time::sleep(PATIENCE / 400).await;
            }
            Ok(_) => {
                return Err(failed(MigrateError::Source(
                    "the migrations were run, and are not noted as done".into(),
                )));
            }
            Err(error) => return Err(failed(error)),
        }
    }
}

fn failed(error: MigrateError) -> Error {
    match error {
        MigrateError::Execute(error) => Error::from_sqlx(error),
        error => Error::Migrate {
            source: error.into(),
        },
    }
}

fn is_conflict(error: &sqlx::Error) -> bool {
    code_of(error)
        .is_some_and(|code| ANOTHER.contains(&code) || Meaning::of(code) == Meaning::Conflict)
}

/// Runs what is not noted as done; what began and did not end only with `take_over`. Each statement of a migration is
/// repeatable.
async fn pass(session: &mut Session, take_over: bool) -> Result<Pass, MigrateError> {
    session.query(CREATE_NOTES.to_owned()).await?;
    let notes = notes(session).await?;
    let last = MIGRATIONS.iter().map(|migration| migration.version).max();
    // What is later is of a later version of this crate, which may be rolled out just now: it only adds.
    let unknown = |note: &&Note| {
        !MIGRATIONS.version_exists(note.version) && last.is_none_or(|last| note.version < last)
    };
    if let Some(note) = notes.iter().find(unknown) {
        return Err(MigrateError::VersionMissing(note.version));
    }
    let mut pass = Pass::Complete;
    for migration in MIGRATIONS.iter() {
        match notes.iter().find(|note| note.version == migration.version) {
            Some(note) if !note.success && !take_over => return Ok(Pass::Another),
            Some(note) if note.success && note.checksum != *migration.checksum => {
                return Err(MigrateError::VersionMismatch(migration.version));
            }
            Some(note) if note.success => {}
            _ => {
                apply(session, migration).await?;
                pass = Pass::Ran;
            }
        }
    }
    Ok(pass)
}

async fn notes(session: &mut Session) -> Result<Vec<Note>, sqlx::Error> {
    let rows = session.rows(NOTES.to_owned()).await?;
    rows.iter()
        .map(|row| {
            Ok(Note {
                version: row.try_get_unchecked(0)?,
                success: row.try_get_unchecked(1)?,
                checksum: row.try_get_unchecked(2)?,
            })
        })
        .collect()
}

async fn apply(session: &mut Session, migration: &Migration) -> Result<(), sqlx::Error> {
    let Migration {
        version,
        description,
        checksum,
        sql,
        ..
    } = migration;
    let start = Instant::now();
    session
        .query(begun(*version, description, checksum))
        .await?;
    session.query(sql.as_str().to_owned()).await?;
    let took = start.elapsed();
    session
        .query(done(*version, description, checksum, took))
        .await?;
    Ok(())
}
