//! The servers under test: how to reach them as an administrator, and the scripts that start and kill them.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Row};
use tokio::process::Command;

use crate::faults::Failure;
use crate::wall_clock::Clock;

/// An administrator does not wait longer for an answer.
const LIMIT: Duration = Duration::from_secs(5);

/// What a MySQL server can do without, and would need a quarter of its start for. Groups need the first.
const FAST_RESTART: [&str; 2] = [
    "--performance-schema=OFF",
    "--innodb-buffer-pool-load-at-startup=OFF",
];

/// One server.
#[derive(Debug)]
pub struct Node {
    /// Its number, from 0.
    pub number: usize,
    /// Its URL, as the script that started it gave it.
    pub url: String,
    /// Where its scripts are, if it may be killed.
    pub directory: Option<PathBuf>,
    /// What its process gets in its environment whenever it starts.
    variables: Mutex<Vec<(String, PathBuf)>>,
    /// Options with which it starts again: what keeps it from being back soon, and matters to no fault.
    restart: &'static [&'static str],
}

/// All servers of a run.
#[derive(Debug)]
pub struct Servers {
    /// As the environment names it.
    pub kind: String,
    /// One, or the members of a cluster; never none.
    pub nodes: Vec<Node>,
    /// Whether they are MariaDB.
    pub is_mariadb: bool,
    /// Which of them take writes.
    pub topology: Topology,
    /// The number of the primary, where there is one.
    pub primary: AtomicUsize,
}

/// Which servers take writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// All of them; mostly there is one.
    AllWrite,
    /// The primary of a group, which may be another one after a failover.
    SinglePrimary,
}

impl Servers {
    /// What the environment names: `TAG_LOCK_NODE_URLS` and `TAG_LOCK_NODE_DIRS` for a cluster, otherwise
    /// `DATABASE_URL` and `TAG_LOCK_SERVER_DIR`, as `scripts/with-mysql` sets them.
    ///
    /// # Errors
    ///
    /// A sentence that says what is missing.
    pub fn from_environment() -> Result<Self, String> {
        let list = |name: &str| -> Option<Vec<String>> {
            let value = env::var(name).ok()?;
            Some(value.split(',').map(str::to_owned).collect())
        };
        let urls = list("TAG_LOCK_NODE_URLS")
            .or_else(|| env::var("DATABASE_URL").ok().map(|url| vec![url]))
            .ok_or("no server: run this with `scripts/with-mysql cargo run …`")?;
        let directories = list("TAG_LOCK_NODE_DIRS")
            .or_else(|| env::var("TAG_LOCK_SERVER_DIR").ok().map(|path| vec![path]))
            .unwrap_or_default();
        if !directories.is_empty() && directories.len() != urls.len() {
            return Err(format!(
                "TAG_LOCK_NODE_DIRS has {} directories for the {} of TAG_LOCK_NODE_URLS: name one for each",
                directories.len(),
                urls.len()
            ));
        }
        let kind = env::var("TAG_LOCK_SERVER_KIND").map_err(
            |_| "TAG_LOCK_SERVER_KIND is not set: use mariadb, mysql, galera or group-replication",
        )?;
        let multi_primary = env::var("TAG_LOCK_GROUP").is_ok_and(|group| group == "multi-primary");
        let topology = if kind == "group-replication" && !multi_primary {
            Topology::SinglePrimary
        } else {
            Topology::AllWrite
        };
        let restart: &[&str] = if kind == "mysql" { &FAST_RESTART } else { &[] };
        let nodes = urls.into_iter().enumerate().map(|(number, url)| Node {
            number,
            url,
            directory: directories.get(number).map(PathBuf::from),
            variables: Mutex::default(),
            restart,
        });
        Ok(Self {
            nodes: nodes.collect(),
            is_mariadb: matches!(kind.as_str(), "mariadb" | "galera"),
            topology,
            primary: AtomicUsize::new(0),
            kind,
        })
    }

    /// A server that takes writes.
    #[must_use]
    pub fn writer(&self) -> &Node {
        &self.nodes[self.primary.load(Ordering::Relaxed)]
    }
}

impl Servers {
    /// Waits until a member of a group of MySQL in which all take writes has applied what the others have committed: until then it shows what was.
    ///
    /// # Errors
    ///
    /// If it does not within `limit`, or one of them does not answer: what is judged by it would be wrong.
    pub async fn catch_up(&self, node: &Node, limit: Duration) -> Result<(), Failure> {
        if self.kind != "group-replication" || self.topology != Topology::AllWrite {
            return Ok(());
        }
        let mut connection = node.administrator().await?;
        for other in &self.nodes {
            let mut there = other.administrator().await?;
            let committed: String = sqlx::query_scalar("SELECT @@GLOBAL.gtid_executed")
                .fetch_one(&mut there)
                .await?;
            let late: i64 = sqlx::query_scalar("SELECT WAIT_FOR_EXECUTED_GTID_SET(?, ?)")
                .bind(committed)
                .bind(limit.as_secs())
                .fetch_one(&mut connection)
                .await?;
            if late != 0 {
                return Err(format!(
                    "member {} does not apply what member {} has committed: it stands still, and nothing can be judged by it",
                    node.number, other.number
                )
                .into());
            }
        }
        Ok(())
    }
}

impl Node {
    /// The options of an administrator's connection.
    ///
    /// # Errors
    ///
    /// If the URL cannot be read.
    pub fn options(&self) -> Result<MySqlConnectOptions, sqlx::Error> {
        Ok(self
            .url
            .parse::<MySqlConnectOptions>()?
            .disable_statement_logging())
    }

    /// A connection for an administrator.
    ///
    /// # Errors
    ///
    /// While the server is away.
    pub async fn administrator(&self) -> Result<MySqlConnection, sqlx::Error> {
        let options = self.options()?;
        within(options.connect()).await
    }

    /// Runs statements as an administrator.
    ///
    /// # Errors
    ///
    /// While the server is away, and as it gives cause for.
    pub async fn run(&self, sql: &str) -> Result<(), sqlx::Error> {
        let mut connection = self.administrator().await?;
        within(crate::bank::run(&mut connection, sql)).await
    }

    /// The first column of each row, as numbers.
    ///
    /// # Errors
    ///
    /// While the server is away, and as it gives cause for.
    pub async fn numbers(&self, sql: &str) -> Result<Vec<u64>, sqlx::Error> {
        let mut connection = self.administrator().await?;
        let query = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        let rows = within(query.fetch_all(&mut connection)).await?;
        rows.iter().map(|row| row.try_get_unchecked(0)).collect()
    }

    /// What it says of its version.
    ///
    /// # Errors
    ///
    /// While the server is away.
    pub async fn version(&self) -> Result<String, sqlx::Error> {
        let mut connection = self.administrator().await?;
        let row = within(sqlx::raw_sql("SELECT VERSION()").fetch_one(&mut connection)).await?;
        row.try_get_unchecked(0)
    }

    /// Whether the server can be killed and started.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.directory.is_some()
    }

    /// Kills the server with SIGKILL.
    ///
    /// # Errors
    ///
    /// If its script fails.
    pub async fn kill(&self) -> io::Result<()> {
        self.script("kill", &[], &[]).await
    }

    /// Starts it again.
    ///
    /// # Errors
    ///
    /// If its script fails.
    pub async fn start(&self) -> io::Result<()> {
        let variables = self.lock_variables().clone();
        self.script("start", self.restart, &variables).await
    }

    /// Starts it again with a clock that can be stepped.
    ///
    /// # Errors
    ///
    /// If its scripts fail, or it runs in a container.
    pub async fn start_with_clock(&self) -> io::Result<Clock> {
        let directory = self.directory()?;
        // The server may see its directory under another path.
        let settings = fs::read_to_string(directory.join("settings"))?;
        let setting = |name: &str| {
            let start = format!("declare -- {name}=\"");
            let line = settings.lines().find_map(|line| line.strip_prefix(&start));
            line.and_then(|rest| rest.strip_suffix('"'))
                .map(str::to_owned)
        };
        if setting("CONTAINER").is_some_and(|name| !name.is_empty()) {
            return Err(io::Error::other(
                "the clock of a container cannot be stepped: install a server",
            ));
        }
        let inside =
            setting("INSIDE").ok_or_else(|| io::Error::other("settings without INSIDE"))?;
        let name = "wall_clock";
        let clock = Clock::at(&directory.join(name), &Path::new(&inside).join(name));
        let variables = clock.variables();
        *self.lock_variables() = variables
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        self.script("stop", &[], &[]).await?;
        self.start().await?;
        Ok(clock)
    }

    /// The directory of its scripts.
    ///
    /// # Errors
    ///
    /// If it has none.
    pub fn directory(&self) -> io::Result<&Path> {
        self.directory.as_deref().ok_or_else(|| {
            io::Error::other("TAG_LOCK_SERVER_DIR is not set: run this with `scripts/with-mysql`")
        })
    }

    async fn script(
        &self,
        name: &str,
        options: &[&str],
        variables: &[(String, PathBuf)],
    ) -> io::Result<()> {
        // What it says of a server that does not start is ours to say.
        let status = Command::new(self.directory()?.join(name))
            .args(options)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .status()
            .await?;
        if status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{name} of server {} failed ({status}): what it said stands above",
            self.number
        )))
    }

    fn lock_variables(&self) -> MutexGuard<'_, Vec<(String, PathBuf)>> {
        self.variables
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an administrator waits for, with a limit.
pub(crate) async fn within<T>(
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    match tokio::time::timeout(LIMIT, work).await {
        Ok(result) => result,
        Err(_) => Err(sqlx::Error::PoolTimedOut),
    }
}
