//! `doctor` before a server with many things wrong. The settings are the whole server's: these tests run alone, and what they change
//! is put back, also when they fail.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use sqlx::Row;

use crate::report::{finding, level, problems};
use crate::rig::run;
use crate::server::{Alone, TestDatabase};
use crate::unfit::Unfit;

/// Fails unless `doctor` finds nothing wrong.
fn all_is_well(database: &TestDatabase) {
    let doctor = run(database, &["doctor", "--json"]);
    let report = doctor.json();
    assert_eq!(
        (doctor.code, problems(&report)),
        (0, Vec::new()),
        "{report:#}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_told_and_what_to_do() {
    let alone = Alone::on_the_server().await;
    let database = alone.database().await;
    let unfit = Unfit::make(&alone).await;
    let for_programs = run(&database, &["doctor", "--json"]);
    let for_people = run(&database, &["doctor"]);
    let expected = &unfit.expected;
    let report = for_programs.json();
    assert_eq!((for_programs.code, &report["fit"]), (1, &false.into()));
    for (check, expected) in expected {
        assert_eq!(
            level(&report, check),
            Some(*expected),
            "{check}: {report:#}"
        );
        let finding = finding(&report, check).unwrap();
        for field in ["what", "why", "do"] {
            assert!(!finding[field].as_str().unwrap().is_empty(), "{finding:#}");
        }
    }
    let count = expected
        .iter()
        .filter(|(_, level)| *level == "problem")
        .count();
    assert_eq!(problems(&report).len(), count, "{report:#}");
    assert!(count >= 3, "{report:#}");
    assert_eq!(for_people.code, 1);
    assert!(
        for_people.out.contains("PROBLEM  redo_log"),
        "{for_people:?}"
    );
    let last = format!("the server is not fit: {count} problems\n");
    assert!(for_people.out.ends_with(&last), "{for_people:?}");
    println!("{}", for_people.out);
    drop(unfit);
    all_is_well(&database);
    database.remove().await;
}

/// Whoever runs the tests on a server of his own finds it as it was.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_test_that_fails_has_changed_is_put_back() {
    let alone = Alone::on_the_server().await;
    let database = alone.database().await;
    let before = settings(&database).await;
    let fails = async {
        let _unfit = Unfit::make(&alone).await;
        panic!("this panic is wanted");
    };
    assert!(AssertUnwindSafe(fails).catch_unwind().await.is_err());
    all_is_well(&database);
    assert_eq!(settings(&database).await, before);
    database.remove().await;
}

/// What is set on the whole server, and which plugins it has.
async fn settings(database: &TestDatabase) -> Vec<(String, String)> {
    let mut connection = database.connection().await;
    let mut settings = Vec::new();
    for sql in [
        "SHOW GLOBAL VARIABLES",
        "SELECT PLUGIN_NAME,PLUGIN_STATUS FROM information_schema.PLUGINS ORDER BY PLUGIN_NAME",
    ] {
        let rows = sqlx::raw_sql(sql).fetch_all(&mut connection).await.unwrap();
        settings.extend(rows.iter().map(|row| -> (String, String) {
            (
                row.try_get_unchecked(0).unwrap(),
                row.try_get_unchecked(1).unwrap(),
            )
        }));
    }
    // What the server says of its own state goes on.
    settings.retain(|(name, _)| {
        !["gtid", "timestamp", "last_"]
            .iter()
            .any(|part| name.starts_with(part))
    });
    settings
}
