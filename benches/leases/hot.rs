//! One hot lock among the tasks of one process, and the server's own locks in the same situation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tag_lock::LockClient;
use tokio::task::JoinSet;

use crate::Result;
use crate::database::{Database, connect};
use crate::figures::{Figures, float};
use crate::options::Options;

const TASKS: usize = 64;
/// The least and the most that a task got, for a look at fairness.
type Shares = Vec<u64>;

pub(crate) async fn run(
    options: &Options,
    database: &Database,
    figures: &mut Figures,
) -> Result<()> {
    eprintln!("one hot lock among {TASKS} tasks of one process");
    let time = options.seconds(15, 5);
    let client = LockClient::connect(&database.url).await?;
    let (per_second, shares) = tag_lock(&client, time).await?;
    figures.add(
        "hot_handovers_per_second",
        per_second,
        "one lock, 64 tasks of one process",
    )?;
    let most = shares.iter().max().copied().unwrap_or_default();
    let least = shares.iter().min().copied().unwrap_or_default();
    figures.add(
        "hot_least_served_task_share",
        float(least) / float(most.max(1)),
        "the task served least, as a part of the one served most",
    )?;

    eprintln!("the same with GET_LOCK on {TASKS} connections");
    let per_second = get_lock(database, time).await?;
    figures.add(
        "get_lock_handovers_per_second",
        per_second,
        "GET_LOCK and RELEASE_LOCK, 64 connections",
    )
}

async fn tag_lock(client: &LockClient, time: Duration) -> Result<(f64, Shares)> {
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for _ in 0..TASKS {
        let client = client.clone();
        tasks.spawn(async move {
            let mut turns = 0;
            while start.elapsed() < time {
                let guard = client.lock("hot").acquire().await?;
                turns += 1;
                guard.release().await?;
            }
            Ok::<u64, tag_lock::Error>(turns)
        });
    }
    let mut shares = Vec::new();
    while let Some(turns) = tasks.join_next().await {
        shares.push(turns??);
    }
    let all: u64 = shares.iter().sum();
    Ok((float(all) / start.elapsed().as_secs_f64(), shares))
}

async fn get_lock(database: &Database, time: Duration) -> Result<f64> {
    let name = database
        .url
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .to_owned();
    let turns = Arc::new(AtomicU64::new(0));
    let mut connections = Vec::new();
    for _ in 0..TASKS {
        connections.push(connect(&database.url).await?);
    }
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for mut connection in connections {
        let (name, turns) = (name.clone(), Arc::clone(&turns));
        tasks.spawn(async move {
            while start.elapsed() < time {
                let granted: Option<i64> = sqlx::query_scalar("SELECT GET_LOCK(?, 60)")
                    .bind(&name)
                    .fetch_one(&mut connection)
                    .await?;
                turns.fetch_add(u64::from(granted == Some(1)), Ordering::Relaxed);
                let _: Option<i64> = sqlx::query_scalar("SELECT RELEASE_LOCK(?)")
                    .bind(&name)
                    .fetch_one(&mut connection)
                    .await?;
            }
            Ok::<(), sqlx::Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(float(turns.load(Ordering::Relaxed)) / start.elapsed().as_secs_f64())
}
