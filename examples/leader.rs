//! One worker at a time: `scripts/with-mysql cargo run --example leader`
//!
//! Three workers want the same work. One does it; when it ends, the next one takes over. Were it to die instead, the
//! next one would take over after at most the ttl.

use std::error::Error;
use std::time::Duration;

use tag_lock::{Error as LockError, LeaseView, LockClient};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    LockClient::connect(&url).await?.migrate().await?;

    let mut workers = JoinSet::new();
    for worker in 1..=3 {
        // A client each, as in three processes.
        let locks = LockClient::connect(&url).await?;
        workers.spawn(async move {
            locks
                .lock("leader")
                .ttl(Duration::from_secs(5))
                .description(format!("worker {worker}"))
                // If the lease is lost, `work` is cancelled at its next await, and `run` fails with `LockLost`.
                .run(|lease| work(worker, lease))
                .await
        });
    }
    while let Some(ended) = workers.join_next().await {
        println!("worker {} stepped down", ended??);
    }
    Ok(())
}

async fn work(worker: u32, lease: LeaseView) -> Result<u32, LockError> {
    println!("worker {worker} leads, term {}", lease.fencing_token());
    for step in 1..=3 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        println!("worker {worker}: step {step}");
    }
    Ok(worker)
}
