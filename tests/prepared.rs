//! A server that takes no further prepared statement serves the client all the same.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod support;

use tag_lock::LockClient;

use self::support::{TestDatabase, is_mariadb, number, run};

#[tokio::test]
async fn without_prepared_statements_all_goes_on() {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let client = LockClient::connect(&database.url).await.unwrap();
    let most = number(&mut connection, "SELECT @@max_prepared_stmt_count").await;
    run(&mut connection, "SET GLOBAL max_prepared_stmt_count = 0").await;
    let tried = format!(
        "SELECT CAST(VARIABLE_VALUE AS SIGNED) FROM {}.global_status WHERE VARIABLE_NAME='Com_prepare_sql'",
        if is_mariadb() {
            "information_schema"
        } else {
            "performance_schema"
        }
    );
    let before = number(&mut connection, &tried).await;
    let worked = async {
        for _ in 0..3 {
            let guard = client.lock("report").acquire().await?;
            guard.release().await?;
            client.counter("clicks").add(1).await?;
        }
        client.counter("clicks").get().await
    }
    .await;
    let tried = number(&mut connection, &tried).await - before;
    run(
        &mut connection,
        &format!("SET GLOBAL max_prepared_stmt_count = {most}"),
    )
    .await;
    assert_eq!(worked.unwrap(), 3);
    // On MariaDB each lane tries once; on MySQL nobody tries.
    let expected = if is_mariadb() { 1..=2 } else { 0..=0 };
    assert!(expected.contains(&tried), "{tried} times");

    // A client that comes later prepares what it sends.
    let later = LockClient::connect(&database.url).await.unwrap();
    assert_eq!(later.counter("clicks").add(1).await.unwrap(), 4);
    database.remove().await;
}
