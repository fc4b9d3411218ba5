//! `doctor`: a server that is fit, and what it says of one that is not.

use crate::report::{finding, level, problems};
use crate::rig::{Ran, ran, run, tag_lock};
use crate::server::TestDatabase;
use crate::support::account::Account;
use crate::support::{connect, is_mariadb, number, run as sql, server_url};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_fit_is_told_so() {
    let database = TestDatabase::new().await;
    let healthy = run(&database, &["doctor", "--json"]);
    let report = healthy.json();
    assert_eq!(
        (healthy.code, problems(&report)),
        (0, Vec::new()),
        "{report:#}"
    );
    assert_eq!(report["fit"], true);
    // Others than those that docs/operations.md names have a note.
    assert!(
        matches!(level(&report, "version"), Some("ok" | "note")),
        "{report:#}"
    );
    for check in [
        "writable",
        "proxies",
        "clock",
        "redo_log",
        "binary_log",
        "binlog_format",
        "migrated",
        "engine",
        "privileges",
        "may_purge",
        "unused_rows",
        "connections",
    ] {
        assert_eq!(level(&report, check), Some("ok"), "{check}: {report:#}");
    }
    // Hostile defaults make packets of 64 KB.
    let is_small = std::env::var_os("TAG_LOCK_SERVER_DEFAULTS").is_some();
    let packets = if is_small { "note" } else { "ok" };
    assert_eq!(level(&report, "packets"), Some(packets), "{report:#}");
    let people = run(&database, &["doctor"]);
    assert!(
        people.code == 0 && people.out.ends_with("the server is fit\n"),
        "{people:?}"
    );
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_tables_are_a_problem() {
    let database = TestDatabase::empty().await;
    let before = run(&database, &["doctor", "--json"]);
    assert!(
        before.code == 1 && problems(&before.json()).contains(&"migrated"),
        "{before:?}"
    );
    assert_eq!(run(&database, &["migrate"]).code, 0);
    assert_eq!(
        level(&run(&database, &["doctor", "--json"]).json(), "migrated"),
        Some("ok")
    );
    // Of another version.
    let mut connection = database.connection().await;
    sql(
        &mut connection,
        "ALTER TABLE t_tag_lock DROP COLUMN held_by",
    )
    .await;
    assert_eq!(
        problems(&run(&database, &["doctor", "--json"]).json()),
        ["migrated"]
    );
    let people = run(&database, &["doctor"]);
    assert!(
        people.code == 1 && people.out.ends_with("the server is not fit: 1 problem\n"),
        "{people:?}"
    );
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_without_privileges_is_a_problem() {
    let database = TestDatabase::new().await;
    let account = Account::new("").await;
    let url = server_url();
    let (_, host) = url.rsplit_once('@').unwrap();
    let (host, _) = host.rsplit_once('/').unwrap();
    let url = format!(
        "mysql://{}:{}@{host}/{}",
        account.name, account.password, database.name
    );
    let doctor = || -> Ran { ran(tag_lock(&url).args(["doctor", "--json"])) };
    let none = doctor();
    assert!(
        none.code == 1 && none.err.contains("access denied"),
        "{none:?}"
    );
    account.grant("SELECT", &database).await;
    let report = doctor().json();
    assert!(problems(&report).contains(&"privileges"), "{report:#}");
    let grants = finding(&report, "privileges").unwrap()["do"]
        .as_str()
        .unwrap();
    assert!(
        grants.contains(&format!(
            "GRANT INSERT, UPDATE ON {}.t_tag_lock TO",
            database.name
        )),
        "{grants}"
    );
    assert_eq!(level(&report, "may_purge"), Some("note"));
    // What docs/operations.md names for an application is enough.
    let mut connection = connect(&server_url()).await;
    for table in ["t_tag_lock", "t_tag_lock_lane"] {
        let grant = format!(
            "GRANT SELECT, INSERT, UPDATE ON {}.{table} TO '{}'@'%'",
            database.name, account.name
        );
        sql(&mut connection, &grant).await;
    }
    let report = doctor().json();
    assert!(!problems(&report).contains(&"privileges"), "{report:#}");
    assert_eq!(level(&report, "may_purge"), Some("note"));
    account.remove().await;
    database.remove().await;
}

/// Also one that has no connection for each of those who ask.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_with_few_connections_is_told() {
    let database = TestDatabase::new().await;
    for connections in [4, 1] {
        let account = Account::limited(connections).await;
        account.grant("ALL", &database).await;
        let url = database.url.replace("mysql://", "");
        let (_, host) = url.rsplit_once('@').unwrap();
        let url = format!("mysql://{}:{}@{host}", account.name, account.password);
        let report = ran(tag_lock(&url).args(["doctor", "--json"])).json();
        assert_eq!(level(&report, "connections"), Some("note"), "{report:#}");
        account.remove().await;
    }
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_nobody_needs_are_counted() {
    let database = TestDatabase::new().await;
    assert_eq!(run(&database, &["run", "job", "--", "true"]).code, 0);
    assert_eq!(
        run(&database, &["run", "--shared", "readers", "--", "true"]).code,
        0
    );
    assert_eq!(run(&database, &["counter", "add", "n"]).code, 0);
    let mut connection = database.connection().await;
    for old in [
        "UPDATE t_tag_lock SET modify_time=modify_time-INTERVAL 2 DAY WHERE kind>0",
        "UPDATE t_tag_lock_lane SET modify_time=modify_time-INTERVAL 2 DAY",
    ] {
        sql(&mut connection, old).await;
    }
    // The lock, the one that was held shared with that hold, and the lanes of those who came.
    let lanes = number(&mut connection, "SELECT COUNT(*) FROM t_tag_lock_lane").await;
    assert!(lanes > 0);
    let expected = format!("would take {} rows", 3 + lanes);
    let report = run(&database, &["doctor", "--json", "--older-than", "1d"]).json();
    let found = finding(&report, "unused_rows").unwrap()["what"]
        .as_str()
        .unwrap();
    assert!(found.contains(&expected), "{expected}: {found}");
    // It is what `purge` takes.
    let purged = run(&database, &["purge", "--older-than", "1d", "--json"]).json();
    assert_eq!(
        (&purged["rows"], &purged["lanes"]),
        (&3.into(), &lanes.into())
    );
    // What no purge takes is not counted.
    let refused = run(&database, &["doctor", "--older-than", "1m"]);
    assert!(
        refused.code == 2 && refused.err.contains("older_than"),
        "{refused:?}"
    );
    drop(connection);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_told_where_there_are_any() {
    let database = TestDatabase::new().await;
    let report = run(&database, &["doctor", "--json"]).json();
    let is_there = level(&report, "snapshots").is_some();
    assert!(is_mariadb() || !is_there, "{report:#}");
    database.remove().await;
}

/// MyISAM has no room for the key of the locks' table: there it is an engine that has.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_another_engine_is_a_problem() {
    let database = TestDatabase::new().await;
    let mut connection = database.connection().await;
    for (table, engine) in [("t_tag_lock", "MEMORY"), ("t_tag_lock_lane", "MyISAM")] {
        sql(
            &mut connection,
            &format!("ALTER TABLE {table} ENGINE={engine}"),
        )
        .await;
        let unfit = run(&database, &["doctor", "--json"]);
        let report = unfit.json();
        assert_eq!(
            (unfit.code, problems(&report)),
            (1, vec!["engine"]),
            "{report:#}"
        );
        let found = finding(&report, "engine").unwrap();
        assert_eq!(found["what"], format!("{table} is of the engine {engine}"));
        // What it says to do, mends it.
        let advice = found["do"].as_str().unwrap();
        let (mending, _) = advice.split_once(", while").unwrap();
        sql(&mut connection, mending).await;
        let mended = run(&database, &["doctor", "--json"]);
        assert_eq!(level(&mended.json(), "engine"), Some("ok"), "{mended:?}");
        assert_eq!(mended.code, 0);
    }
    drop(connection);
    database.remove().await;
}

/// The clock of the machine on which `doctor` runs is stepped; to the server's it is all the same.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn clocks_that_are_out_of_step_are_told() {
    let database = TestDatabase::new().await;
    let clock = crate::support::wall_clock::Clock::here();
    for (step, told) in [
        (0, "the server's clock is "),
        (3_600, "ms behind this machine's"),
        (-3_600, "ms ahead of this machine's"),
    ] {
        clock.step(step);
        let doctor = ran(tag_lock(&database.url)
            .args(["doctor", "--json"])
            .envs(clock.variables()));
        let report = doctor.json();
        let expected = if step == 0 { "ok" } else { "note" };
        assert_eq!(level(&report, "clock"), Some(expected), "{report:#}");
        let found = finding(&report, "clock").unwrap()["what"].as_str().unwrap();
        assert!(found.contains(told), "{found}");
        // An hour, but for what the way to the server may have hidden.
        if step != 0 {
            let difference = found
                .split_ascii_whitespace()
                .find_map(|word| word.parse::<f64>().ok());
            assert!(
                (3_500_000.0..3_700_000.0).contains(&difference.unwrap()),
                "{found}"
            );
        }
        assert_eq!(doctor.code, 0, "{report:#}");
    }
    database.remove().await;
}
