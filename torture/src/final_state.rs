//! Reads what is left in the tables, when all is quiet.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};
use tag_lock::{AtClose, LockClient, LockState};

use crate::bank;
use crate::faults::{Failure, Rig};
use crate::history::FinalState;
use crate::setup::{self, Workload};

/// How long the servers may take until they answer again.
const PATIENCE: Duration = Duration::from_secs(120);
/// By then one has a lock that nobody holds.
const SOON: Duration = Duration::from_secs(5);
/// How much longer than a ttl a lease may seem to last: clocks are read, packets are under way.
const SLACK: Duration = Duration::from_millis(500);

/// Waits until every lease of a killed worker must have ended, and reads with a fresh client.
///
/// # Errors
///
/// If the server does not answer, or a table cannot be read.
pub async fn read(rig: &Rig, accepted: Vec<(Arc<str>, u64)>) -> Result<FinalState, Failure> {
    tokio::time::sleep(rig.setup.ttl() + SLACK).await;
    let node = rig.servers.writer();
    rig.servers.catch_up(node, PATIENCE).await?;
    let client = connect(node.options()?.database(&rig.database)).await?;
    let mut state = FinalState {
        accepted,
        deadlocks: rig.tallies.deadlocks(),
        ..FinalState::default()
    };
    let mut administrator = node.administrator().await?;
    let sql = format!(
        "SELECT CONVERT(lock_name USING utf8mb4), kind, count, fence FROM {}.t_tag_lock WHERE kind IN (1, 2, 5)",
        rig.database
    );
    let rows = sqlx::raw_sql(AssertSqlSafe(sql))
        .fetch_all(&mut administrator)
        .await?;
    for row in rows {
        let name: String = row.try_get_unchecked(0)?;
        let kind: i64 = row.try_get_unchecked(1)?;
        let name = Arc::<str>::from(name);
        if kind != 2 {
            state.fences.push((name, row.try_get_unchecked(3)?));
        } else {
            // Through the library: the table's columns are its own affair.
            let value = client.counter(&name).get().await?;
            state.counters.push((name, value));
        }
    }
    let mut locks = client.list("", None, 1_000).await?;
    for (name, permits) in setup::semaphores() {
        locks.extend(client.semaphore(&name, permits).list().await?);
    }
    for lock in locks {
        if matches!(lock.state, LockState::Held | LockState::Shared) {
            eprintln!("torture: still held: {lock:?}");
            state.held.push(lock.name.into());
        }
    }
    if rig.setup.workload == Workload::Shared {
        for number in 0..setup::SHARED_NAMES {
            let name = format!("{}:{number}", setup::SHARED_LOCKS);
            if let Err(error) = take_in_turns(&client, &name).await {
                eprintln!("torture: {name} is not to be had: {error}");
                state.held.push(name.into());
            }
        }
    }
    if rig.setup.workload == Workload::Permits {
        for (name, permits) in setup::semaphores() {
            let all = client.semaphore(&name, permits).wait(SOON);
            let taken = match all.acquire_many(permits).await {
                Ok(all) => all.release().await,
                Err(error) => Err(error),
            };
            if let Err(error) = taken {
                eprintln!("torture: all permits of {name} are not to be had: {error}");
                state.held.push(name.into());
            }
        }
    }
    bank::run(&mut administrator, &format!("USE {}", rig.database)).await?;
    let (accounts, transfers) = bank::books(&mut administrator).await?;
    state.accounts = accounts
        .into_iter()
        .map(|(name, balances)| (name.into(), balances))
        .collect();
    state.transfers = transfers;
    state.booked = bank::booked(&mut administrator).await?;
    client.close(AtClose::Release).await;
    Ok(state)
}

/// Takes a lock that nobody holds, to read and to write, and to read again.
async fn take_in_turns(client: &LockClient, name: &str) -> Result<(), tag_lock::Error> {
    let lock = || client.lock(name).wait(SOON);
    lock().shared().acquire().await?.release().await?;
    lock().acquire().await?.release().await?;
    lock().shared().acquire().await?.release().await
}

async fn connect(options: sqlx::mysql::MySqlConnectOptions) -> Result<LockClient, Failure> {
    let began = tokio::time::Instant::now();
    loop {
        match LockClient::builder(options.clone()).connect().await {
            Ok(client) => return Ok(client),
            Err(error) if began.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
