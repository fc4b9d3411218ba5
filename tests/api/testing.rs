//! What docs/testing.md says of an application's own tests, as an application writes them.

use std::time::Duration;

use sqlx::MySqlPool;
use tag_lock::{Error, LockClient, RunOnce};

/// A client of a test's own, as another process would have one.
async fn client(pool: &MySqlPool) -> LockClient {
    let options = (*pool.connect_options()).clone();
    LockClient::builder(options).connect().await.unwrap()
}

/// What is tested: one order at a time for each user.
async fn order(locks: &LockClient, pool: &MySqlPool, user: &str) -> Result<bool, Error> {
    let Some(guard) = locks.lock(user).try_acquire().await? else {
        return Ok(false);
    };
    let sql = "INSERT INTO orders (user) VALUES (?)";
    sqlx::query(sql).bind(user).execute(pool).await.unwrap();
    guard.release().await?;
    Ok(true)
}

#[sqlx::test(migrator = "tag_lock::MIGRATIONS")]
async fn a_database_of_its_own(pool: MySqlPool) {
    let table =
        "CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, user VARCHAR(64) NOT NULL)";
    sqlx::query(table).execute(&pool).await.unwrap();
    let (locks, other) = (client(&pool).await, client(&pool).await);
    assert!(order(&locks, &pool, "ada").await.unwrap());
    // Another machine is at it.
    let guard = other.lock("ada").acquire().await.unwrap();
    assert!(!order(&locks, &pool, "ada").await.unwrap());
    guard.release().await.unwrap();
    let count = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM orders");
    assert_eq!(count.fetch_one(&pool).await.unwrap(), 1);
}

#[sqlx::test(migrator = "tag_lock::MIGRATIONS")]
async fn a_lease_that_is_lost(pool: MySqlPool) {
    let (locks, operator) = (client(&pool).await, client(&pool).await);
    let request = locks.lock("import").ttl(Duration::from_secs(1));
    let import = request.acquire().await.unwrap();
    assert!(operator.force_release("import").await.unwrap());
    import.lost().await;
    let released = import.release().await;
    assert!(
        matches!(released, Err(Error::LockLost { .. })),
        "{released:?}"
    );
}

#[sqlx::test(migrator = "tag_lock::MIGRATIONS")]
async fn a_process_that_dies(pool: MySqlPool) {
    let (locks, other) = (client(&pool).await, client(&pool).await);
    let request = locks.lock("import").ttl(Duration::from_secs(1));
    let guard = request.auto_renew(false).acquire().await.unwrap();
    std::mem::forget(guard);
    assert!(other.lock("import").try_acquire().await.unwrap().is_none());
    // The lease ends by itself.
    let next = other.lock("import").acquire().await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_away() {
    // Nobody listens at the port that is reserved for that.
    let options = "mysql://user:password@127.0.0.1:9/shop".parse().unwrap();
    let locks = LockClient::builder(options)
        .packet_timeout(Duration::from_millis(100))
        .request_timeout(Duration::from_millis(300))
        .connect_lazy()
        .unwrap();
    let error = locks.lock("import").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}

#[sqlx::test(migrator = "tag_lock::MIGRATIONS")]
async fn what_comes_twice(pool: MySqlPool) {
    let locks = client(&pool).await;
    let stock = locks.counter("stock");
    stock.set(1).await.unwrap();
    for _ in 0..2 {
        let left = stock.add_once("message 7", -1).await.unwrap();
        assert_eq!(left, 0);
    }
    assert_eq!(stock.add_within(-1, 0..).await.unwrap(), None, "sold out");
    let mut runs = 0;
    for _ in 0..2 {
        let slot = locks.job("invoices").slot("2026-11-23");
        let run = slot.run_once(|_| {
            runs += 1;
            async {}
        });
        assert!(!matches!(run.await.unwrap(), RunOnce::Busy));
    }
    assert_eq!(runs, 1);
}
