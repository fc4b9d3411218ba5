//! Several of few locks at once, in any order, from several processes: nobody deadlocks, and everybody goes on.

use std::time::{Duration, Instant};

use rand::seq::SliceRandom;
use sqlx::mysql::MySqlConnection;
use tag_lock::{AtClose, LockClient};
use tokio::task::JoinSet;

use crate::Result;
use crate::database::{Database, number};
use crate::figures::{Figures, float};
use crate::options::Options;
use crate::worker::Work;

const PROCESSES: usize = 4;
const TASKS: usize = 64;
const NAMES: usize = 8;
/// A task asks for so many of the locks at least, and at most.
const FEWEST: usize = 2;
const MOST: usize = 4;
/// Who waits for longer starves.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn run(
    options: &Options,
    database: &Database,
    figures: &mut Figures,
) -> Result<()> {
    eprintln!(
        "{PROCESSES} processes of {TASKS} tasks at {NAMES} locks, several at once in any order"
    );
    let time = options.seconds(60, 10);
    let mut connection = database.connection().await?;
    let before = deadlocks(&mut connection).await?;
    let mut workers = Vec::new();
    for _ in 0..PROCESSES {
        let work = Work {
            part: "storm",
            url: database.url.clone(),
            name: "storm".to_owned(),
            count: TASKS,
            time,
        };
        workers.push(work.start()?);
    }
    let mut turns = Vec::new();
    for worker in workers {
        for line in worker.rest().await? {
            turns.push(line.parse::<u64>()?);
        }
    }
    let new = deadlocks(&mut connection).await? - before;
    let all: u64 = turns.iter().sum();
    let meaning = "several of 8 locks at once in any order, 4 processes of 64 tasks";
    figures.add("storm_per_second", float(all) / time.as_secs_f64(), meaning)?;
    let least = turns.iter().min().copied().unwrap_or_default();
    figures.add(
        "storm_least_turns_of_a_task",
        float(least),
        "the same: no task has fewer",
    )?;
    figures.add(
        "storm_deadlocks",
        float(new.unsigned_abs()),
        "the same: deadlocks that the server counted meanwhile",
    )?;
    if new != 0 {
        return Err("the server counted deadlocks".into());
    }
    Ok(())
}

/// How many deadlocks the server has counted, of all sessions.
async fn deadlocks(connection: &mut MySqlConnection) -> Result<i64> {
    let version: String = sqlx::query_scalar("SELECT VERSION()")
        .fetch_one(&mut *connection)
        .await?;
    let sql = if version.contains("MariaDB") {
        "SELECT CAST(VARIABLE_VALUE AS SIGNED) FROM information_schema.GLOBAL_STATUS
         WHERE VARIABLE_NAME = 'Innodb_deadlocks'"
    } else {
        "SELECT CAST(SUM(SUM_ERROR_RAISED) AS SIGNED)
         FROM performance_schema.events_errors_summary_global_by_error WHERE ERROR_NUMBER = 1213"
    };
    let count = number(connection, sql).await?;
    count.ok_or_else(|| "the server does not count deadlocks".into())
}

/// How often each task had all that it asked for.
pub(crate) async fn work(work: Work) -> Result<()> {
    let client = LockClient::connect(&work.url).await?;
    let mut running = JoinSet::new();
    let start = Instant::now();
    for task in 0..work.count {
        let client = client.clone();
        let mut names: Vec<String> = (0..NAMES)
            .map(|number| format!("{}:{number}", work.name))
            .collect();
        let count = FEWEST + task % (MOST - FEWEST + 1);
        running.spawn(async move {
            let mut turns = 0_u64;
            // However short the time is, everybody has a turn.
            while turns == 0 || start.elapsed() < work.time {
                names.shuffle(&mut rand::rng());
                let request = client.lock_all(&names[..count]).wait(PATIENCE);
                let guard = request.acquire().await?;
                tokio::time::sleep(Duration::from_micros(100)).await;
                guard.release().await?;
                turns += 1;
            }
            Ok::<u64, tag_lock::Error>(turns)
        });
    }
    while let Some(turns) = running.join_next().await {
        println!("{}", turns??);
    }
    client.close(AtClose::Release).await;
    Ok(())
}
