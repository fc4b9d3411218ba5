//! Members of Group Replication.

use sqlx::mysql::MySqlConnectOptions;

use super::{Tables, doctor, expect, of_the_cluster, until_at_work};
use crate::globals::Globals;
use crate::nodes::Kind;
use crate::report::{level, problems};

const GROUPS: [Kind; 2] = [Kind::SinglePrimary, Kind::MultiPrimary];
const CONSISTENCY: &str = "group_replication_consistency";

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_set_well_is_fit() {
    let Some(tables) = Tables::on(&GROUPS).await else {
        return;
    };
    let is_single = tables.cluster.kind == Kind::SinglePrimary;
    let mut globals = Globals::at(&tables.writer().url).await;
    let enough = if is_single {
        "BEFORE_ON_PRIMARY_FAILOVER"
    } else {
        "BEFORE"
    };
    assert!(globals.set(CONSISTENCY, enough).await);
    let report = tables.doctor(tables.writer());
    // The notes say what cannot be seen, and what to know.
    let to_know = if is_single { "group_ttl" } else { "group_kill" };
    let expected = [
        ("group_member", "ok"),
        ("group_reads", "ok"),
        ("group_start", "note"),
        (to_know, "note"),
    ];
    assert_eq!(of_the_cluster(&report), expected, "{report:#}");
    assert_eq!(problems(&report), Vec::<&str>::new(), "{report:#}");
    expect(&report, "group_member", "ok", "one of 3");
    drop(globals);
    tables.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_that_may_be_old_are_a_problem() {
    let Some(tables) = Tables::on(&GROUPS).await else {
        return;
    };
    let (failover, after, mode) = match tables.cluster.kind {
        Kind::SinglePrimary => ("ok", "ok", "with one primary"),
        _ => ("problem", "problem", "with several primaries"),
    };
    let mut globals = Globals::at(&tables.writer().url).await;
    for (value, level) in [
        ("EVENTUAL", "problem"),
        ("BEFORE_ON_PRIMARY_FAILOVER", failover),
        ("AFTER", after),
        ("BEFORE", "ok"),
        ("BEFORE_AND_AFTER", "ok"),
    ] {
        assert!(globals.set(CONSISTENCY, value).await);
        let report = tables.doctor(tables.writer());
        let what = format!("{CONSISTENCY} is {value}, {mode}");
        expect(&report, "group_reads", level, &what);
        let is_wrong = level == "problem";
        assert_eq!(problems(&report).len(), usize::from(is_wrong), "{report:#}");
    }
    drop(globals);
    tables.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_has_left_its_group_is_a_problem() {
    let Some(tables) = Tables::on(&GROUPS).await else {
        return;
    };
    let node = tables.other();
    let options: MySqlConnectOptions = node.url.parse().unwrap();
    let (_, password) = node.url.split_once("tag_lock:").unwrap();
    let (password, _) = password.split_once('@').unwrap();
    let join = format!(
        "START GROUP_REPLICATION USER='{}', PASSWORD='{password}'",
        options.get_username()
    );
    let mut globals = Globals::at(&node.url).await;
    globals.change("STOP GROUP_REPLICATION", &join).await;
    let report = tables.doctor(node);
    expect(&report, "group_member", "problem", "OFFLINE");
    assert!(problems(&report).contains(&"group_member"), "{report:#}");
    drop(globals);
    until_at_work(&tables.cluster, node).await;
    let report = tables.doctor(node);
    assert_eq!(level(&report, "group_member"), Some("ok"), "{report:#}");
    tables.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_no_primary_is_a_problem() {
    let Some(tables) = Tables::on(&[Kind::SinglePrimary]).await else {
        return;
    };
    let report = tables.doctor(tables.other());
    assert_eq!(problems(&report), ["writable"], "{report:#}");
    expect(&report, "writable", "problem", "super_read_only is ON");
    assert_eq!(level(&report, "group_member"), Some("ok"), "{report:#}");
    tables.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_gives_up_without_a_majority_is_noted() {
    let Some(tables) = Tables::on(&GROUPS).await else {
        return;
    };
    let timeout = "group_replication_unreachable_majority_timeout";
    let mut globals = Globals::at(&tables.writer().url).await;
    for (value, is_told) in [("0", false), ("6", true)] {
        assert!(globals.set(timeout, value).await);
        let report = tables.doctor(tables.writer());
        expect(&report, "group_start", "note", "cannot be seen");
        let told = report
            .to_string()
            .contains(&format!("{timeout} is {value}"));
        assert_eq!(told, is_told, "{report:#}");
    }
    drop(globals);
    tables.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_may_not_see_the_group_is_told() {
    let Some(tables) = Tables::on(&GROUPS).await else {
        return;
    };
    let mut globals = Globals::at(&tables.writer().url).await;
    let name = format!("u{:016x}", rand::random::<u64>());
    let (create, remove) = (
        format!("CREATE USER '{name}'@'%' IDENTIFIED BY '{name}'"),
        format!("DROP USER '{name}'@'%'"),
    );
    globals.change(&create, &remove).await;
    let grant = format!("GRANT ALL ON {}.* TO '{name}'@'%'", tables.database.name);
    crate::support::run(globals.connection(), &grant).await;
    let (_, host) = tables.database.url.rsplit_once('@').unwrap();
    let report = doctor(&format!("mysql://{name}:{name}@{host}"));
    expect(&report, "group_member", "note", "could not be read");
    drop(globals);
    tables.remove().await;
}
