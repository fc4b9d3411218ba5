//! Leases that idle in one process: what they cost while nobody wants them, and how soon another process has one.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use sqlx::Row;
use sqlx::mysql::MySqlConnection;
use tag_lock::LockClient;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::Result;
use crate::database::{Database, connect};
use crate::figures::{Figures, float, percentile};
use crate::options::Options;
use crate::process::cpu_seconds;
use crate::worker::Work;

const TTL: Duration = Duration::from_secs(30);
/// Longer than any run.
const LINGER: Duration = Duration::from_secs(3_600);
/// How many acquires are on their way at a time.
const AT_ONCE: usize = 1_024;
/// Between two hand-overs: a client that was rung listens more closely for a quarter of a second.
const PAUSE: Duration = Duration::from_millis(300);
/// And up to so much more, so that the hand-overs begin at all phases of the client's ticks.
const SPREAD: u64 = 100;

pub(crate) async fn run(
    options: &Options,
    database: &Database,
    figures: &mut Figures,
) -> Result<()> {
    let work = Work {
        part: "idle",
        url: database.url.clone(),
        name: "idle".to_owned(),
        count: options.pick(10_000, 10_000),
        time: options.seconds(60, 20),
    };
    eprintln!(
        "{} leases idle in one process for {:?}, then another one wants them one after the other",
        work.count, work.time
    );
    let mut worker = work.start()?;
    let mut watch = database.connection().await?;
    worker.line().await?;
    let before = questions(&mut watch).await?;
    let processor = worker.line().await?.ok_or("the worker ended")?;
    // The first of the two is counted by the second.
    let statements = float(questions(&mut watch).await? - before - 1);
    figures.add(
        "idle_client_processor_percent",
        100.0 * processor.parse::<f64>()? / work.time.as_secs_f64(),
        "of the process in which 10,000 leases idle",
    )?;
    figures.add(
        "idle_statements_per_second",
        statements / work.time.as_secs_f64(),
        "on the server meanwhile",
    )?;
    let client = LockClient::connect(&work.url).await?;
    let mut waits = Vec::new();
    // The last ones: the first were released before the worker had a bell, so they do not idle.
    for number in (0..work.count).rev().take(options.pick(500, 100)) {
        let asked = Instant::now();
        let guard = client.lock(&name(number)).acquire().await?;
        waits.push(asked.elapsed().as_secs_f64() * 1_000.0);
        guard.release().await?;
        let more = u64::try_from(number)? * 37 % SPREAD;
        tokio::time::sleep(PAUSE + Duration::from_millis(more)).await;
    }
    for (figure, share) in [("p50", 0.5), ("p99", 0.99)] {
        figures.add(
            &format!("idle_handover_{figure}_ms"),
            percentile(&mut waits, share)?,
            "from an acquire to its grant, of a lock that idles in another process",
        )?;
    }
    worker.end().await
}

fn name(number: usize) -> String {
    format!("idle {number:06}")
}

async fn questions(connection: &mut MySqlConnection) -> Result<u64> {
    let row = sqlx::query("SHOW GLOBAL STATUS LIKE 'Questions'")
        .fetch_one(connection)
        .await?;
    Ok(row.try_get_unchecked::<String, _>(1)?.parse()?)
}

/// Takes the locks, lets them idle, says what that cost, and goes on until its input ends.
pub(crate) async fn work(work: Work) -> Result<()> {
    let builder = LockClient::builder(work.url.parse()?);
    let client = builder.linger(LINGER).default_ttl(TTL).connect().await?;
    stream::iter(0..work.count)
        .map(|number| {
            let lock = client.lock(&name(number));
            async move { lock.acquire().await?.release().await }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    // The last of what it took to take them.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = cpu_seconds("self")?;
    println!("ready");
    tokio::time::sleep(work.time).await;
    println!("{}", cpu_seconds("self")? - before);
    BufReader::new(tokio::io::stdin())
        .lines()
        .next_line()
        .await?;
    // What still idles is of no interest.
    let mut connection = connect(&work.url).await?;
    crate::database::execute(
        &mut connection,
        "DELETE FROM t_tag_lock WHERE kind=1".to_owned(),
    )
    .await
}
