//! What happens to leases when connections and the server fail: they survive what they can, and the
//! lost signal comes in time where they cannot.
//!
//! These tests change the whole server, so they run one at a time.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support;
use crate::support::lateness::with_ttl;
use crate::support::{TestDatabase, connect, is_mariadb, number, run, server_url};
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection, Row};
use tag_lock::{Error, LockClient, LockGuard};

static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// What these tests begin with: a machine that is late gets more.
const TTL: Duration = Duration::from_secs(3);

async fn acquire(client: &LockClient, name: &str, ttl: Duration) -> LockGuard {
    client.lock(name).ttl(ttl).acquire().await.expect("a lock")
}

/// Microseconds of the server's clock: now, and the lock's deadline.
async fn times(connection: &mut MySqlConnection, name: &str) -> (i64, i64) {
    let now = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    let end = format!(
        "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', deadline) FROM t_tag_lock \
         WHERE lock_name = '{name}' AND kind = 1"
    );
    (
        number(connection, now).await,
        number(connection, &end).await,
    )
}

/// The sessions of a database's clients, but for the one that asks.
async fn sessions(connection: &mut MySqlConnection, database: &TestDatabase) -> Vec<u64> {
    let sql = format!(
        "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = '{}' AND ID <> CONNECTION_ID()",
        database.name
    );
    let rows = sqlx::raw_sql(AssertSqlSafe(sql))
        .fetch_all(connection)
        .await
        .expect("a list");
    rows.iter()
        .map(|row| row.try_get_unchecked(0).expect("an id"))
        .collect()
}

/// Does `harm` to each session again and again, until the lease has been renewed two ttls further.
async fn survives(harm: &str, pause: Duration, ttl: Duration) {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let client = database.client().await;
    let guard = acquire(&client, "survives", ttl).await;
    let (start, _) = times(&mut connection, "survives").await;
    let goal = start + i64::try_from(ttl.as_micros()).expect("short") * 3;
    let mut harmed = 0;
    loop {
        for id in sessions(&mut connection, &database).await {
            // It may have gone by itself.
            let kill = sqlx::raw_sql(AssertSqlSafe(format!("{harm} {id}")));
            harmed += u32::from(kill.execute(&mut connection).await.is_ok());
        }
        let (now, end) = times(&mut connection, "survives").await;
        assert!(guard.is_held(), "lost after {harmed} times {harm}");
        assert!(end > now, "it ended after {harmed} times {harm}");
        if end > goal {
            break;
        }
        tokio::time::sleep(pause).await;
    }
    assert!(harmed > 5, "{harm} hit {harmed} sessions only");
    // Counters and releases go through the same lanes.
    assert_eq!(client.counter("survives").add(1).await.expect("a value"), 1);
    guard.release().await.expect("it was held");
    database.remove().await;
}

#[tokio::test]
async fn leases_survive_that_connections_are_killed() {
    let _alone = ONE_AT_A_TIME.lock().await;
    // Twice the ttl leaves twice the time between two of them.
    with_ttl(TTL, async |ttl| survives("KILL", ttl / 15, ttl).await).await;
}

#[tokio::test]
async fn leases_survive_that_queries_are_killed() {
    let _alone = ONE_AT_A_TIME.lock().await;
    with_ttl(TTL, async |ttl| {
        survives("KILL QUERY", ttl / 3_000, ttl).await
    })
    .await;
}

#[tokio::test]
async fn leases_survive_that_idle_connections_are_closed() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let old = number(&mut connection, "SELECT @@GLOBAL.wait_timeout").await;
    run(
        &mut connection,
        "SET GLOBAL wait_timeout = 1; SET GLOBAL interactive_timeout = 1",
    )
    .await;
    // Renewals are further apart than the server lets a connection idle by default now.
    let ttl = Duration::from_secs(9);
    let client = database.client().await;
    let guard = acquire(&client, "idle", ttl).await;
    let (start, first) = times(&mut connection, "idle").await;
    let started = Instant::now();
    loop {
        let (now, end) = times(&mut connection, "idle").await;
        assert!(
            guard.is_held() && end > now,
            "lost after {:?}",
            started.elapsed()
        );
        if end > first + (first - start) * 5 / 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(client.counter("idle").add(1).await.expect("a value"), 1);
    guard.release().await.expect("it was held");
    let reset = format!("SET GLOBAL wait_timeout = {old}; SET GLOBAL interactive_timeout = {old}");
    run(&mut connection, &reset).await;
    database.remove().await;
}

/// Runs one of the server's scripts and waits for its end.
async fn server(script: &'static str) {
    let directory = std::env::var_os("TAG_LOCK_SERVER_DIR")
        .expect("this test restarts the server: run it with `scripts/with-mysql`");
    let path = PathBuf::from(directory).join(script);
    let status = tokio::task::spawn_blocking(move || std::process::Command::new(path).status());
    assert!(
        status.await.expect("no panic").expect("it runs").success(),
        "{script} failed"
    );
}

#[tokio::test]
async fn a_lease_survives_a_restart_of_the_server() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let others = database.client().await;
    let guard = acquire(&client, "restart", Duration::from_secs(300)).await;
    let token = guard.fencing_token();
    server("stop").await;
    server("start").await;
    // The first requests may meet a server that is not there yet, or connections that have died.
    support::eventually("the lease is extended", || async {
        match guard.extend(Duration::from_secs(300)).await {
            Ok(()) => true,
            Err(Error::LockLost { .. }) => panic!("the lease did not survive"),
            Err(_) => false,
        }
    })
    .await;
    assert!(guard.is_held());
    let refused = others
        .lock("restart")
        .try_acquire()
        .await
        .expect("an answer");
    assert!(refused.is_none(), "somebody else got it");
    guard.release().await.expect("it was held");
    let next = others
        .lock("restart")
        .try_acquire()
        .await
        .expect("an answer");
    let next = next.expect("it is free");
    assert!(next.fencing_token() > token);
    next.release().await.expect("it was held");
    database.remove().await;
}

#[tokio::test]
async fn the_signal_fires_in_time_when_the_server_is_killed() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let database = TestDatabase::new().await;
    let client = database.client().await;
    // The next one may stand still for seconds, and is held on.
    let long = TTL * 3;
    let guard = acquire(&client, "killed", TTL).await;
    let fixed = client
        .lock("fixed")
        .ttl(TTL)
        .auto_renew(false)
        .acquire()
        .await
        .expect("a lock");
    server("kill").await;
    // Nobody but the local clock can tell.
    guard.lost().await;
    fixed.lost().await;
    assert!(!guard.is_held() && !fixed.is_held());
    let token = guard.fencing_token();
    server("start").await;
    let next = acquire(&database.client().await, "killed", long).await;
    assert!(next.fencing_token() > token);
    let released = guard.release().await;
    assert!(
        matches!(released, Err(Error::LockLost { .. })),
        "{released:?}"
    );
    assert!(next.is_held());
    next.release().await.expect("it was held");
    database.remove().await;
}

/// An account to which a read-only server applies, which it does not to those with all privileges.
async fn plain_account(database: &TestDatabase) -> (String, String) {
    let user = format!("u{:016x}", rand::random::<u64>());
    let password = format!("{:032x}", rand::random::<u128>());
    let mut connection = database.connection().await;
    let sql = format!(
        "CREATE USER '{user}'@'%' IDENTIFIED BY '{password}';
         GRANT SELECT, INSERT, UPDATE, DELETE ON {}.* TO '{user}'@'%'",
        database.name
    );
    run(&mut connection, &sql).await;
    let address = database.url.rsplit_once('@').expect("a URL with a user").1;
    (format!("mysql://{user}:{password}@{address}"), user)
}

#[tokio::test]
async fn leases_survive_a_server_that_is_read_only_for_5_s() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let (url, user) = plain_account(&database).await;
    let client = LockClient::connect(&url).await.expect("connects");
    let long = acquire(&client, "long", Duration::from_secs(30)).await;
    let short = acquire(&client, "short", TTL).await;
    let (off, on) = if is_mariadb() {
        ("SET GLOBAL read_only = 0", "SET GLOBAL read_only = 1")
    } else {
        ("SET GLOBAL read_only = OFF", "SET GLOBAL read_only = ON")
    };
    run(&mut connection, on).await;
    let start = Instant::now();
    // It cannot be renewed, so its time is over before the server writes again.
    // Not by looking at the time afterwards: a machine that stands still is late for both.
    let in_time = tokio::select! {
        biased;
        () = short.lost() => true,
        () = tokio::time::sleep(TTL) => false,
    };
    let counter = client.counter("read only");
    let refused = tokio::time::timeout(Duration::from_millis(500), counter.add(1)).await;
    assert!(
        !matches!(refused, Ok(Ok(_))),
        "the server is not read-only for this account"
    );
    tokio::time::sleep(Duration::from_secs(5).saturating_sub(start.elapsed())).await;
    let held = long.is_held();
    run(&mut connection, off).await;
    assert!(in_time, "there was no signal after {TTL:?}");
    assert!(held, "five seconds are no reason to lose thirty");
    let (_, first) = times(&mut connection, "long").await;
    support::eventually("a renewal", || async {
        times(&mut connect(&database.url).await, "long").await.1 > first
    })
    .await;
    assert!(long.is_held());
    long.release().await.expect("it was held");
    drop(short);
    let _ = connection.close().await;
    let mut connection = connect(&server_url()).await;
    run(&mut connection, &format!("DROP USER '{user}'@'%'")).await;
    database.remove().await;
}
