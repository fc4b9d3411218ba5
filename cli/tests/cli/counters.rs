//! `counter …`: what it prints, for people and for programs, and its exit codes.

use serde_json::{Value, json};

use crate::rig::{Ran, run};
use crate::server::TestDatabase;

fn counter(database: &TestDatabase, arguments: &[&str]) -> Ran {
    run(database, &[&["counter"], arguments].concat())
}

fn document(database: &TestDatabase, arguments: &[&str]) -> (i32, Value) {
    let ran = counter(database, &[&["--json"], arguments].concat());
    (ran.code, ran.json())
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_count() {
    let database = TestDatabase::new().await;
    for (arguments, code, out) in [
        (&["get", "n"][..], 0, "0\n"),
        (&["add", "n"], 0, "1\n"),
        (&["add", "n", "41"], 0, "42\n"),
        (&["add", "n", "-2"], 0, "40\n"),
        (&["set", "n", "-7"], 0, "40\n"),
        (&["get", "n"], 0, "-7\n"),
        (&["add-within", "n", "-3", "--min", "-10"], 0, "-10\n"),
        (&["add-within", "n", "-1", "--min", "-10"], 3, ""),
        (
            &["add-within", "n", "5", "--min", "-10", "--max", "-6"],
            3,
            "",
        ),
        (&["compare-exchange", "n", "-10", "100"], 0, "-10\n"),
        (&["compare-exchange", "n", "-10", "200"], 3, ""),
        (&["reset", "n"], 0, "100\n"),
        (&["get", "n"], 0, "0\n"),
        (&["add", "n", "--window", "1h"], 0, "1\n"),
    ] {
        let ran = counter(&database, arguments);
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (code, out),
            "{arguments:?}: {ran:?}"
        );
        assert_eq!(ran.err.is_empty(), code == 0, "{arguments:?}: {ran:?}");
    }
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_count_for_programs() {
    let database = TestDatabase::new().await;
    for (arguments, code, expected) in [
        (
            &["add", "n", "5"][..],
            0,
            json!({ "name": "n", "done": true, "value": 5 }),
        ),
        (
            &["get", "n"],
            0,
            json!({ "name": "n", "done": true, "value": 5 }),
        ),
        (
            &["add-within", "n", "1", "--max", "5"],
            3,
            json!({ "name": "n", "done": false }),
        ),
        (
            &["set", "n", "9"],
            0,
            json!({ "name": "n", "done": true, "previous": 5 }),
        ),
        (
            &["compare-exchange", "n", "1", "2"],
            3,
            json!({ "name": "n", "done": false, "found": 9 }),
        ),
        (
            &["compare-exchange", "n", "9", "2"],
            0,
            json!({ "name": "n", "done": true, "previous": 9 }),
        ),
    ] {
        assert_eq!(
            document(&database, arguments),
            (code, expected),
            "{arguments:?}"
        );
    }
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_are_begun_listed_and_deleted() {
    let database = TestDatabase::new().await;
    for (arguments, code, out) in [
        (&["list"][..], 0, "no counter is set\n"),
        (&["delete", "prize:1"], 3, ""),
        (&["init", "prize:1", "-3"], 0, "-3\n"),
        (&["init", "prize:1", "9"], 3, ""),
        (&["get", "prize:1"], 0, "-3\n"),
        (&["init", "ticket", "0", "--window", "1h"], 0, "0\n"),
        (&["delete", "prize:1"], 0, "-3\n"),
        (&["get", "prize:1"], 0, "0\n"),
        (&["list", "prize:"], 0, "no counter is set\n"),
        (&["init", "prize:1", "5"], 0, "5\n"),
    ] {
        let ran = counter(&database, arguments);
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (code, out),
            "{arguments:?}: {ran:?}"
        );
    }
    let (code, all) = document(&database, &["list"]);
    let told = |at: usize| (&all[at]["name"], &all[at]["value"]);
    assert_eq!((code, all.as_array().unwrap().len()), (0, 2));
    assert_eq!(told(0), (&json!("prize:1"), &json!(5)));
    assert_eq!(told(1), (&json!("ticket"), &json!(0)));
    assert!(all[0]["window_ends"].is_null() && all[1]["window_ends"].is_string());
    let table = counter(&database, &["list", "prize:"]).out;
    assert!(
        table.starts_with("NAME") && table.contains("prize:1") && !table.contains("ticket"),
        "{table}"
    );
    let refused = counter(&database, &["init", "prize:1", "9"]);
    assert_eq!(
        refused.err, "tag-lock: prize:1 is 5: nothing was changed\n",
        "{refused:?}"
    );
    for (arguments, code, expected) in [
        (
            &["init", "prize:1", "9"][..],
            3,
            json!({ "name": "prize:1", "done": false, "found": 5 }),
        ),
        (
            &["delete", "prize:1"],
            0,
            json!({ "name": "prize:1", "done": true, "previous": 5 }),
        ),
        (
            &["delete", "prize:1"],
            3,
            json!({ "name": "prize:1", "done": false }),
        ),
        (
            &["init", "prize:1", "9"],
            0,
            json!({ "name": "prize:1", "done": true, "value": 9 }),
        ),
    ] {
        let told = document(&database, arguments);
        assert_eq!(told, (code, expected), "{arguments:?}");
    }
    database.remove().await;
}

/// As many as fill the pages of a list, and one more.
#[tokio::test(flavor = "multi_thread")]
async fn all_counters_are_listed() {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    let digit = "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 \
                 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)";
    let counters = format!(
        "INSERT INTO t_tag_lock (lock_name, kind, status, count, deadline) \
         SELECT CONCAT('n:', f.d, a.d, b.d, c.d), 2, 1, 4, '9999-12-31' \
         FROM {digit} a, {digit} b, {digit} c, (SELECT 0 d UNION ALL SELECT 1) f"
    );
    crate::support::run(&mut connection, &counters).await;
    let check = |prefix, number| {
        let (code, all) = document(&database, &["list", prefix]);
        let listed = all.as_array().unwrap().len();
        assert_eq!((code, listed), (0, number), "{prefix:?}");
    };
    check("", 2_000);
    check("n:0", 1_000);
    check("n:1999", 1);
    assert_eq!(counter(&database, &["init", "n:1xxx", "4"]).code, 0);
    check("", 2_001);
    check("n:1", 1_001);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_with_an_id_happens_once() {
    let database = TestDatabase::new().await;
    for _ in 0..3 {
        let ran = counter(&database, &["add", "ticket", "--once", "order 42"]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "1\n"));
    }
    let other = counter(&database, &["add", "ticket", "2", "--once", "order 42"]);
    assert!(
        other.code == 1 && other.err.contains("stands for another operation"),
        "{other:?}"
    );
    let within = [
        "add-within",
        "stock",
        "-1",
        "--min",
        "0",
        "--once",
        "click 1",
        "--retention",
        "1h",
    ];
    assert_eq!(counter(&database, &within).code, 3);
    assert_eq!(counter(&database, &["set", "stock", "5"]).code, 0);
    // It was refused, and stays so.
    assert_eq!(counter(&database, &within).code, 3);
    assert_eq!(counter(&database, &["get", "stock"]).out, "5\n");
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_an_error() {
    let database = TestDatabase::new().await;
    assert_eq!(
        counter(&database, &["set", "n", "9223372036854775807"]).code,
        0
    );
    let over = counter(&database, &["add", "n"]);
    assert!(
        over.code == 1 && over.err.contains("leaves the 64-bit range"),
        "{over:?}"
    );
    let told = counter(&database, &["--json", "add", "n"]);
    let error: Value = serde_json::from_str(&told.err).unwrap();
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("64-bit"),
        "{told:?}"
    );
    assert_eq!((told.code, told.out.as_str()), (1, ""));
    let empty = counter(
        &database,
        &["add-within", "n", "1", "--min", "5", "--max", "4"],
    );
    assert_eq!(empty.code, 2, "{empty:?}");
    for arguments in [
        &["add", "n", "x"][..],
        &["add-within", "n", "1"],
        &["add", "n", "--retention", "1h"],
    ] {
        assert_eq!(counter(&database, arguments).code, 2, "{arguments:?}");
    }
    database.remove().await;
}
