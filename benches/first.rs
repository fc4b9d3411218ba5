//! A first measurement: tag-lock against the article's third version, on the same server in the same run.
//!
//! `scripts/with-mysql cargo bench --bench first [-- --quick]`
//!
//! - Lock + unlock pairs a second: 64 tasks, each with a lock of its own.
//! - Increments a second: 1,024 tasks on one counter.
//!
//! The contestants take turns, slice by slice, so that whatever else the machine does hits both. The medians of the
//! slices are compared. Every increment is accounted for at the end, and the program fails if one is missing or if a
//! ratio is below what tag-lock promises. `--quick` measures one slice, which says nothing about ratios: it shows that the
//! benchmark runs, and that no increment is missing.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tag_lock::LockClient;
use tokio::task::JoinSet;
use tokio::time::Instant;

#[path = "race/contestants/article.rs"]
#[allow(
    unreachable_pub,
    reason = "written as a module of the race, a crate of its own"
)]
mod article;

use article::{Article, Version};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const PAIR_TASKS: usize = 64;
const COUNTER_TASKS: usize = 1024;
/// Odd, so that the median is one of the slices.
const ROUNDS: usize = 5;
const QUICK_ROUNDS: usize = 1;
/// Not counted: connections open and queues fill.
const WARM_UP: Duration = Duration::from_millis(500);
const SLICE: Duration = Duration::from_millis(1500);
const TTL: Duration = Duration::from_secs(30);
/// The article's connections: one for each statement in flight serves it best.
const CONNECTIONS: usize = 64;

const PAIRS_AT_LEAST: f64 = 5.0;
const COUNTER_AT_LEAST: f64 = 200.0;

#[tokio::main]
async fn main() -> Result<()> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let rounds = if quick { QUICK_ROUNDS } else { ROUNDS };
    let url = std::env::var("DATABASE_URL")
        .map_err(|_| "no server: run `scripts/with-mysql cargo bench --bench first`")?;
    let locks = LockClient::connect(&url).await?;
    locks.migrate().await?;
    Article::create_tables(&url).await?;
    let article = Arc::new(Article::new(Version::Third, &url, CONNECTIONS)?);
    article.connections().fill().await?;
    let hot = format!("first/{}", std::process::id());

    let mut series = [const { Vec::<f64>::new() }; 4];
    let mut increments = [0, 0];
    for round in 1..=rounds {
        let client = Arc::clone(&article);
        let pair = move |task: usize| {
            let (article, name) = (Arc::clone(&client), format!("first-{task}"));
            async move {
                if !article.lock(&name, TTL).await? {
                    return Err(format!("{name} was held").into());
                }
                Ok(article.unlock(&name).await?)
            }
        };
        let article_pairs = slice(PAIR_TASKS, pair).await?;

        let client = locks.clone();
        let pair = move |task: usize| {
            let (locks, name) = (client.clone(), format!("first-{task}"));
            async move {
                Ok(locks
                    .lock(&name)
                    .ttl(TTL)
                    .acquire()
                    .await?
                    .release()
                    .await?)
            }
        };
        let tag_lock_pairs = slice(PAIR_TASKS, pair).await?;

        let (client, counter) = (Arc::clone(&article), hot.clone());
        let add = move |_| {
            let (article, name) = (Arc::clone(&client), counter.clone());
            async move { Ok(article.incr(&name, 1).await.map(drop)?) }
        };
        let article_adds = slice(COUNTER_TASKS, add).await?;

        let (client, counter) = (locks.clone(), hot.clone());
        let add = move |_| {
            let (locks, name) = (client.clone(), counter.clone());
            async move { Ok(locks.counter(&name).add(1).await.map(drop)?) }
        };
        let tag_lock_adds = slice(COUNTER_TASKS, add).await?;

        increments[0] += article_adds.total;
        increments[1] += tag_lock_adds.total;
        let rates = [article_pairs, tag_lock_pairs, article_adds, tag_lock_adds].map(|s| s.rate);
        eprintln!(
            "round {round}/{rounds}: pairs/s article {:.0}, tag-lock {:.0}; increments/s article {:.0}, tag-lock {:.0}",
            rates[0], rates[1], rates[2], rates[3]
        );
        for (series, rate) in series.iter_mut().zip(rates) {
            series.push(rate);
        }
    }

    let counted = [
        article.incr(&hot, 0).await?,
        locks.counter(&hot).get().await?,
    ];
    article.close().await;
    locks.close(tag_lock::AtClose::Release).await;
    Article::drop_tables(&url).await?;
    if counted.map(i64::unsigned_abs) != increments {
        return Err(format!("counted {counted:?}, but {increments:?} were acknowledged").into());
    }

    let [article_pairs, tag_lock_pairs, article_adds, tag_lock_adds] = series.map(median);
    let (pairs, adds) = (tag_lock_pairs / article_pairs, tag_lock_adds / article_adds);
    println!("medians of {rounds} interleaved slices    article v3     tag-lock       ratio");
    println!(
        "lock + unlock/s, {PAIR_TASKS:>4} tasks       {article_pairs:>10.0}  {tag_lock_pairs:>11.0}  {pairs:>9.1} ×"
    );
    println!(
        "one counter/s,   {COUNTER_TASKS:>4} tasks       {article_adds:>10.0}  {tag_lock_adds:>11.0}  {adds:>9.1} ×"
    );
    if quick {
        return Ok(());
    }
    if pairs < PAIRS_AT_LEAST || adds < COUNTER_AT_LEAST {
        return Err(
            format!("expected at least {PAIRS_AT_LEAST} × and {COUNTER_AT_LEAST} ×").into(),
        );
    }
    Ok(())
}

/// What one contestant did in one slice.
struct Slice {
    /// Operations a second, without the warm-up.
    rate: f64,
    /// All operations that were acknowledged, the warm-up included.
    total: u64,
}

/// Lets `tasks` tasks run `operation` over and over for one slice.
async fn slice<F>(
    tasks: usize,
    operation: impl Fn(usize) -> F + Clone + Send + 'static,
) -> Result<Slice>
where
    F: Future<Output = Result<()>> + Send,
{
    let (done, stop) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let (done, stop, operation) = (Arc::clone(&done), Arc::clone(&stop), operation.clone());
        running.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                operation(task).await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Result::Ok(())
        });
    }
    tokio::time::sleep(WARM_UP).await;
    let (before, start) = (done.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(SLICE).await;
    let (after, elapsed) = (done.load(Ordering::Relaxed), start.elapsed());
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    let counted = u32::try_from(after - before)?;
    Ok(Slice {
        rate: f64::from(counted) / elapsed.as_secs_f64(),
        total: done.load(Ordering::Relaxed),
    })
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
