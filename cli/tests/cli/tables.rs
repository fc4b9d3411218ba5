//! `migrate` and `purge`.

use serde_json::json;

use crate::rig::run;
use crate::server::TestDatabase;
use crate::support::{number, run as sql};

#[tokio::test(flavor = "multi_thread")]
async fn the_tables_are_made_once() {
    let database = TestDatabase::empty().await;
    let before = run(&database, &["list"]);
    assert_eq!(before.code, 1);
    assert_eq!(before.err.lines().count(), 1, "{before:?}");
    assert!(
        before.err.contains("run `tag-lock migrate` once"),
        "{before:?}"
    );
    for _ in 0..2 {
        let ran = run(&database, &["migrate"]);
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (0, "the tables are up to date\n"),
            "{ran:?}"
        );
    }
    assert_eq!(
        run(&database, &["migrate", "--json"]).json(),
        json!({ "migrated": true })
    );
    assert_eq!(run(&database, &["list"]).code, 0);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_nobody_uses_are_deleted() {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    for name in ["old", "young"] {
        assert_eq!(run(&database, &["run", name, "--", "true"]).code, 0);
    }
    let age = "UPDATE t_tag_lock SET modify_time=modify_time-INTERVAL 40 DAY WHERE lock_name='old' AND kind=1";
    sql(&mut connection, age).await;
    let young = run(&database, &["purge", "--older-than", "1s"]);
    assert!(
        young.code == 2 && young.err.contains("older_than"),
        "{young:?}"
    );
    assert_eq!(run(&database, &["purge"]).code, 2);
    let ran = run(&database, &["purge", "--older-than", "30d", "--json"]);
    assert_eq!(ran.json(), json!({ "rows": 1, "lanes": 0 }), "{ran:?}");
    let ran = run(&database, &["purge", "--older-than", "30d"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (0, "deleted 0 rows, and 0 of clients that are gone\n")
    );
    let left = "SELECT COUNT(*) FROM t_tag_lock WHERE kind=1 AND lock_name='young'";
    assert_eq!(number(&mut connection, left).await, 1);
    drop(connection);
    database.remove().await;
}
