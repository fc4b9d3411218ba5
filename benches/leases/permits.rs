//! The permits of one semaphore: among the tasks of one process, and among those of several.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use tag_lock::{AtClose, LockClient};
use tokio::task::JoinSet;

use crate::Result;
use crate::clock::nanoseconds;
use crate::database::Database;
use crate::figures::{Figures, float};
use crate::options::Options;
use crate::worker::Work;

const PERMITS: u32 = 10;
const TASKS: usize = 64;
const PROCESSES: usize = 4;

pub(crate) async fn run(
    options: &Options,
    database: &Database,
    figures: &mut Figures,
) -> Result<()> {
    eprintln!("{PERMITS} permits among {TASKS} tasks");
    let time = options.seconds(10, 3);
    let held = hold(&database.url, "alone", TASKS, time).await?;
    figures.add(
        "permits_per_second",
        float(held.len() as u64) / time.as_secs_f64(),
        "10 permits, 64 tasks of one process",
    )?;

    eprintln!("the same among {PROCESSES} processes");
    let mut workers = Vec::new();
    for _ in 0..PROCESSES {
        let work = Work {
            part: "permits",
            url: database.url.clone(),
            name: "together".to_owned(),
            count: TASKS / PROCESSES,
            time,
        };
        workers.push(work.start()?);
    }
    let mut holds = Vec::new();
    let mut least = u64::MAX;
    for worker in workers {
        let lines = worker.rest().await?;
        least = least.min(lines.len() as u64);
        for line in lines {
            let (granted, released) = line.split_once(' ').ok_or("a worker said something else")?;
            holds.push((granted.parse::<u64>()?, released.parse::<u64>()?));
        }
    }
    let all = float(holds.len() as u64);
    if most_at_once(&holds) > PERMITS as usize {
        return Err("more permits than there are were held at once".into());
    }
    figures.add(
        "permits_of_processes_per_second",
        all / time.as_secs_f64(),
        "10 permits, 4 processes of 16 tasks",
    )?;
    figures.add(
        "permits_least_served_process_share",
        float(least) * float(PROCESSES as u64) / all,
        "what the process served least got, as a part of an equal share",
    )
}

/// The most that were held in one moment.
fn most_at_once(holds: &[(u64, u64)]) -> usize {
    let begins = holds.iter().map(|(granted, _)| (*granted, true));
    let ends = holds.iter().map(|(_, released)| (*released, false));
    let mut moments: Vec<(u64, bool)> = begins.chain(ends).collect();
    // What ends in a moment ends before another begins in it.
    moments.sort_unstable();
    let (mut now, mut most) = (0_usize, 0);
    for (_, begins) in moments {
        if begins {
            now += 1;
            most = most.max(now);
        } else {
            now -= 1;
        }
    }
    most
}

/// Takes permits with so many tasks: when each was granted and released.
async fn hold(url: &str, name: &str, tasks: usize, time: Duration) -> Result<Vec<(u64, u64)>> {
    let client = LockClient::connect(url).await?;
    let semaphore = client.semaphore(name, PERMITS);
    let mut running = JoinSet::new();
    let start = Instant::now();
    for _ in 0..tasks {
        let semaphore = semaphore.clone();
        running.spawn(async move {
            let mut holds = Vec::new();
            while start.elapsed() < time {
                let permit = semaphore.acquire().await?;
                let granted = nanoseconds();
                // Others run meanwhile, as where something is done.
                tokio::task::yield_now().await;
                holds.push((granted, nanoseconds()));
                permit.release().await?;
            }
            Ok::<_, tag_lock::Error>(holds)
        });
    }
    let mut holds = Vec::new();
    while let Some(some) = running.join_next().await {
        holds.extend(some??);
    }
    client.close(AtClose::Release).await;
    Ok(holds)
}

pub(crate) async fn work(work: Work) -> Result<()> {
    let mut said = String::new();
    for (granted, released) in hold(&work.url, &work.name, work.count, work.time).await? {
        writeln!(said, "{granted} {released}")?;
    }
    print!("{said}");
    Ok(())
}
