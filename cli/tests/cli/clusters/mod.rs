//! `doctor` before the nodes of a cluster that runs: what docs/clusters.md asks of Galera and of Group Replication, set well and set wrong.
//!
//! ```sh
//! TAG_LOCK_SERVER=galera scripts/with-mysql cargo test --test cli clusters -- --nocapture
//! TAG_LOCK_SERVER=group-replication scripts/with-mysql cargo test --test cli clusters -- --nocapture
//! ```
//!
//! On other servers these tests have nothing to do, and say so. What they change of a node is put back, also when they fail.

mod galera;
mod group;

use serde_json::Value;

use crate::nodes::{Cluster, Kind, Node, patient_client};
use crate::report::finding;
use crate::rig::{ran, tag_lock};
use crate::support::{TestDatabase, connect, eventually, run};

/// A cluster with tables that every node has.
struct Tables {
    cluster: Cluster,
    /// A node that takes writes.
    writer: usize,
    database: TestDatabase,
}

impl Tables {
    /// Of the cluster, if it is one of `wanted`.
    async fn on(wanted: &[Kind]) -> Option<Self> {
        let cluster = Cluster::of(wanted).await?;
        // A test before this one may have failed in the middle.
        for node in &cluster.nodes {
            until_at_work(&cluster, node).await;
        }
        let writer = match cluster.kind {
            Kind::SinglePrimary => cluster.primary().await,
            Kind::Galera | Kind::MultiPrimary => 0,
        };
        let database = TestDatabase::empty_at(&cluster.nodes[writer].url).await;
        let client = patient_client(&database.url).await;
        client.migrate().await.expect("migrates");
        cluster.settle().await;
        Some(Self {
            cluster,
            writer,
            database,
        })
    }

    fn writer(&self) -> &Node {
        &self.cluster.nodes[self.writer]
    }

    /// Another node than the one that was written to.
    fn other(&self) -> &Node {
        &self.cluster.nodes[(self.writer + 1) % self.cluster.nodes.len()]
    }

    /// What `doctor` says of a node.
    fn doctor(&self, node: &Node) -> Value {
        doctor(&node.database(&self.database.name))
    }

    async fn remove(self) {
        let mut connection = connect(&self.writer().url).await;
        let sql = format!("DROP DATABASE {}", self.database.name);
        run(&mut connection, &sql).await;
    }
}

/// Waits until a node takes part in the cluster, with its data.
async fn until_at_work(cluster: &Cluster, node: &Node) {
    let sql = match cluster.kind {
        Kind::Galera => {
            "SELECT COUNT(*) FROM information_schema.GLOBAL_STATUS \
             WHERE VARIABLE_NAME='wsrep_local_state_comment' AND VARIABLE_VALUE='Synced'"
        }
        Kind::SinglePrimary | Kind::MultiPrimary => {
            "SELECT COUNT(*) FROM performance_schema.replication_group_members \
             WHERE MEMBER_ID=@@server_uuid AND MEMBER_STATE='ONLINE'"
        }
    };
    eventually("the node is at work", async || {
        node.ask(sql).await == Some(1)
    })
    .await;
}

fn doctor(url: &str) -> Value {
    let doctor = ran(tag_lock(url).args(["doctor", "--json"]));
    let report = doctor.json();
    let is_fit = report["fit"].as_bool().expect("it says so");
    assert_eq!(doctor.code, i32::from(!is_fit), "{report:#}");
    report
}

/// What was found about the cluster: checks, and the level of each.
fn of_the_cluster(report: &Value) -> Vec<(&str, &str)> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .map(|finding| {
            let text = |field: &str| finding[field].as_str().unwrap();
            (text("check"), text("level"))
        })
        .filter(|(check, _)| check.starts_with("galera_") || check.starts_with("group_"))
        .collect()
}

/// That a check has this level, and says this.
fn expect(report: &Value, check: &str, level: &str, what: &str) {
    let found = finding(report, check).unwrap_or_else(|| panic!("no {check}: {report:#}"));
    assert_eq!(found["level"], level, "{report:#}");
    assert!(
        found["what"].as_str().unwrap().contains(what),
        "{what}: {found:#}"
    );
}
