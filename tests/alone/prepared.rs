//! A server that takes no further prepared statement serves the client all the same.

use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};
use tag_lock::LockClient;
use tokio::task::JoinSet;

use crate::support::alone::Global;
use crate::support::{TestDatabase, alone, number};

const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn without_prepared_statements_all_goes_on() {
    let _alone = alone().await;
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let client = LockClient::connect(&database.url).await.unwrap();
    // Its lane has a connection, and has not yet prepared all that it will need.
    let guard = client.lock("clicks").acquire().await.unwrap();
    guard.release().await.unwrap();
    let before = tried(&mut connection).await;
    let none = Global::set("max_prepared_stmt_count", "0").await;
    let worked = async {
        for _ in 0..3 {
            let guard = client.lock("report").acquire().await?;
            guard.release().await?;
            client.counter("clicks").add(1).await?;
        }
        client.counter("clicks").get().await
    }
    .await;
    drop(none);
    assert_eq!(worked.unwrap(), 3);
    // A lane tries once; one that connects now knows that it is of no use.
    let tried = tried(&mut connection).await - before;
    assert_eq!(tried, 1);

    // A client that comes later prepares what it sends.
    let later = LockClient::connect(&database.url).await.unwrap();
    assert_eq!(later.counter("clicks").add(1).await.unwrap(), 4);
    database.remove().await;
}

/// Whatever clients ask for, others find room.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_prepares_few_statements() {
    let _alone = alone().await;
    let database = TestDatabase::new().await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(database.client().await);
    }
    for round in 0..20 {
        let mut set = JoinSet::new();
        for client in &clients {
            for task in 0..24 {
                let client = client.clone();
                set.spawn(async move {
                    let name = format!("{}", task % 5);
                    let n = client.counter(&name);
                    let lock = client.lock(&name);
                    match task % 6 {
                        0 => drop(n.add(task).await.unwrap()),
                        1 => drop(n.add_within(1, ..1_000_000).await.unwrap()),
                        2 => drop(lock.owner("x").try_acquire().await.unwrap()),
                        3 => drop(lock.wait(SHORT).acquire().await),
                        4 => drop(n.add_once(&format!("{round} {task}"), 1).await.unwrap()),
                        _ => drop(
                            client
                                .lock(&format!("new {round} {task}"))
                                .try_acquire()
                                .await,
                        ),
                    }
                });
            }
        }
        set.join_all().await;
    }
    let mut connection = database.connection().await;
    let count = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db='{}' AND id<>CONNECTION_ID()",
        database.name
    );
    let prepared = status(&mut connection, "Prepared_stmt_count").await;
    let connections = number(&mut connection, &count).await;
    println!("{prepared} statements of {connections} connections");
    assert!(prepared <= 16 * connections, "{prepared} of {connections}");
    database.remove().await;
}

/// How often somebody has tried to prepare a statement in SQL.
async fn tried(connection: &mut MySqlConnection) -> i64 {
    status(connection, "Com_prepare_sql").await
}

async fn status(connection: &mut MySqlConnection, variable: &str) -> i64 {
    let sql = format!("SHOW GLOBAL STATUS LIKE '{variable}'");
    let row = sqlx::raw_sql(AssertSqlSafe(sql))
        .fetch_one(connection)
        .await
        .unwrap();
    let count: String = row.try_get_unchecked(1).unwrap();
    count.parse().unwrap()
}
