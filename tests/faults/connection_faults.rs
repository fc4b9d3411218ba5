//! Leases survive that connections and queries are killed.

use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};

use crate::support::lateness::with_ttl;
use crate::support::{TestDatabase, times};

/// What these tests begin with: a machine that is late gets more.
const TTL: Duration = Duration::from_secs(3);

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
    let lock = client.lock("survives").ttl(ttl);
    let guard = lock.acquire().await.expect("a lock");
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
    // Twice the ttl leaves twice the time between two of them.
    with_ttl(TTL, async |ttl| survives("KILL", ttl / 15, ttl).await).await;
}

#[tokio::test]
async fn leases_survive_that_queries_are_killed() {
    with_ttl(TTL, async |ttl| {
        survives("KILL QUERY", ttl / 3_000, ttl).await
    })
    .await;
}
