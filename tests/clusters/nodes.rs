//! The nodes of the cluster that `scripts/with-mysql` has started.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row};
use tag_lock::LockClient;
use tokio::sync::{Mutex, MutexGuard};

/// There is one cluster: one test at a time.
static CLUSTER: Mutex<()> = Mutex::const_new(());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Galera,
    SinglePrimary,
    MultiPrimary,
}

pub(crate) struct Cluster {
    pub(crate) kind: Kind,
    pub(crate) nodes: Vec<Node>,
    _alone: MutexGuard<'static, ()>,
}

pub(crate) struct Node {
    pub(crate) url: String,
    directory: PathBuf,
}

impl Cluster {
    /// The cluster, if it is one of `wanted`; otherwise says so, and the test has nothing to do.
    pub(crate) async fn of(wanted: &[Kind]) -> Option<Self> {
        let kind = match std::env::var("TAG_LOCK_SERVER_KIND").as_deref() {
            Ok("galera") => Some(Kind::Galera),
            Ok("group-replication") => match std::env::var("TAG_LOCK_GROUP").as_deref() {
                Ok("multi-primary") => Some(Kind::MultiPrimary),
                _ => Some(Kind::SinglePrimary),
            },
            _ => None,
        };
        let Some(kind) = kind.filter(|kind| wanted.contains(kind)) else {
            println!(
                "not run: this is about {wanted:?}; set TAG_LOCK_SERVER=galera or group-replication (and \
                 TAG_LOCK_GROUP=multi-primary) for scripts/with-mysql"
            );
            return None;
        };
        let list = |name: &str| -> Vec<String> {
            let value = std::env::var(name).expect("scripts/with-mysql sets it");
            value.split(',').map(str::to_owned).collect()
        };
        let directories = list("TAG_LOCK_NODE_DIRS").into_iter().map(PathBuf::from);
        let nodes = list("TAG_LOCK_NODE_URLS")
            .into_iter()
            .zip(directories)
            .map(|(url, directory)| Node { url, directory })
            .collect();
        Some(Self {
            kind,
            nodes,
            _alone: CLUSTER.lock().await,
        })
    }

    /// The node that takes writes as Group Replication's primary, as a router finds it.
    pub(crate) async fn primary(&self) -> usize {
        let primary = AtomicUsize::new(usize::MAX);
        crate::support::eventually("there is a primary", async || {
            for (number, node) in self.nodes.iter().enumerate() {
                let sql = "SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE \
                           member_id = @@server_uuid AND member_role = 'PRIMARY' AND member_state = 'ONLINE' \
                           AND NOT @@super_read_only";
                if node.ask(sql).await == Some(1) {
                    primary.store(number, Ordering::SeqCst);
                    return true;
                }
            }
            false
        })
        .await;
        primary.load(Ordering::SeqCst)
    }

    /// Waits until every node has applied what was committed before.
    pub(crate) async fn settle(&self) {
        for node in &self.nodes {
            let sql = match self.kind {
                Kind::Galera => "SET SESSION wsrep_sync_wait = 7; SELECT COUNT(*) FROM t_tag_lock",
                _ => {
                    "SET SESSION group_replication_consistency = 'BEFORE'; SELECT COUNT(*) FROM mysql.user"
                }
            };
            let _ = node.ask(sql).await;
        }
    }
}

impl Node {
    /// The URL of a database on this node.
    pub(crate) fn database(&self, name: &str) -> String {
        let (head, _) = self.url.rsplit_once('/').expect("the URL names a database");
        format!("{head}/{name}")
    }

    pub(crate) fn port(&self) -> u16 {
        let options: MySqlConnectOptions = self.url.parse().expect("a URL");
        options.get_port()
    }

    /// Runs `start`, `stop` or `kill` of this node.
    pub(crate) async fn run(&self, program: &str) {
        let output = tokio::process::Command::new(self.directory.join(program))
            .stdin(Stdio::null())
            .output()
            .await
            .expect("a program");
        assert!(output.status.success(), "{program}: {output:?}");
    }

    /// The first column of the last answer as a number; none if the node does not answer.
    pub(crate) async fn ask(&self, sql: &str) -> Option<i64> {
        let options: MySqlConnectOptions = self.url.parse().expect("a URL");
        let answer = async {
            let mut connection = options.disable_statement_logging().connect().await?;
            let sql = AssertSqlSafe(sql.to_owned());
            let row = sqlx::raw_sql(sql).fetch_one(&mut connection).await?;
            let answer = row.try_get_unchecked(0);
            connection.close().await?;
            answer
        };
        tokio::time::timeout(Duration::from_secs(20), answer)
            .await
            .ok()?
            .ok()
    }
}

/// A client whose requests outlast a failover.
pub(crate) async fn patient_client(url: &str) -> LockClient {
    LockClient::builder(url.parse().expect("a URL"))
        .request_timeout(Duration::from_secs(3_600))
        .connect()
        .await
        .expect("connects")
}
