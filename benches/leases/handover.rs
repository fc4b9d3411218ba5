//! One lock between two processes that hold it for 5 ms each: how long from the release in one to the
//! grant in the other, and what the one that waits asks of the server.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use tag_lock::LockClient;

use crate::Result;
use crate::clock::{milliseconds, nanoseconds};
use crate::database::Database;
use crate::figures::{Figures, float, percentile};
use crate::options::Options;
use crate::proxy::Proxy;
use crate::worker::Work;

const HOLD: Duration = Duration::from_millis(5);

/// One hold: who, and its grant and release in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Hold {
    process: usize,
    granted: u64,
    released: u64,
}

pub(crate) async fn run(
    options: &Options,
    database: &Database,
    figures: &mut Figures,
) -> Result<()> {
    eprintln!("one lock between two processes, held for 5 ms each");
    let holds = race(
        [&database.url, &database.url],
        "handover",
        options.seconds(30, 10),
    )
    .await?;
    let mut gaps: Vec<f64> = holds
        .windows(2)
        .filter(|pair| pair[0].process != pair[1].process)
        .map(|pair| milliseconds(pair[0].released, pair[1].granted))
        .collect();
    if gaps.iter().any(|gap| *gap < 0.0) {
        return Err("two processes held the lock at once".into());
    }
    figures.add(
        "handover_count",
        float(gaps.len() as u64),
        "hand-overs measured",
    )?;
    figures.add(
        "handover_p50_ms",
        percentile(&mut gaps, 0.5)?,
        "release in one process to grant in the other",
    )?;
    figures.add("handover_p99_ms", percentile(&mut gaps, 0.99)?, "the same")?;
    figures.add("handover_max_ms", percentile(&mut gaps, 1.0)?, "the same")?;

    eprintln!("the same, one of them through a proxy that counts");
    let time = options.seconds(15, 6);
    let proxy = Proxy::before(&database.url).await?;
    proxy.record(true);
    let counted = proxy.url(&database.url);
    let holds = race([&database.url, &counted], "handover counted", time).await?;
    let commands = proxy.take_recorded();
    let statements: usize = commands
        .iter()
        .map(|command| statements(command.sql.as_deref()))
        .sum();
    let packets = commands.len();
    let turns = holds.iter().filter(|hold| hold.process == 1).count().max(1);
    figures.add(
        "handover_statements_per_second",
        float(statements as u64) / time.as_secs_f64(),
        "of one of the two, its acquires and releases included",
    )?;
    figures.add(
        "handover_round_trips_per_turn",
        float(packets as u64) / float(turns as u64),
        "the same, for each time that it got the lock",
    )
}

/// How many statements a packet has. No value has a `;` in it: all are hex or decimal literals.
pub(crate) fn statements(sql: Option<&str>) -> usize {
    sql.map_or(1, |sql| {
        sql.split(';').filter(|one| !one.trim().is_empty()).count()
    })
}

/// Lets two processes race for a lock; their holds in order.
async fn race(urls: [&String; 2], name: &str, time: Duration) -> Result<Vec<Hold>> {
    let mut workers = Vec::new();
    for url in urls {
        let work = Work {
            part: "handover",
            url: url.clone(),
            name: name.to_owned(),
            count: 1,
            time,
        };
        workers.push(work.start()?);
    }
    let mut holds = Vec::new();
    for (process, worker) in workers.into_iter().enumerate() {
        for line in worker.rest().await? {
            let (granted, released) = line.split_once(' ').ok_or("a worker said something else")?;
            holds.push(Hold {
                process,
                granted: granted.parse()?,
                released: released.parse()?,
            });
        }
    }
    holds.sort_by_key(|hold| hold.granted);
    // While only one of them runs there is nobody to hand over to.
    let first = holds
        .iter()
        .position(|hold| hold.process != holds[0].process);
    Ok(holds.split_off(first.ok_or("only one process ever got the lock")?))
}

pub(crate) async fn work(work: Work) -> Result<()> {
    let client = LockClient::connect(&work.url).await?;
    let mut said = String::new();
    let start = Instant::now();
    while start.elapsed() < work.time {
        let guard = client.lock(&work.name).acquire().await?;
        let granted = nanoseconds();
        tokio::time::sleep(HOLD).await;
        let released = nanoseconds();
        guard.release().await?;
        writeln!(said, "{granted} {released}")?;
    }
    client.close(tag_lock::AtClose::Release).await;
    print!("{said}");
    Ok(())
}
