//! The rows of shared holds, which clients use one after the other.

use std::time::Duration;

use sqlx::Connection;
use sqlx::mysql::MySqlConnection;

use super::{HOUR, shared};
use crate::support::{TestDatabase, number, run};

const SLOT: &str = "SELECT CAST(MAX(slot) AS SIGNED) FROM t_tag_lock WHERE kind=6";
const ROWS: &str = "SELECT COUNT(*) FROM t_tag_lock WHERE kind=6";

/// The only row of shared holds becomes another client's, whose lease runs for so many seconds more.
async fn is_anothers(connection: &mut MySqlConnection, seconds: i64) {
    let sql = format!(
        "UPDATE t_tag_lock SET status=1, holder=REPEAT('x',16), held_by='web-2/1', \
         deadline=UTC_TIMESTAMP(6) + INTERVAL {seconds} SECOND WHERE kind=6"
    );
    run(connection, &sql).await;
}

/// Otherwise a lock would have a row for each process that ever read, and who writes looks at all of them.
#[tokio::test(flavor = "multi_thread")]
async fn the_row_of_a_client_that_is_gone_is_taken_again() {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let client = database.client().await;
    let first = shared(&client, "l").acquire().await.unwrap();
    let token = first.fencing_token();
    first.release().await.unwrap();
    let slot = number(&mut connection, SLOT).await;
    assert!(slot < 256, "{slot}");
    is_anothers(&mut connection, -1).await;
    let second = shared(&client, "l").acquire().await.unwrap();
    assert!(second.fencing_token() > token);
    assert_eq!(number(&mut connection, ROWS).await, 1);
    second.release().await.unwrap();
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_another_client_has_is_left_to_it() {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let client = database.client().await;
    let first = shared(&client, "l").acquire().await.unwrap();
    let slot = number(&mut connection, SLOT).await;
    first.release().await.unwrap();
    is_anothers(&mut connection, 3_600).await;
    // It has verified its hold in a transaction that is open, and then not.
    for locked in [true, false] {
        let mut tx = connection.begin().await.unwrap();
        if locked {
            let row = format!(
                "SELECT fence FROM t_tag_lock WHERE lock_name='l' AND kind=6 AND slot={slot} FOR UPDATE"
            );
            number(&mut tx, &row).await;
        }
        let holds = shared(&client, "l").holds().await.unwrap().len();
        let reader = shared(&client, "l").try_acquire().await.unwrap();
        let reader = reader.expect("others may read");
        assert_eq!(shared(&client, "l").holds().await.unwrap().len(), holds + 1);
        tx.rollback().await.unwrap();
        reader.release().await.unwrap();
    }
    let theirs = "SELECT COUNT(*) FROM t_tag_lock WHERE kind=6 AND held_by='web-2/1' AND status=1";
    assert_eq!(number(&mut connection, theirs).await, 1);
    let writer = client.lock("l").ttl(HOUR).wait(Duration::from_millis(300));
    assert!(writer.acquire().await.is_err(), "somebody reads");
    database.remove().await;
}
