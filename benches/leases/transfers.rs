//! Two locks of many at once, as a transfer between two accounts needs them: by `lock_all`, by two single locks in order, and by two rows that a
//! transaction locks.

use std::time::{Duration, Instant};

use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use tag_lock::{AtClose, LockClient};
use tokio::task::JoinSet;

use crate::Result;
use crate::database::{Database, execute};
use crate::figures::{Figures, float, percentile};
use crate::options::Options;

const TASKS: usize = 64;
const NAMES: usize = 10_000;
/// The designs take turns so often.
const HEATS: usize = 3;

/// How a task gets its two.
#[derive(Clone, Copy, Debug)]
enum Design {
    LockAll,
    TwoLocks,
    ForUpdate,
}

const DESIGNS: [(Design, &str, &str); 3] = [
    (
        Design::LockAll,
        "transfers_lock_all_per_second",
        "lock_all of 2 of 10,000 names, 64 tasks",
    ),
    (
        Design::TwoLocks,
        "transfers_two_locks_per_second",
        "two locks one after the other, in sorted order",
    ),
    (
        Design::ForUpdate,
        "transfers_for_update_per_second",
        "a transaction with two SELECT … FOR UPDATE, a connection a task",
    ),
];

#[derive(Clone)]
struct Bank {
    client: LockClient,
    pool: MySqlPool,
}

pub(crate) async fn run(
    options: &Options,
    database: &Database,
    figures: &mut Figures,
) -> Result<()> {
    eprintln!("two of {NAMES} locks at once, {TASKS} tasks");
    let bank = Bank {
        client: LockClient::connect(&database.url).await?,
        pool: MySqlPoolOptions::new()
            .max_connections(u32::try_from(TASKS)?)
            .min_connections(u32::try_from(TASKS)?)
            .connect(&database.url)
            .await?,
    };
    let time = options.seconds(10, 3);
    prepare(database, &bank).await?;
    let mut heats = [const { Vec::new() }; DESIGNS.len()];
    for _ in 0..HEATS {
        for ((design, ..), heats) in DESIGNS.into_iter().zip(&mut heats) {
            heats.push(heat(&bank, design, time).await?);
        }
    }
    for ((_, name, meaning), mut heats) in DESIGNS.into_iter().zip(heats) {
        figures.add(name, percentile(&mut heats, 0.5)?, meaning)?;
    }
    bank.client.close(AtClose::Release).await;
    bank.pool.close().await;
    Ok(())
}

/// Makes the rows of all designs.
async fn prepare(database: &Database, bank: &Bank) -> Result<()> {
    let mut connection = database.connection().await?;
    let create = "CREATE TABLE bank (id INT UNSIGNED PRIMARY KEY)".to_owned();
    execute(&mut connection, create).await?;
    let all: Vec<usize> = (0..NAMES).collect();
    for some in all.chunks(1_000) {
        let rows: Vec<String> = some.iter().map(|id| format!("({id})")).collect();
        let insert = format!("INSERT INTO bank (id) VALUES {}", rows.join(","));
        execute(&mut connection, insert).await?;
    }
    for some in all.chunks(1_000) {
        let rows = some.iter().map(async |id| {
            let guard = bank.client.lock(&name(*id)).acquire().await?;
            guard.release().await
        });
        futures_util::future::try_join_all(rows).await?;
    }
    Ok(())
}

fn name(id: usize) -> String {
    format!("account:{id}")
}

/// How many transfers a second all tasks come to.
async fn heat(bank: &Bank, design: Design, time: Duration) -> Result<f64> {
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for _ in 0..TASKS {
        let bank = bank.clone();
        tasks.spawn(async move {
            let mut done = 0;
            while start.elapsed() < time {
                let two = two_of_all();
                bank.hold(design, two).await?;
                done += 1;
            }
            Ok::<u64, Box<dyn std::error::Error + Send + Sync>>(done)
        });
    }
    let mut all = 0;
    while let Some(done) = tasks.join_next().await {
        all += done??;
    }
    Ok(float(all) / start.elapsed().as_secs_f64())
}

/// Two different ones, the lower one first.
fn two_of_all() -> [usize; 2] {
    let two = rand::seq::index::sample(&mut rand::rng(), NAMES, 2);
    let (one, other) = (two.index(0), two.index(1));
    [one.min(other), one.max(other)]
}

impl Bank {
    async fn hold(&self, design: Design, [low, high]: [usize; 2]) -> Result<()> {
        match design {
            Design::LockAll => {
                let both = self.client.lock_all([name(low), name(high)]);
                both.acquire().await?.release().await?;
            }
            Design::TwoLocks => {
                let first = self.client.lock(&name(low)).acquire().await?;
                let second = self.client.lock(&name(high)).acquire().await?;
                let (first, second) = tokio::join!(first.release(), second.release());
                first?;
                second?;
            }
            Design::ForUpdate => {
                let mut transaction = self.pool.begin().await?;
                for id in [low, high] {
                    let _: u32 = sqlx::query_scalar("SELECT id FROM bank WHERE id = ? FOR UPDATE")
                        .bind(u32::try_from(id)?)
                        .fetch_one(&mut *transaction)
                        .await?;
                }
                transaction.commit().await?;
            }
        }
        Ok(())
    }
}
