//! A table, a client whose requests share a packet, and a foreign transaction that holds rows.

use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::Connection;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use tag_lock::LockClient;
use tokio::task::unconstrained;

use crate::support::proxy::{Command, Fault, Gate, Hold, Proxy, once};
use crate::support::{TestDatabase, number, run};

/// A table of `rows` locks and as many counters, and a client whose requests can be made to share a packet.
pub(crate) struct Rig {
    pub(crate) database: TestDatabase,
    pub(crate) proxy: Proxy,
    pub(crate) client: LockClient,
    pub(crate) foreign: MySqlConnection,
}

/// The kinds of rows.
pub(crate) const LOCK: u8 = 1;
pub(crate) const COUNTER: u8 = 2;

impl Rig {
    pub(crate) async fn with_rows(rows: usize) -> Self {
        let database = TestDatabase::new().await;
        let mut foreign = database.connection().await;
        for kind in [LOCK, COUNTER] {
            for chunk in (0..rows).collect::<Vec<_>>().chunks(5_000) {
                let values: Vec<String> = chunk
                    .iter()
                    .map(|row| format!("('{}', {kind}, '9999-12-31')", name(*row)))
                    .collect();
                let sql = format!(
                    "INSERT INTO t_tag_lock (lock_name, kind, deadline) VALUES {}",
                    values.join(",")
                );
                run(&mut foreign, &sql).await;
            }
        }
        run(&mut foreign, "ANALYZE TABLE t_tag_lock").await;
        let proxy = Proxy::before(&database.url).await.unwrap();
        let options: MySqlConnectOptions = proxy.url(&database.url).parse().unwrap();
        // What waits aside waits for as long as a slow machine takes for the rest.
        let client = LockClient::builder(options)
            .lanes(1)
            .default_ttl(Duration::from_secs(3_600))
            .packet_timeout(Duration::from_secs(60))
            .request_timeout(Duration::from_secs(1_800))
            .connect();
        Self {
            client: client.await.unwrap(),
            database,
            proxy,
            foreign,
        }
    }

    /// Holds rows in the foreign transaction.
    pub(crate) async fn hold(&mut self, kind: u8, rows: &[usize]) {
        run(&mut self.foreign, "START TRANSACTION").await;
        for row in rows {
            let key = format!(
                "lock_name = '{}' AND kind = {kind} AND slot = 0",
                name(*row)
            );
            let sql = format!("SELECT COUNT(*) FROM t_tag_lock WHERE {key} FOR UPDATE");
            assert_eq!(number(&mut self.foreign, &sql).await, 1);
        }
    }

    pub(crate) async fn let_go(&mut self) {
        run(&mut self.foreign, "COMMIT").await;
    }

    /// Runs `work` in one packet, which names all of `rows`: they queue while the packet before is in flight.
    ///
    /// Those of `aside` travel with them, and are not waited for.
    pub(crate) async fn together<T>(
        &self,
        rows: &[usize],
        work: impl IntoIterator<Item = impl Future<Output = T>>,
        mut aside: Option<Pin<&mut impl Future>>,
    ) -> Vec<T> {
        let gate = Gate::new();
        let hold = Fault::HoldReply(Hold::Until(gate.clone()));
        self.proxy.on_command(once(Command::contains_commit, hold));
        let client = self.client.clone();
        let before = tokio::spawn(async move { client.counter("the packet before").add(1).await });
        gate.reached().await;
        self.proxy.record(true);
        // Without tokio's budget, or one poll would not submit them all.
        let mut work = pin!(unconstrained(join_all(work)));
        assert!(!is_done(work.as_mut()).await, "it waits for the lane");
        if let Some(aside) = &mut aside {
            let done = is_done(pin!(unconstrained(aside.as_mut()))).await;
            assert!(!done, "it waits for the lane");
        }
        gate.open();
        let results = work.await;
        before.await.unwrap().unwrap();
        let recorded = self.proxy.take_recorded();
        let names: Vec<String> = rows.iter().map(|row| hex(&name(*row))).collect();
        let shared = recorded.iter().filter_map(|command| command.sql.as_ref());
        assert!(
            shared
                .into_iter()
                .any(|sql| names.iter().all(|name| sql.contains(name))),
            "one packet names all of them"
        );
        results
    }

    pub(crate) async fn remove(self) {
        drop(self.client);
        self.foreign.close().await.unwrap();
        self.database.remove().await;
    }
}

pub(crate) fn name(row: usize) -> String {
    format!("row{row:05}")
}

/// As it stands in a packet.
pub(crate) fn hex(name: &str) -> String {
    name.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Polls once.
pub(crate) async fn is_done(mut future: Pin<&mut impl Future>) -> bool {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
}
