//! Nodes of Galera.

use super::{Tables, expect, of_the_cluster, until_at_work};
use crate::globals::Globals;
use crate::nodes::{Kind, Node};
use crate::report::{level, problems};
use crate::support::eventually;

/// Waits until a node says this of itself.
async fn until(node: &Node, status: &str, value: &str) {
    let sql = format!(
        "SELECT COUNT(*) FROM information_schema.GLOBAL_STATUS \
         WHERE VARIABLE_NAME='{status}' AND VARIABLE_VALUE='{value}'"
    );
    let what = format!("{status} is {value}");
    eventually(&what, async || node.ask(&sql).await == Some(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_set_well_is_fit() {
    let Some(tables) = Tables::on(&[Kind::Galera]).await else {
        return;
    };
    for node in &tables.cluster.nodes {
        let mut globals = Globals::at(&node.url).await;
        assert!(globals.set("wsrep_sync_wait", "7").await);
        let report = tables.doctor(node);
        let expected = [("galera_node", "ok"), ("galera_reads", "ok")];
        assert_eq!(of_the_cluster(&report), expected, "{report:#}");
        assert_eq!(problems(&report), Vec::<&str>::new(), "{report:#}");
        expect(&report, "galera_node", "ok", "one of 3");
    }
    tables.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_that_do_not_wait_are_noted() {
    let Some(tables) = Tables::on(&[Kind::Galera]).await else {
        return;
    };
    let node = tables.writer();
    let mut globals = Globals::at(&node.url).await;
    // 7 has a bit each for reads, for updates, and for inserts.
    for (value, level) in [
        ("0", "note"),
        ("1", "note"),
        ("3", "note"),
        ("6", "note"),
        ("7", "ok"),
        ("15", "ok"),
    ] {
        assert!(globals.set("wsrep_sync_wait", value).await);
        let what = format!("wsrep_sync_wait is {value}");
        expect(&tables.doctor(node), "galera_reads", level, &what);
    }
    drop(globals);
    tables.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_outside_the_primary_component_is_a_problem() {
    let Some(tables) = Tables::on(&[Kind::Galera]).await else {
        return;
    };
    let node = tables.other();
    let mut globals = Globals::at(&node.url).await;
    let isolate =
        |is_alone: u8| format!("SET GLOBAL wsrep_provider_options='gmcast.isolate={is_alone}'");
    globals.change(&isolate(1), &isolate(0)).await;
    until(node, "wsrep_cluster_status", "non-Primary").await;
    until(node, "wsrep_ready", "OFF").await;
    let report = tables.doctor(node);
    let what = "wsrep_cluster_status is non-Primary, wsrep_ready is OFF";
    expect(&report, "galera_node", "problem", what);
    // The tables are there, and cannot be asked.
    expect(&report, "migrated", "problem", "1047");
    assert_eq!(report["fit"], false);
    drop(globals);
    until_at_work(&tables.cluster, node).await;
    assert_eq!(level(&tables.doctor(node), "galera_node"), Some("ok"));
    tables.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_refuses_queries_is_a_problem() {
    let Some(tables) = Tables::on(&[Kind::Galera]).await else {
        return;
    };
    let node = tables.other();
    let mut globals = Globals::at(&node.url).await;
    assert!(globals.set("wsrep_reject_queries", "ALL").await);
    let report = tables.doctor(node);
    expect(&report, "migrated", "problem", "1047");
    assert_eq!(problems(&report), ["migrated"], "{report:#}");
    drop(globals);
    tables.remove().await;
}

/// What is written there would be on that node alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_replicate_is_a_problem() {
    let Some(tables) = Tables::on(&[Kind::Galera]).await else {
        return;
    };
    let node = tables.other();
    let mut globals = Globals::at(&node.url).await;
    assert!(globals.set("wsrep_on", "OFF").await);
    let report = tables.doctor(node);
    expect(&report, "galera_node", "problem", "wsrep_on is OFF");
    assert_eq!(problems(&report), ["galera_node"], "{report:#}");
    drop(globals);
    tables.remove().await;
}
