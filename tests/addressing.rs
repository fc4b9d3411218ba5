//! No statement waits for a row, neither for one that its batch does not name nor for one that it does: a row that a
//! foreign transaction holds is skipped, its operation answers "held" or waits aside, and all others of the batch
//! succeed while that transaction is open. In small tables and large ones, for a batch that names a few rows, and for
//! one that names nearly all.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod support;

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, Connection, Row};
use tag_lock::{LockClient, LockGuard};
use tokio::task::unconstrained;

use self::support::packets::statements_of;
use self::support::proxy::{Command, Fault, Gate, Hold, Proxy, once};
use self::support::{TestDatabase, eventually, number, run};

/// A table of `rows` locks and as many counters, and a client whose requests can be made to share a packet.
struct Rig {
    database: TestDatabase,
    proxy: Proxy,
    client: LockClient,
    foreign: MySqlConnection,
}

/// The kinds of rows.
const LOCK: u8 = 1;
const COUNTER: u8 = 2;

impl Rig {
    async fn with_rows(rows: usize) -> Self {
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
    async fn hold(&mut self, kind: u8, rows: &[usize]) {
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

    async fn let_go(&mut self) {
        run(&mut self.foreign, "COMMIT").await;
    }

    /// Runs `work` in one packet, which names all of `rows`: they queue while the packet before is in flight.
    ///
    /// Those of `aside` travel with them, and are not waited for.
    async fn together<T>(
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

    async fn remove(self) {
        drop(self.client);
        self.foreign.close().await.unwrap();
        self.database.remove().await;
    }
}

/// Rows that are held, and others.
struct Split {
    rows: usize,
    held: Vec<usize>,
    others: Vec<usize>,
}

impl Split {
    /// All rows but one.
    fn small() -> Self {
        Self {
            rows: 60,
            held: vec![30],
            others: (0..60).filter(|row| *row != 30).collect(),
        }
    }

    /// Held rows among many others, and next to them.
    fn large() -> Self {
        Self {
            rows: 60_000,
            held: (0..20).map(|row| row * 3_000 + 7).collect(),
            others: (0..1_000)
                .map(|row| row * 60 + 6 + row % 2 * 2)
                .filter(|row| row % 3_000 != 7)
                .collect(),
        }
    }

    fn all(&self) -> Vec<usize> {
        [&self.others[..], &self.held[..]].concat()
    }
}

#[tokio::test]
async fn locks_in_a_small_table() {
    locks(Split::small()).await;
}

#[tokio::test]
async fn locks_in_a_large_table() {
    locks(Split::large()).await;
}

#[tokio::test]
async fn counters_in_a_small_table() {
    counters(Split::small()).await;
}

#[tokio::test]
async fn counters_in_a_large_table() {
    counters(Split::large()).await;
}

async fn locks(split: Split) {
    let mut rig = Rig::with_rows(split.rows).await;
    let client = rig.client.clone();
    let nobody = None::<Pin<&mut std::future::Ready<()>>>;
    let acquire = async |row: &usize| {
        let name = name(*row);
        client.lock(&name).try_acquire().await.unwrap()
    };
    let all = split.all();

    rig.hold(LOCK, &split.held).await;
    // Rows that the batch does not name.
    let guards = rig
        .together(&split.others, split.others.iter().map(acquire), nobody)
        .await;
    let guards: Vec<LockGuard> = guards
        .into_iter()
        .map(|guard| guard.expect("granted"))
        .collect();
    release_all(&rig, &split.others, guards).await;
    // Rows that it does name.
    let nobody = None::<Pin<&mut std::future::Ready<()>>>;
    let mut answers = rig.together(&all, all.iter().map(acquire), nobody).await;
    let refused = answers.split_off(split.others.len());
    assert!(
        refused.iter().all(Option::is_none),
        "a held row answers that it is held"
    );
    let guards: Vec<LockGuard> = answers
        .into_iter()
        .map(|guard| guard.expect("granted"))
        .collect();
    release_all(&rig, &split.others, guards).await;
    rig.let_go().await;

    // Once free, they are granted; then their releases wait aside.
    let nobody = None::<Pin<&mut std::future::Ready<()>>>;
    let mut guards = rig.together(&all, all.iter().map(acquire), nobody).await;
    let held: Vec<LockGuard> = guards
        .split_off(split.others.len())
        .into_iter()
        .flatten()
        .collect();
    let others: Vec<LockGuard> = guards.into_iter().flatten().collect();
    assert_eq!(
        (held.len(), others.len()),
        (split.held.len(), split.others.len())
    );
    rig.hold(LOCK, &split.held).await;
    let mut aside = pin!(join_all(held.into_iter().map(LockGuard::release)));
    let released = rig
        .together(
            &all,
            others.into_iter().map(LockGuard::release),
            Some(aside.as_mut()),
        )
        .await;
    assert!(released.into_iter().all(|result| result.is_ok()));
    // The lane works on while they wait.
    let nobody = None::<Pin<&mut std::future::Ready<()>>>;
    let guards = rig
        .together(&split.others, split.others.iter().map(acquire), nobody)
        .await;
    assert!(guards.iter().all(Option::is_some));
    assert!(!is_done(aside.as_mut()).await, "the rows are still held");
    rig.let_go().await;
    assert!(aside.await.into_iter().all(|result| result.is_ok()));
    drop(guards);
    rig.remove().await;
}

async fn release_all(rig: &Rig, rows: &[usize], guards: Vec<LockGuard>) {
    let nobody = None::<Pin<&mut std::future::Ready<()>>>;
    let released = rig
        .together(rows, guards.into_iter().map(LockGuard::release), nobody)
        .await;
    assert!(released.into_iter().all(|result| result.is_ok()));
}

async fn counters(split: Split) {
    let mut rig = Rig::with_rows(split.rows).await;
    let client = rig.client.clone();
    let add = async |row: &usize| client.counter(&name(*row)).add(1).await.unwrap();
    let all = split.all();

    rig.hold(COUNTER, &split.held).await;
    for row in &split.held {
        let sql = format!(
            "UPDATE t_tag_lock SET count = 100 WHERE lock_name = '{}'",
            name(*row)
        );
        run(
            &mut rig.foreign,
            &format!("{sql} AND kind = {COUNTER} AND slot = 0"),
        )
        .await;
    }
    // Rows that the batch does not name.
    let nobody = None::<Pin<&mut std::future::Ready<()>>>;
    let values = rig
        .together(&split.others, split.others.iter().map(add), nobody)
        .await;
    assert!(values.iter().all(|value| *value == 1));
    // Rows that it does name.
    let mut aside = pin!(join_all(split.held.iter().map(add)));
    let values = rig
        .together(&all, split.others.iter().map(add), Some(aside.as_mut()))
        .await;
    assert!(values.iter().all(|value| *value == 2));
    // The lane works on while they wait.
    let nobody = None::<Pin<&mut std::future::Ready<()>>>;
    let values = rig
        .together(&split.others, split.others.iter().map(add), nobody)
        .await;
    assert!(values.iter().all(|value| *value == 3));
    assert!(!is_done(aside.as_mut()).await, "the rows are still held");
    rig.let_go().await;
    let values = aside.await;
    assert!(values.iter().all(|value| *value == 101), "{values:?}");
    rig.remove().await;
}

#[tokio::test]
async fn plans_of_a_small_table() {
    plans(60, 59).await;
}

#[tokio::test]
async fn plans_of_a_large_table() {
    plans(60_000, 1_000).await;
}

/// Whatever an operation's packet is joined from, the table is read by the whole primary key, row by row.
async fn plans(rows: usize, batch: usize) {
    let mut rig = Rig::with_rows(rows).await;
    // From the first packet on, which prepares what the later ones execute.
    rig.proxy.record(true);
    // One row, many rows, and rows that must be created.
    let new = rows + batch;
    for names in [0..1, 0..batch, rows..new, new..new + 1] {
        every_operation(&rig, &names.map(name).collect::<Vec<_>>()).await;
    }
    let mut prepared = HashMap::new();
    let mut statements = Vec::new();
    for command in rig.proxy.take_recorded() {
        // Not the registration of a lane, which names no row of the table.
        let sql = command.sql.unwrap_or_default();
        if sql.contains(";COMMIT;SELECT ") && !sql.contains("'registered'") {
            let known = prepared.entry(command.connection).or_default();
            statements.extend(statements_of(&sql, known));
        }
    }
    let sequence = "seq_0_to_1023 v";
    println!(
        "{} lists are numbers",
        statements
            .iter()
            .filter(|sql| sql.contains(sequence))
            .count()
    );
    for part in [
        // The decision; acquire, release, renewal, release by force, want, counter; creation; stripes.
        "@tag_lock_granted,@tag_lock_rows FROM v STRAIGHT_JOIN t_tag_lock t ",
        "@tag_lock_granted,@tag_lock_rows FROM t_tag_lock t ",
        // A single row.
        "INSERT INTO t_tag_lock (lock_name,kind,slot) SELECT _utf8mb4",
        "t_tag_lock.modify_time=UTC_TIMESTAMP(6),t_tag_lock.fence=GREATEST(",
        "t_tag_lock.modify_time=UTC_TIMESTAMP(6),t_tag_lock.fence=1",
        "t_tag_lock.modify_time=UTC_TIMESTAMP(6),t_tag_lock.deadline=GREATEST(",
        "t_tag_lock.modify_time=UTC_TIMESTAMP(6),t_tag_lock.holder=",
        "t_tag_lock.modify_time=UTC_TIMESTAMP(6),t_tag_lock.wanted_until=",
        "t_tag_lock.modify_time=UTC_TIMESTAMP(6),t_tag_lock.previous=",
        "(lock_name,kind,slot,fence,create_time,modify_time)",
        &hex("center_lock"),
    ] {
        // Of what is cut from a string, `cut` says that it is a column of the list.
        let recorded = statements.iter().any(|sql| {
            let sql = sql.replace(sequence, "v");
            sql.contains(part) || sql.replace("CAST(SUBSTR(", "1").contains(part)
        });
        assert!(recorded, "no statement with {part} was recorded");
    }
    let mut reads = 0;
    for sql in &statements {
        let of_it = check_plan(&mut rig.foreign, sql).await;
        // Several rows are changed one by one, each by what an insert finds in its place.
        let change = sql.starts_with("INSERT INTO t_tag_lock (lock_name,kind,slot) ");
        // A single row that is to be created is there by now, which the plan of it says before it reads.
        let creation = sql.contains("fence,create_time,modify_time) SELECT _utf8mb4");
        assert!(creation || change == (of_it == 0), "{sql}");
        reads += of_it;
    }
    let count = statements.len();
    println!("{rows} rows: {count} statements with {reads} reads of a table");
    rig.remove().await;
}

/// Each kind of operation that a packet can have, all at once for all names.
async fn every_operation(rig: &Rig, names: &[String]) {
    let client = &rig.client;
    let acquire = || join_all(names.iter().map(|name| client.lock(name).try_acquire()));
    let guards: Vec<LockGuard> = acquire()
        .await
        .into_iter()
        .map(|guard| guard.unwrap().unwrap())
        .collect();
    let extended = guards
        .iter()
        .map(|guard| guard.extend(Duration::from_secs(60)));
    assert!(join_all(extended).await.iter().all(Result::is_ok));
    // Another process says in the row that it waits.
    let other = LockClient::connect(&rig.proxy.url(&rig.database.url))
        .await
        .unwrap();
    let wanted = names[0].clone();
    let waiting =
        tokio::spawn(async move { other.lock(&wanted).acquire().await.unwrap().release().await });
    let sql = format!(
        "SELECT COUNT(*) FROM t_tag_lock WHERE lock_name = '{}' AND kind = {LOCK} AND wanted_until > UTC_TIMESTAMP(6)",
        names[0]
    );
    eventually("the row says that somebody waits", async || {
        let mut connection = rig.database.connection().await;
        number(&mut connection, &sql).await == 1
    })
    .await;
    let released = join_all(guards.into_iter().map(LockGuard::release)).await;
    assert!(released.iter().all(Result::is_ok));
    waiting.await.unwrap().unwrap();
    let guards = acquire().await;
    let freed = join_all(names.iter().map(|name| client.force_release(name))).await;
    assert!(freed.into_iter().all(|freed| freed.unwrap()));
    drop(guards);
    let counters = || names.iter().map(|name| client.counter(name));
    join_all(counters().map(async |counter| counter.add(1).await.unwrap())).await;
    join_all(counters().map(async |counter| counter.add_within(1, 0..9).await.unwrap())).await;
    join_all(counters().map(async |counter| counter.set(7).await.unwrap())).await;
}

/// Explains a statement; how often it reads the table.
async fn check_plan(connection: &mut MySqlConnection, sql: &str) -> usize {
    // As if all were granted; otherwise a plan says that nothing is to be done.
    let one = sql.starts_with("UPDATE t_tag_lock t ");
    let granted = match sql.split_once(" AND FIND_IN_SET(") {
        Some((granted, _)) if one => granted.to_owned(),
        _ => sql.replace(
            "(LENGTH(@tag_lock_granted)=",
            "(1 OR LENGTH(@tag_lock_granted)=",
        ),
    };
    let plan = sqlx::raw_sql(AssertSqlSafe(format!(
        "EXPLAIN FORMAT=TRADITIONAL {granted}"
    )))
    .fetch_all(connection)
    .await
    .unwrap_or_else(|error| panic!("EXPLAIN {sql}: {error}"));
    let mut reads = 0;
    for row in plan {
        let column = |name: &str| {
            row.try_get_unchecked::<Option<String>, _>(name)
                .unwrap()
                .unwrap_or_default()
        };
        let (table, access) = (column("table"), column("type"));
        let statement: String = sql.chars().take(2_000).collect();
        let shown = format!(
            "{} {table} {access} {} {} {}: {statement}",
            column("select_type"),
            column("key"),
            column("key_len"),
            column("Extra")
        );
        // The list of literals, the rows decided from it, and the target of an insert are no reads of the table.
        if table.starts_with('<')
            || table == "v"
            || table == "k"
            || table.is_empty()
            || column("select_type") == "INSERT"
        {
            continue;
        }
        reads += 1;
        let single = match access.as_str() {
            "eq_ref" | "const" => true,
            // A plain update shows the equality with its whole key so.
            "range" => sql.starts_with("UPDATE ") && column("rows") == "1",
            _ => false,
        };
        assert!(single && column("key") == "PRIMARY", "{shown}");
        // 255 characters of 4 bytes with their length, kind and slot; or the id of a lane.
        let lane = table == "t_tag_lock_lane";
        let whole = if lane { "16" } else { "1027" };
        assert_eq!(column("key_len"), whole, "{shown}");
    }
    reads
}

fn name(row: usize) -> String {
    format!("row{row:05}")
}

/// As it stands in a packet.
fn hex(name: &str) -> String {
    name.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Polls once.
async fn is_done(mut future: Pin<&mut impl Future>) -> bool {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
}
