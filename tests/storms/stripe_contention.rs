//! Thousands of tasks in one process and in several, on names of one stripe and of all stripes: exclusion is checked
//! with values outside the database that nothing else protects, and every increment is accounted for.
//!
//! `TAG_LOCK_TEST_ROUNDS` multiplies what each task does (1 by default).

#![cfg(unix)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tag_lock::LockClient;
use tokio::task::JoinSet;

use crate::support::{TestDatabase, connected, patient, spawn_worker};

/// How many different locks and counters.
const NAMES: usize = 50;
const TASKS_OF_ONE: usize = 5_000;
const PROCESSES: usize = 4;
const TASKS_OF_EACH: usize = 500;

/// The tests measure nothing, but each is enough for a machine.
static MACHINE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_tasks_on_one_stripe() {
    one_process("one stripe").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_tasks_on_all_stripes() {
    one_process("all stripes").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn four_processes_on_one_stripe() {
    four_processes("one stripe").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn four_processes_on_all_stripes() {
    four_processes("all stripes").await;
}

async fn one_process(spread: &str) {
    let _alone = MACHINE.lock().await;
    let database = TestDatabase::new().await;
    let ledger = Ledger::create(TASKS_OF_ONE * rounds());
    let begun = Instant::now();
    let client = database.client().await;
    crowd(&client, spread, TASKS_OF_ONE, &ledger).await;
    println!("{TASKS_OF_ONE} tasks on {spread}: {:.1?}", begun.elapsed());
    ledger.balance(&client, spread).await;
    database.remove().await;
}

async fn four_processes(spread: &str) {
    let _alone = MACHINE.lock().await;
    let database = TestDatabase::new().await;
    let ledger = Ledger::create(PROCESSES * TASKS_OF_EACH * rounds());
    let begun = Instant::now();
    let workers: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let variables = [
                ("CONTENTION_URL", database.url.clone()),
                ("CONTENTION_SPREAD", spread.to_owned()),
                ("CONTENTION_LEDGER", ledger.path.display().to_string()),
            ];
            spawn_worker("contention_worker", &variables)
        })
        .collect();
    for worker in workers {
        let output = tokio::task::spawn_blocking(move || worker.wait_with_output());
        let output = output.await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "a worker failed:\n{text}");
    }
    println!(
        "{PROCESSES} x {TASKS_OF_EACH} tasks on {spread}: {:.1?}",
        begun.elapsed()
    );
    ledger.balance(&database.client().await, spread).await;
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a process of the crowd"]
async fn contention_worker() {
    let variable = |name| std::env::var(name).unwrap();
    let client = connected(patient(&variable("CONTENTION_URL"))).await;
    let ledger = Ledger::open(Path::new(&variable("CONTENTION_LEDGER")), 0);
    crowd(
        &client,
        &variable("CONTENTION_SPREAD"),
        TASKS_OF_EACH,
        &ledger,
    )
    .await;
    client.close(tag_lock::AtClose::Release).await;
}

/// Each task moves the value of one name under its lock, and adds to the counter of the name.
async fn crowd(client: &LockClient, spread: &str, tasks: usize, ledger: &Arc<Ledger>) {
    let names: Arc<Vec<String>> = Arc::new(names(spread));
    let mut crowd = JoinSet::new();
    for task in 0..tasks {
        let (client, ledger, names) = (client.clone(), Arc::clone(ledger), Arc::clone(&names));
        crowd.spawn(async move {
            let position = task % NAMES;
            let name = &names[position];
            for _ in 0..rounds() {
                // One in eight cannot pass in memory, so that the table decides between tasks, too.
                let request = client
                    .lock(name)
                    .auto_renew(!(task / NAMES).is_multiple_of(8));
                let guard = request
                    .ttl(Duration::from_secs(60))
                    .acquire()
                    .await
                    .unwrap();
                ledger.move_value(position).await;
                guard.release().await.unwrap();
                let value = client.counter(name).add(1).await.unwrap();
                ledger.mark(position, value);
            }
        });
    }
    while let Some(task) = crowd.join_next().await {
        task.unwrap();
    }
}

/// Names of one stripe, or each of another one.
fn names(spread: &str) -> Vec<String> {
    let stripe = |name: &str| crc32fast::hash(name.as_bytes()) % 100;
    let mut taken = [false; 100];
    let mut choose = |name: &String| match spread {
        "one stripe" => stripe(name) == 42,
        _ => !std::mem::replace(&mut taken[stripe(name) as usize], true),
    };
    let all = (0..).map(|number| format!("crowd {number}"));
    all.filter(|name| choose(name)).take(NAMES).collect()
}

/// A file beside the database that every process writes without any protection: a value of eight bytes for each name,
/// and then, for each name, one byte for each value that its counter may give out.
struct Ledger {
    file: File,
    path: PathBuf,
    increments: usize,
}

impl Ledger {
    /// For so many increments in all, the same number for each name.
    fn create(increments: usize) -> Arc<Self> {
        assert_eq!(increments % NAMES, 0, "each name has as many");
        let name = format!("tag-lock-ledger-{:016x}", rand::random::<u64>());
        let path = std::env::temp_dir().join(name);
        File::create_new(&path).unwrap();
        Self::open(&path, increments)
    }

    fn open(path: &Path, increments: usize) -> Arc<Self> {
        let file = File::options().read(true).write(true).open(path).unwrap();
        Arc::new(Self {
            file,
            path: path.to_owned(),
            increments,
        })
    }

    /// Reads, lets others run, writes: an overlap loses an increment.
    async fn move_value(&self, position: usize) {
        let value = self.value(position);
        tokio::task::yield_now().await;
        let bytes = (value + 1).to_le_bytes();
        self.file.write_all_at(&bytes, offset(position)).unwrap();
    }

    fn value(&self, position: usize) -> u64 {
        let mut bytes = [0; 8];
        // Behind the end of the file all is 0.
        let _ = self.file.read_at(&mut bytes, offset(position)).unwrap();
        u64::from_le_bytes(bytes)
    }

    /// Notes that the counter gave out `value`.
    fn mark(&self, position: usize, value: i64) {
        let value = u64::try_from(value).unwrap();
        assert!(value < SPAN, "the counter gave out {value}");
        self.file
            .write_all_at(b"x", marks(position) + value)
            .unwrap();
    }

    /// Every increment of every name is there, once.
    async fn balance(&self, client: &LockClient, spread: &str) {
        let each = self.increments / NAMES;
        for (position, name) in names(spread).iter().enumerate() {
            assert_eq!(self.value(position), each as u64, "under the lock {name:?}");
            let value = client.counter(name).get().await.unwrap();
            assert_eq!(value, i64::try_from(each).unwrap(), "the counter {name:?}");
            // As many values as callers, and each of them given out: so none of them twice.
            let mut given = vec![0; each];
            let first = marks(position) + 1;
            self.file.read_exact_at(&mut given, first).unwrap();
            assert!(given.iter().all(|byte| *byte == b'x'), "values of {name:?}");
        }
        std::fs::remove_file(&self.path).unwrap();
    }
}

/// More values than a counter gives out here.
const SPAN: u64 = 1 << 20;

fn offset(position: usize) -> u64 {
    8 * position as u64
}

fn marks(position: usize) -> u64 {
    SPAN * (position as u64 + 1)
}

fn rounds() -> usize {
    let rounds = std::env::var("TAG_LOCK_TEST_ROUNDS");
    rounds.map_or(1, |rounds| rounds.parse().unwrap())
}
