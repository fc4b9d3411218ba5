//! A job that every machine starts and one runs: `scripts/with-mysql cargo run --example periodic_job`
//!
//! Machines start it at *about* the same time: here each by a clock of its own, up to half a second late. The job may be over before the last one
//! asks, so the lock stays taken for a minimum time after the grant: longer than the clocks differ, shorter than the period.

use std::error::Error;
use std::time::Duration;

use tag_lock::{Error as LockError, LockClient};
use tokio::task::JoinSet;

/// How far the machines' clocks are apart, at most.
const APART: Duration = Duration::from_millis(500);
const PERIOD: Duration = Duration::from_secs(4);
const HOLD: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let mut machines = Vec::new();
    for _ in 0..3 {
        machines.push(LockClient::connect(&url).await?);
    }
    machines[0].migrate().await?;

    for run in 1..=3 {
        let mut started = JoinSet::new();
        for (number, machine) in machines.iter().cloned().enumerate() {
            started.spawn(async move {
                tokio::time::sleep(APART.mul_f64(rand::random())).await;
                Ok::<_, LockError>((number, send_invoices(&machine).await?))
            });
        }
        let mut ran = 0;
        while let Some(machine) = started.join_next().await {
            let (number, sent) = machine??;
            if sent {
                println!("run {run}: machine {number} sent the invoices");
                ran += 1;
            }
        }
        assert_eq!(ran, 1, "run {run}: the job ran {ran} times");
        tokio::time::sleep(PERIOD).await;
    }
    Ok(())
}

/// The job. Whether this machine ran it.
async fn send_invoices(locks: &LockClient) -> Result<bool, LockError> {
    let job = locks.lock("send_invoices").hold_at_least(HOLD);
    // The work is quick. Its end ends the lease, but the lock is not free before the minimum time has passed.
    let ran = job.try_run(async |_lease| {}).await?;
    Ok(ran.is_some())
}
