//! Many leases, held for long by one client with few connections.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use sqlx::AssertSqlSafe;
use tag_lock::{LockClient, LockGuard};

use crate::Result;
use crate::database::{Database, connect};
use crate::figures::{Figures, float};
use crate::options::Options;
use crate::process::{cpu_seconds, resident, server};
use crate::worker::Work;

const TTL: Duration = Duration::from_secs(30);
/// How many acquires are on their way at a time.
const AT_ONCE: usize = 4_096;

pub(crate) async fn run(
    options: &Options,
    database: &Database,
    figures: &mut Figures,
) -> Result<()> {
    let work = Work {
        part: "many",
        url: database.url.clone(),
        name: "many".to_owned(),
        count: options.pick(100_000, 20_000),
        time: options.seconds(120, 40),
    };
    eprintln!(
        "{} leases of {TTL:?}, held for {:?} by one client",
        work.count, work.time
    );
    figures.add(
        "leases",
        float(work.count as u64),
        "held at once by one client",
    )?;
    // A process of its own, so that its memory and processor time are those of the leases.
    for line in work.start()?.rest().await? {
        let (name, value) = line.split_once(' ').ok_or("a worker said something else")?;
        figures.add(name, value.parse()?, meaning(name))?;
    }
    Ok(())
}

fn meaning(name: &str) -> &'static str {
    match name {
        "leases_lost" => "must be 0",
        "leases_acquired_per_second" => "while they were acquired",
        "client_cpu_seconds" => "while they were held and renewed",
        "server_cpu_seconds" => "the same",
        "bytes_per_lease" => "the client's resident memory",
        "connections" => "the most at any look",
        _ => "",
    }
}

pub(crate) async fn work(work: Work) -> Result<()> {
    let client = LockClient::connect(&work.url).await?;
    // One lease first, so that what the client needs in any case is not counted.
    drop(client.lock("first").acquire().await?);
    let before = resident()?;
    let start = Instant::now();
    let guards: Vec<LockGuard> = stream::iter(0..work.count)
        .map(|number| {
            let client = client.clone();
            let name = format!("{} {number:06}", work.name);
            async move { client.lock(&name).ttl(TTL).acquire().await }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    let count = float(work.count as u64);
    println!(
        "leases_acquired_per_second {}",
        count / start.elapsed().as_secs_f64()
    );

    let server = server();
    let cpu = cpu_seconds("self")?;
    let server_cpu = server.as_deref().map(cpu_seconds).transpose()?;
    let mut watch = connect(&work.url).await?;
    let database = work.url.rsplit('/').next().unwrap_or_default();
    let count_connections =
        format!("SELECT COUNT(*) - 1 FROM information_schema.PROCESSLIST WHERE DB = '{database}'");
    let mut connections = 0;
    let mut memory = resident()?;
    let held = Instant::now();
    while held.elapsed() < work.time {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now: i64 = sqlx::query_scalar(AssertSqlSafe(count_connections.clone()))
            .fetch_one(&mut watch)
            .await?;
        connections = connections.max(now);
        memory = memory.max(resident()?);
        eprint!("\r  held for {:>3} s ", held.elapsed().as_secs());
    }
    eprintln!();
    println!("client_cpu_seconds {}", cpu_seconds("self")? - cpu);
    if let (Some(pid), Some(before)) = (server.as_deref(), server_cpu) {
        println!("server_cpu_seconds {}", cpu_seconds(pid)? - before);
    }
    println!(
        "bytes_per_lease {}",
        float(memory.saturating_sub(before)) / count
    );
    println!("connections {connections}");

    let lost = guards
        .iter()
        .filter(|guard| !guard.is_held() || guard.cancellation_token().is_cancelled())
        .count();
    // What this process believes is one thing, what the table says another.
    let refused = stream::iter(guards)
        .map(LockGuard::release)
        .buffer_unordered(AT_ONCE)
        .filter(|released| std::future::ready(released.is_err()))
        .count()
        .await;
    println!("leases_lost {}", lost.max(refused));
    client.close(tag_lock::AtClose::Release).await;
    Ok(())
}
