//! Many tasks of one process that wait for as many names, all held by another client.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tag_lock::{AtClose, LockClient, LockGuard};
use tokio::task::JoinSet;

use crate::Result;
use crate::database::Database;
use crate::figures::{Figures, float};
use crate::handover::statements;
use crate::options::Options;
use crate::proxy::Proxy;

const NAMES: usize = 1_000;

pub(crate) async fn run(
    options: &Options,
    database: &Database,
    figures: &mut Figures,
) -> Result<()> {
    eprintln!("{NAMES} tasks of one process wait for {NAMES} names");
    let holder = LockClient::connect(&database.url).await?;
    let held: Vec<LockGuard> = stream::iter(0..NAMES)
        .map(|number| {
            let holder = holder.clone();
            async move { holder.lock(&name(number)).acquire().await }
        })
        .buffer_unordered(NAMES)
        .try_collect()
        .await?;

    let proxy = Proxy::before(&database.url).await?;
    let waiter = LockClient::connect(&proxy.url(&database.url)).await?;
    let mut tasks = JoinSet::new();
    for number in 0..NAMES {
        let waiter = waiter.clone();
        tasks.spawn(async move { waiter.lock(&name(number)).acquire().await.map(drop) });
    }
    // Waits are told apart by their age: what they cost at first is another question.
    tokio::time::sleep(Duration::from_secs(3)).await;
    // Long enough for each to say at least once that it still waits.
    let time = options.seconds(30, 12);
    proxy.record(true);
    let before = proxy.counters();
    tokio::time::sleep(time).await;
    let passed = proxy.counters().since(&before);
    let commands = proxy.take_recorded();
    proxy.record(false);
    let statements: usize = commands
        .iter()
        .map(|command| statements(command.sql.as_deref()))
        .sum();
    let seconds = time.as_secs_f64();
    figures.add(
        "waiting_statements_per_second",
        float(statements as u64) / seconds,
        "of 1,000 tasks that wait for 1,000 names",
    )?;
    figures.add(
        "waiting_round_trips_per_second",
        float(passed.round_trips) / seconds,
        "the same",
    )?;
    figures.add(
        "waiting_kilobytes_per_second",
        float(passed.bytes_to_client + passed.bytes_to_server) / seconds / 1_000.0,
        "the same, both ways",
    )?;
    figures.add(
        "waiting_connections",
        float(proxy.open_connections() as u64),
        "the same",
    )?;

    drop(held);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    waiter.close(AtClose::Release).await;
    holder.close(AtClose::Release).await;
    Ok(())
}

fn name(number: usize) -> String {
    format!("waiting {number:04}")
}
