//! Holders that are killed: how long until the next one has the lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::RngExt;
use tag_lock::{AtClose, LockClient};
use tokio::task::JoinSet;

use crate::Result;
use crate::clock::{milliseconds, nanoseconds};
use crate::database::{Database, number};
use crate::figures::{Figures, float, percentile};
use crate::options::Options;
use crate::worker::Work;

const TTL: Duration = Duration::from_millis(500);
/// A lock is to be with the next holder this long after the lease's full time at the latest.
const ALLOWED: Duration = Duration::from_millis(100);
/// How many names are killed for at a time.
const AT_ONCE: usize = 4;

/// In milliseconds: from the lease's end, by the server's clock, and from the kill, to the next grant.
struct Takeover {
    after_end: f64,
    after_kill: f64,
}

pub(crate) async fn run(
    options: &Options,
    database: &Database,
    figures: &mut Figures,
) -> Result<()> {
    let kills = options.pick(200, 20);
    eprintln!("{kills} holders killed, ttl {TTL:?}");
    let waiter = LockClient::connect(&database.url).await?;
    let left = Arc::new(AtomicUsize::new(kills));
    let mut tasks = JoinSet::new();
    for task in 0..AT_ONCE {
        let (waiter, left) = (waiter.clone(), Arc::clone(&left));
        let mut connection = database.connection().await?;
        let work = Work {
            part: "takeover",
            url: database.url.clone(),
            name: format!("takeover {task}"),
            count: 1,
            time: TTL,
        };
        tasks.spawn(async move {
            let mut takeovers = Vec::new();
            let one_left = |left: usize| left.checked_sub(1);
            while left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_left)
                .is_ok()
            {
                takeovers.push(kill_one(&waiter, &mut connection, &work).await?);
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(takeovers)
        });
    }
    let mut takeovers = Vec::new();
    while let Some(some) = tasks.join_next().await {
        takeovers.extend(some??);
    }
    waiter.close(AtClose::Release).await;

    let limit = (TTL + ALLOWED).as_secs_f64() * 1_000.0;
    let late = takeovers
        .iter()
        .filter(|one| one.after_kill > limit)
        .count();
    let mut after_end: Vec<f64> = takeovers.iter().map(|one| one.after_end).collect();
    let mut after_kill: Vec<f64> = takeovers.iter().map(|one| one.after_kill).collect();
    let meaning = "a holder was killed: from its lease's end to the next grant";
    figures.add(
        "takeover_p50_ms_after_ttl",
        percentile(&mut after_end, 0.5)?,
        meaning,
    )?;
    figures.add(
        "takeover_p90_ms_after_ttl",
        percentile(&mut after_end, 0.9)?,
        meaning,
    )?;
    figures.add(
        "takeover_p99_ms_after_ttl",
        percentile(&mut after_end, 0.99)?,
        meaning,
    )?;
    figures.add(
        "takeover_max_ms_after_ttl",
        percentile(&mut after_end, 1.0)?,
        meaning,
    )?;
    figures.add(
        "takeover_max_ms_after_kill",
        percentile(&mut after_kill, 1.0)?,
        "from the kill to the next grant, with a ttl of 500 ms",
    )?;
    figures.add(
        "takeovers_later_than_ttl_plus_100_ms",
        float(late as u64),
        "counted from the kill; must be 0",
    )
}

async fn kill_one(
    waiter: &LockClient,
    connection: &mut sqlx::mysql::MySqlConnection,
    work: &Work,
) -> Result<Takeover> {
    let mut holder = work.start()?;
    if holder.line().await?.as_deref() != Some("held") {
        return Err("a holder did not get the lock".into());
    }
    let (client, name) = (waiter.clone(), work.name.clone());
    let next = tokio::spawn(async move {
        let guard = client.lock(&name).acquire().await?;
        let granted = nanoseconds();
        guard.release().await?;
        Ok::<u64, tag_lock::Error>(granted)
    });
    // At any moment of its renewals.
    let moment = rand::rng().random_range(0..=TTL.as_micros());
    tokio::time::sleep(Duration::from_micros(u64::try_from(moment)?)).await;
    holder.kill()?;
    let killed = nanoseconds();
    holder.ended().await?;
    // Nobody renews it any more: what is left now is final.
    let asked = nanoseconds();
    let sql = format!(
        "SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), deadline) FROM t_tag_lock \
         WHERE lock_name = '{}' AND kind = 1",
        work.name
    );
    let left = number(connection, &sql)
        .await?
        .ok_or("the lock has no row")?;
    let answered = nanoseconds();
    let granted = next.await??;
    // The server read its clock between the question and the answer.
    let read = asked + (answered - asked) / 2;
    #[allow(clippy::cast_precision_loss, reason = "microseconds of half a second")]
    let left = left as f64 / 1_000.0;
    Ok(Takeover {
        after_end: milliseconds(read, granted) - left,
        after_kill: milliseconds(killed, granted),
    })
}

pub(crate) async fn work(work: Work) -> Result<()> {
    let client = LockClient::connect(&work.url).await?;
    let guard = client.lock(&work.name).ttl(work.time).acquire().await?;
    println!("held");
    guard.lost().await;
    Err("nobody killed this holder".into())
}
