//! Migration: by many at once, beside the application's own, after one that was cut off, by the application's own
//! migrator, and through its pool.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use crate::support;
use crate::support::{TestDatabase, number, run, signal, spawn_worker};
use futures_util::future::join_all;
use rustix::process::Signal;
use sqlx::migrate::{Migration, Migrator};
use sqlx::mysql::{MySqlConnection, MySqlPool, MySqlPoolOptions};
use sqlx::{Connection, Row};
use tag_lock::{Error, LockClient, MIGRATIONS, migrate_with};

const DATABASE: &str = "TAG_LOCK_TEST_DATABASE";
const READY: &str = "ready to migrate";

/// Starts a process that migrates as soon as it is told to, and waits until it is connected.
fn start_migrating(database: &TestDatabase) -> Child {
    let variables = [(DATABASE, database.url.clone())];
    let mut worker = spawn_worker("worker_that_migrates", &variables);
    let output = worker.stdout.as_mut().expect("piped");
    let mut lines = BufReader::new(output).lines();
    assert!(
        lines.any(|line| line.unwrap().contains(READY)),
        "the worker ended"
    );
    worker
}

fn go(worker: &mut Child) {
    let mut input = worker.stdin.take().expect("piped");
    input.write_all(b"go\n").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a worker of the tests below"]
async fn worker_that_migrates() {
    let Ok(url) = std::env::var(DATABASE) else {
        return;
    };
    let client = support::connected(support::patient(&url)).await;
    println!("{READY}");
    // The other end of the pipe is closed when the test has failed.
    if std::io::stdin().read_line(&mut String::new()).unwrap() > 0 {
        client.migrate().await.unwrap();
        assert_works(&client).await;
    }
}

async fn assert_works(client: &LockClient) {
    let name = format!("job {}", std::process::id());
    let guard = client.lock(&name).acquire().await.unwrap();
    assert!(client.counter(&name).add(1).await.unwrap() > 0);
    guard.release().await.unwrap();
}

async fn assert_complete(connection: &mut MySqlConnection) {
    let stripes = "SELECT COUNT(*) FROM t_tag_lock WHERE kind=0 AND slot=0 AND status=1 \
                   AND lock_name REGEXP '^center_lock_[0-9][0-9]$'";
    assert_eq!(number(connection, stripes).await, 100);
    number(connection, "SELECT COUNT(*) FROM t_tag_lock_lane").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_processes_at_once() {
    let database = TestDatabase::empty().await;
    let mut workers: Vec<Child> = (0..16).map(|_| start_migrating(&database)).collect();
    for worker in &mut workers {
        go(worker);
    }
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    let mut connection = database.connection().await;
    assert_complete(&mut connection).await;
    let noted = "SELECT COUNT(*) FROM t_tag_lock_migrations WHERE success";
    assert_eq!(number(&mut connection, noted).await, 1);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_it_the_error_says_what_to_call() {
    let database = TestDatabase::empty().await;
    let client = database.client().await;
    let errors = [
        client.lock("job").acquire().await.unwrap_err(),
        client.lock("job").try_acquire().await.unwrap_err(),
        client.counter("n").add(1).await.unwrap_err(),
        client.counter("n").get().await.unwrap_err(),
        client.inspect("job").await.unwrap_err(),
        client.list("", None, 1).await.unwrap_err(),
        client.force_release("job").await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::NotMigrated { .. }), "{error:?}");
        assert!(error.to_string().contains("migrate()"), "{error}");
    }
    // The same client goes on once the tables are there.
    database.client().await.migrate().await.unwrap();
    assert_works(&client).await;
    database.remove().await;
}

/// All rows of a table, as text.
async fn dump(connection: &mut MySqlConnection, table: &str) -> Vec<String> {
    let sql = format!(
        "SELECT CONCAT_WS('|',version,description,installed_on,success,HEX(checksum),execution_time) \
         FROM {table} ORDER BY version"
    );
    let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .fetch_all(connection)
        .await
        .unwrap();
    rows.iter().map(|row| row.get_unchecked(0)).collect()
}

/// A directory with an application's own migrations in it.
struct Migrations(PathBuf);

impl Migrations {
    fn new() -> Self {
        let name = format!("tag-lock-test-{:016x}", rand::random::<u64>());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        let own = "CREATE TABLE orders (id BIGINT PRIMARY KEY);";
        std::fs::write(path.join("20200101000000_orders.sql"), own).unwrap();
        Self(path)
    }

    /// Copies ours into it, as the documentation says.
    fn copy_ours(&self) {
        let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
        for file in std::fs::read_dir(ours).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), self.0.join(file.file_name())).unwrap();
        }
    }

    async fn run(&self, connection: &mut MySqlConnection) {
        let migrator = Migrator::new(self.0.as_path()).await.unwrap();
        migrator.run(connection).await.unwrap();
    }
}

impl Drop for Migrations {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_applications_own_migrations_stay_untouched() {
    let database = TestDatabase::empty().await;
    let mut connection = database.connection().await;
    let own = Migrations::new();
    own.run(&mut connection).await;
    let before = dump(&mut connection, "_sqlx_migrations").await;
    assert_eq!(before.len(), 1);

    let client = database.client().await;
    client.migrate().await.unwrap();
    client.migrate().await.unwrap();
    assert_eq!(dump(&mut connection, "_sqlx_migrations").await, before);
    // sqlx refuses to go on when it finds a version that it does not know.
    own.run(&mut connection).await;
    assert_eq!(dump(&mut connection, "_sqlx_migrations").await, before);
    assert_works(&client).await;
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_applications_own_migrator_runs_ours() {
    let database = TestDatabase::empty().await;
    let mut connection = database.connection().await;
    let own = Migrations::new();
    own.copy_ours();
    own.run(&mut connection).await;
    own.run(&mut connection).await;
    assert_complete(&mut connection).await;
    let ours = "SELECT COUNT(*) FROM information_schema.TABLES \
                WHERE TABLE_SCHEMA=DATABASE() AND TABLE_NAME='t_tag_lock_migrations'";
    assert_eq!(number(&mut connection, ours).await, 0);
    let client = database.client().await;
    assert_works(&client).await;
    // Who also calls it does no harm.
    client.migrate().await.unwrap();
    assert_works(&client).await;
    database.remove().await;
}

/// Whichever of them comes first: the other finds nothing to do.
#[tokio::test(flavor = "multi_thread")]
async fn the_notes_are_those_of_sqlxs_migrator() {
    for sqlx_first in [true, false] {
        let database = TestDatabase::empty().await;
        let mut connection = database.connection().await;
        let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
        let mut migrator = Migrator::new(ours).await.unwrap();
        migrator.dangerous_set_table_name("t_tag_lock_migrations");
        let client = database.client().await;
        if sqlx_first {
            migrator.run(&mut connection).await.unwrap();
        } else {
            client.migrate().await.unwrap();
        }
        let before = dump(&mut connection, "t_tag_lock_migrations").await;
        assert_eq!(before.len(), 1);
        client.migrate().await.unwrap();
        migrator.run(&mut connection).await.unwrap();
        let after = dump(&mut connection, "t_tag_lock_migrations").await;
        assert_eq!(after, before);
        assert_works(&client).await;
        database.remove().await;
    }
}

/// Each file of `migrations/` is in it, with its text, as sqlx would read it.
#[tokio::test]
async fn the_migrator_is_that_of_the_files() {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let files = Migrator::new(ours).await.unwrap();
    let told = |migrator: &Migrator| -> Vec<String> {
        let each = migrator.iter().map(|one| {
            let (kind, text) = (one.migration_type, one.sql.as_str());
            let Migration {
                version,
                description,
                checksum,
                no_tx,
                ..
            } = one;
            format!("{version} {description} {kind:?} {no_tx} {checksum:x?}\n{text}")
        });
        each.collect()
    };
    assert_eq!(told(&MIGRATIONS), told(&files));
}

/// A pool of one connection.
async fn small_pool(url: &str) -> MySqlPool {
    let options = MySqlPoolOptions::new().max_connections(1);
    options.connect(url).await.unwrap()
}

/// The migrator by itself: beside the application's own, and before and after the library's own way.
#[tokio::test(flavor = "multi_thread")]
async fn the_migrator_runs_beside_the_applications() {
    for migrator_first in [true, false] {
        let database = TestDatabase::empty().await;
        let mut connection = database.connection().await;
        let own = Migrations::new();
        own.run(&mut connection).await;
        let pool = small_pool(&database.url).await;
        // sqlx's migrator works in the session as it is: an application's own, whatever the server's defaults are.
        if migrator_first {
            MIGRATIONS.run(&mut connection).await.unwrap();
        } else {
            migrate_with(&pool).await.unwrap();
        }
        assert_complete(&mut connection).await;
        let before = dump(&mut connection, "t_tag_lock_migrations").await;
        migrate_with(&pool).await.unwrap();
        MIGRATIONS.run(&mut connection).await.unwrap();
        own.run(&mut connection).await;
        let after = dump(&mut connection, "t_tag_lock_migrations").await;
        assert_eq!(after, before);
        assert_eq!(dump(&mut connection, "_sqlx_migrations").await.len(), 1);
        assert_works(&database.client().await).await;
        pool.close().await;
        database.remove().await;
    }
}

/// In a rollout, and after going back from one: a later version has run more, and this one starts.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_later_version_has_run_is_left_alone() {
    let database = TestDatabase::empty().await;
    let mut connection = database.connection().await;
    let pool = small_pool(&database.url).await;
    migrate_with(&pool).await.unwrap();
    let note = |version: &str| {
        let insert = "INSERT INTO t_tag_lock_migrations (version,description,success,checksum,execution_time) VALUES";
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
            "{insert} ({version},'later',TRUE,'',1)"
        )))
    };
    note("20991231000000")
        .execute(&mut connection)
        .await
        .unwrap();
    let before = dump(&mut connection, "t_tag_lock_migrations").await;
    migrate_with(&pool).await.unwrap();
    MIGRATIONS.run(&mut connection).await.unwrap();
    assert_works(&database.client().await).await;
    let after = dump(&mut connection, "t_tag_lock_migrations").await;
    assert_eq!(after, before);
    // One that is missing among its own was not this crate's.
    note("20001231000000")
        .execute(&mut connection)
        .await
        .unwrap();
    let migrated = migrate_with(&pool).await;
    assert!(
        matches!(migrated, Err(Error::Migrate { .. })),
        "{migrated:?}"
    );
    pool.close().await;
    database.remove().await;
}

/// One migrator of the application's migrations and ours; also where the application's came first, and one that is later than ours.
#[tokio::test(flavor = "multi_thread")]
async fn an_application_takes_ours_into_its_migrator() {
    let database = TestDatabase::empty().await;
    let mut connection = database.connection().await;
    let own = Migrations::new();
    let later = "CREATE TABLE returns (id BIGINT PRIMARY KEY);";
    std::fs::write(own.0.join("20991231000000_returns.sql"), later).unwrap();
    own.run(&mut connection).await;
    let own = Migrator::new(own.0.as_path()).await.unwrap();
    let all = own.iter().chain(MIGRATIONS.iter()).cloned().collect();
    let all = Migrator::with_migrations(all);
    all.run(&mut connection).await.unwrap();
    all.run(&mut connection).await.unwrap();
    assert_complete(&mut connection).await;
    assert_eq!(dump(&mut connection, "_sqlx_migrations").await.len(), 3);
    assert_works(&database.client().await).await;
    database.remove().await;
}

/// It takes no connection of the pool's, and many do it at once.
#[tokio::test(flavor = "multi_thread")]
async fn through_pools_that_are_used_up() {
    let database = TestDatabase::empty().await;
    let pools = join_all((0..8).map(|_| small_pool(&database.url))).await;
    let taken = join_all(
        pools
            .iter()
            .map(|pool| async { pool.acquire().await.unwrap() }),
    )
    .await;
    for migrated in join_all(pools.iter().map(migrate_with)).await {
        migrated.unwrap();
    }
    drop(taken);
    let mut connection = database.connection().await;
    assert_complete(&mut connection).await;
    assert_works(&database.client().await).await;
    join_all(pools.iter().map(MySqlPool::close)).await;
    database.remove().await;
}

#[tokio::test]
async fn through_a_pool_without_a_database() {
    let pool = MySqlPool::connect_lazy("mysql://user:secret@127.0.0.1").unwrap();
    let error = migrate_with(&pool).await.unwrap_err();
    assert!(matches!(error, Error::InvalidOption { .. }), "{error:?}");
    assert!(error.to_string().contains("names no database"), "{error}");
}

/// A note that is not ours, or not as ours, is no reason to run anything.
#[tokio::test(flavor = "multi_thread")]
async fn notes_that_were_changed_by_hand_are_an_error() {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let client = database.client().await;
    for change in [
        "UPDATE t_tag_lock_migrations SET checksum=x'00'",
        "UPDATE t_tag_lock_migrations SET version=1",
    ] {
        run(&mut connection, change).await;
        let error = client.migrate().await.unwrap_err();
        assert!(matches!(error, Error::Migrate { .. }), "{error:?}");
    }
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_cut_off_is_completed() {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let client = database.client().await;
    let guard = client.lock("job").acquire().await.unwrap();
    assert_eq!(client.counter("n").add(7).await.unwrap(), 7);
    run(
        &mut connection,
        "UPDATE t_tag_lock_migrations SET success=FALSE;
         UPDATE t_tag_lock SET count=12345 WHERE lock_name='center_lock_04' AND kind=0;
         DELETE FROM t_tag_lock WHERE kind=0 AND lock_name>='center_lock_50';
         DROP TABLE t_tag_lock_lane",
    )
    .await;
    database.client().await.migrate().await.unwrap();
    assert_complete(&mut connection).await;
    let dirty = "SELECT COUNT(*) FROM t_tag_lock_migrations WHERE NOT success";
    assert_eq!(number(&mut connection, dirty).await, 0);
    // What stood in the table still does.
    let floor = "SELECT count FROM t_tag_lock WHERE lock_name='center_lock_04' AND kind=0";
    assert_eq!(number(&mut connection, floor).await, 12_345);
    let other = database.client().await;
    assert_eq!(other.counter("n").get().await.unwrap(), 7);
    assert!(other.lock("job").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert_works(&other).await;
    database.remove().await;
}

/// Processes that are killed while they migrate, each a little later than the one before.
#[tokio::test(flavor = "multi_thread")]
async fn killed_processes_leave_what_the_next_one_completes() {
    for delay in [0, 2, 5, 10, 20, 40, 80] {
        let database = TestDatabase::empty().await;
        let mut worker = start_migrating(&database);
        go(&mut worker);
        // Where it is then does not matter: somewhere else each time.
        tokio::time::sleep(Duration::from_millis(delay)).await;
        signal(&worker, Signal::KILL);
        worker.wait().unwrap();
        let client = database.client().await;
        client.migrate().await.unwrap();
        let mut connection = database.connection().await;
        assert_complete(&mut connection).await;
        assert_works(&client).await;
        connection.close().await.unwrap();
        database.remove().await;
    }
}
