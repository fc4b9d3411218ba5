//! A server that takes no further prepared statement serves the client all the same.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod support;

use sqlx::Row;
use sqlx::mysql::MySqlConnection;
use tag_lock::LockClient;

use self::support::{TestDatabase, is_mariadb, number, run};

#[tokio::test]
async fn without_prepared_statements_all_goes_on() {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let client = LockClient::connect(&database.url).await.unwrap();
    let most = number(&mut connection, "SELECT @@max_prepared_stmt_count").await;
    let before = tried(&mut connection).await;
    run(&mut connection, "SET GLOBAL max_prepared_stmt_count = 0").await;
    let worked = async {
        for _ in 0..3 {
            let guard = client.lock("report").acquire().await?;
            guard.release().await?;
            client.counter("clicks").add(1).await?;
        }
        client.counter("clicks").get().await
    }
    .await;
    // Before anything is asserted: the server is not only this test's.
    let again = format!("SET GLOBAL max_prepared_stmt_count = {most}");
    run(&mut connection, &again).await;
    assert_eq!(worked.unwrap(), 3);
    // On MariaDB each lane tries once; on MySQL nobody tries.
    let expected = if is_mariadb() { 1..=2 } else { 0..=0 };
    let tried = tried(&mut connection).await - before;
    assert!(expected.contains(&tried), "{tried} times");

    // A client that comes later prepares what it sends.
    let later = LockClient::connect(&database.url).await.unwrap();
    assert_eq!(later.counter("clicks").add(1).await.unwrap(), 4);
    database.remove().await;
}

/// How often somebody has tried to prepare a statement in SQL.
async fn tried(connection: &mut MySqlConnection) -> i64 {
    let row = sqlx::raw_sql("SHOW GLOBAL STATUS LIKE 'Com_prepare_sql'")
        .fetch_one(connection)
        .await
        .unwrap();
    let count: String = row.try_get_unchecked(1).unwrap();
    count.parse().unwrap()
}
