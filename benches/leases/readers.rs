//! A lock that many hold shared: what a reader costs while nobody writes, and how long a writer waits where readers never pause.

use std::time::{Duration, Instant};

use tag_lock::{AtClose, LockClient};
use tokio::task::JoinSet;

use crate::Result;
use crate::database::Database;
use crate::figures::{Figures, float, percentile};
use crate::options::Options;
use crate::proxy::Proxy;
use crate::worker::Work;

const READERS: usize = 64;
const PROCESSES: usize = 4;
/// How long a reader reads, where a writer comes.
const READING: Duration = Duration::from_millis(1);
/// How often the writer comes.
const WRITES_EVERY: Duration = Duration::from_millis(100);

pub(crate) async fn run(
    options: &Options,
    database: &Database,
    figures: &mut Figures,
) -> Result<()> {
    eprintln!("{READERS} readers of one process, and no writer");
    let proxy = Proxy::before(&database.url).await?;
    proxy.record(true);
    let time = options.seconds(10, 3);
    let read = read(&proxy.url(&database.url), "unwritten", READERS, time, None).await?;
    let packets = proxy.take_recorded().len();
    figures.add(
        "readers_per_second",
        float(read) / time.as_secs_f64(),
        "64 tasks of one process, no writer",
    )?;
    figures.add(
        "readers_packets_per_thousand",
        1_000.0 * float(packets as u64) / float(read.max(1)),
        "the same: packets that the client sent, those of its start included",
    )?;

    eprintln!("{PROCESSES} processes of {READERS} readers, and a writer every {WRITES_EVERY:?}");
    let time = options.seconds(30, 8);
    let mut workers = Vec::new();
    for _ in 0..PROCESSES {
        let work = Work {
            part: "readers",
            url: database.url.clone(),
            name: "written".to_owned(),
            count: READERS,
            time,
        };
        workers.push(work.start()?);
    }
    for worker in &mut workers {
        if worker.line().await?.as_deref() != Some("reading") {
            return Err("a worker did not read".into());
        }
    }
    let mut waits = write(database, "written", time).await?;
    let mut read = 0;
    for worker in workers {
        for line in worker.rest().await? {
            read += line.parse::<u64>()?;
        }
    }
    figures.add(
        "readers_beside_a_writer_per_second",
        float(read) / time.as_secs_f64(),
        "4 processes of 64 tasks that read for 1 ms, a writer every 100 ms",
    )?;
    for (share, name) in [
        (0.5, "writer_wait_p50_ms"),
        (0.99, "writer_wait_p99_ms"),
        (1.0, "writer_wait_max_ms"),
    ] {
        let meaning = "the same: from the writer's request to its grant";
        figures.add(name, percentile(&mut waits, share)?, meaning)?;
    }
    figures.add("writer_grants", float(waits.len() as u64), "the same")
}

/// How often so many tasks held the lock shared.
async fn read(
    url: &str,
    name: &str,
    tasks: usize,
    time: Duration,
    reading: Option<Duration>,
) -> Result<u64> {
    let client = LockClient::connect(url).await?;
    let first = client.lock(name).shared().acquire().await?;
    if reading.is_some() {
        println!("reading");
    }
    first.release().await?;
    let mut running = JoinSet::new();
    let start = Instant::now();
    for _ in 0..tasks {
        let (client, name) = (client.clone(), name.to_owned());
        running.spawn(async move {
            let mut read = 0;
            while start.elapsed() < time {
                let guard = client.lock(&name).shared().acquire().await?;
                match reading {
                    Some(reading) => tokio::time::sleep(reading).await,
                    None => tokio::task::yield_now().await,
                }
                guard.release().await?;
                read += 1;
            }
            Ok::<u64, tag_lock::Error>(read)
        });
    }
    let mut read = 0;
    while let Some(some) = running.join_next().await {
        read += some??;
    }
    client.close(AtClose::Release).await;
    Ok(read)
}

/// Writes again and again: how long each write waited, in milliseconds.
async fn write(database: &Database, name: &str, time: Duration) -> Result<Vec<f64>> {
    let client = LockClient::connect(&database.url).await?;
    let mut waits = Vec::new();
    let mut next = tokio::time::interval(WRITES_EVERY);
    next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let start = Instant::now();
    while start.elapsed() < time {
        next.tick().await;
        let asked = Instant::now();
        let guard = client.lock(name).acquire().await?;
        waits.push(asked.elapsed().as_secs_f64() * 1_000.0);
        guard.release().await?;
    }
    client.close(AtClose::Release).await;
    Ok(waits)
}

pub(crate) async fn work(work: Work) -> Result<()> {
    let read = read(&work.url, &work.name, work.count, work.time, Some(READING)).await?;
    println!("{read}");
    Ok(())
}
