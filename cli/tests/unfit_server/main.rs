//! `doctor` before a server with many things wrong. The settings are the whole server's: nothing else runs beside this test.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "../command/report.rs"]
mod report;
#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "../command/rig.rs"]
mod rig;
#[path = "../../../tests/support/mod.rs"]
mod support;
#[path = "../command/unfit.rs"]
mod unfit;

use crate::report::{finding, level, problems};
use crate::rig::run;
use crate::support::TestDatabase;
use crate::unfit::Unfit;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_told_and_what_to_do() {
    let database = TestDatabase::new().await;
    let unfit = Unfit::make().await;
    let for_programs = run(&database, &["doctor", "--json"]);
    let for_people = run(&database, &["doctor"]);
    let expected = unfit.expected.clone();
    unfit.mend().await;
    let report = for_programs.json();
    assert_eq!((for_programs.code, &report["fit"]), (1, &false.into()));
    for (check, expected) in &expected {
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
    // All is well again.
    let after = run(&database, &["doctor", "--json"]);
    assert_eq!(
        (after.code, problems(&after.json())),
        (0, Vec::new()),
        "{after:?}"
    );
    database.remove().await;
}
