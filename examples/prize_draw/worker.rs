//! The worker processes: this program, started again with its role in the environment.
//!
//! A worker says `ready`, waits for a line on its standard input, so that all begin together, and then prints its
//! tally again and again, the last time when all clicks are answered.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tag_lock::{AtClose, LockClient};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinSet;

use crate::progress::Progress;
use crate::{PARTICIPANTS, PROCESSES, Result, TASKS, Tally, Way, careless, fair, office, url};

const ROLE: &str = "PRIZE_DRAW_WORKER";
const POOL: u32 = 8;
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// Which worker this process is.
#[derive(Clone, Copy)]
pub(crate) struct Role {
    way: Way,
    number: u32,
}

/// The role from the environment; `None` in the process that the user started.
pub(crate) fn role() -> Option<Role> {
    let text = std::env::var(ROLE).ok()?;
    let (way, number) = text.split_once(' ')?;
    Some(Role {
        way: if way == "careless" {
            Way::Careless
        } else {
            Way::TagLock
        },
        number: number.parse().ok()?,
    })
}

/// Starts all workers, shows their progress, and adds up what they did.
pub(crate) async fn run_all(way: Way) -> Result<(Tally, Duration)> {
    let mut workers = Vec::new();
    for number in 0..PROCESSES {
        workers.push(start(way, number)?);
    }
    for (_, lines) in &mut workers {
        if lines.next_line().await?.as_deref() != Some("ready") {
            return Err("a worker did not start".into());
        }
    }
    let begin = Instant::now();
    let mut running = JoinSet::new();
    let tallies = Arc::new(Mutex::new([Tally::default(); PROCESSES as usize]));
    for (number, (mut child, mut lines)) in workers.into_iter().enumerate() {
        // The end of the input is the signal.
        drop(child.stdin.take());
        let tallies = Arc::clone(&tallies);
        running.spawn(async move {
            while let Some(line) = lines.next_line().await? {
                let tally = Tally::from_line(&line)?;
                tallies.lock().unwrap_or_else(PoisonError::into_inner)[number] = tally;
            }
            match child.wait().await? {
                status if status.success() => Result::Ok(()),
                status => Err(format!("worker {number}: {status}").into()),
            }
        });
    }
    let sum = || Tally::sum(&*tallies.lock().unwrap_or_else(PoisonError::into_inner));
    let mut progress = Progress::new(way);
    let mut tick = tokio::time::interval(REPORT_EVERY);
    loop {
        tokio::select! {
            ended = running.join_next() => match ended {
                Some(ended) => ended??,
                None => break,
            },
            _ = tick.tick() => progress.show(&sum()),
        }
    }
    progress.finish(&sum());
    Ok((sum(), begin.elapsed()))
}

fn start(way: Way, number: u32) -> Result<(Child, Lines<BufReader<ChildStdout>>)> {
    let way = if way == Way::Careless {
        "careless"
    } else {
        "tag-lock"
    };
    let mut child = Command::new(std::env::current_exe()?)
        .env(ROLE, format!("{way} {number}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = child.stdout.take().ok_or("a worker has no output")?;
    Ok((child, BufReader::new(output).lines()))
}

/// Answers this worker's clicks.
pub(crate) async fn run(role: Role) -> Result<()> {
    let url = url()?;
    let (pool, locks) = (
        office::pool(&url, POOL).await?,
        LockClient::connect(&url).await?,
    );
    say("ready").await?;
    tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await?;

    let tally = Arc::new(Mutex::new(Tally::default()));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (pool, locks, tally) = (pool.clone(), locks.clone(), Arc::clone(&tally));
        tasks.spawn(async move {
            for participant in clicks(role.number, task) {
                let won = match role.way {
                    Way::Careless => careless::draw(&pool, participant).await?,
                    Way::TagLock => fair::draw(&locks, &pool, participant).await?,
                };
                let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                tally.count(won);
                if role.way == Way::TagLock {
                    tally.count_lock(&fair::lock_name(participant));
                }
            }
            Result::Ok(())
        });
    }
    let line = || {
        tally
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .to_line()
    };
    let mut tick = tokio::time::interval(REPORT_EVERY);
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                Some(ended) => ended??,
                None => break,
            },
            _ = tick.tick() => say(&line()).await?,
        }
    }
    say(&line()).await?;
    locks.close(AtClose::Release).await;
    Ok(())
}

/// The participants whose clicks reach this task: each of them clicks in two processes.
fn clicks(process: u32, task: u32) -> impl Iterator<Item = u32> {
    let half = process % 2;
    (0..PARTICIPANTS)
        .filter(move |participant| participant % 2 == half)
        .skip(task as usize)
        .step_by(TASKS as usize)
}

async fn say(line: &str) -> Result<()> {
    let mut output = tokio::io::stdout();
    output.write_all(format!("{line}\n").as_bytes()).await?;
    Ok(output.flush().await?)
}
