//! Re-entry: `scripts/with-mysql cargo run --example reentry`
//!
//! Whoever names the same owner, in whatever process, acquires the lock again while it is held. All levels share one
//! lease; the lock is free after as many releases.

use std::error::Error;

use tag_lock::{Error as LockError, LockClient};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let locks = LockClient::connect(&url).await?;
    locks.migrate().await?;
    // The next step of the same workflow may run on another machine.
    let elsewhere = LockClient::connect(&url).await?;

    let outer = locks
        .lock("account:7")
        .owner("transfer 42")
        .acquire()
        .await?;
    println!("outer level, token {}", outer.fencing_token());
    println!(
        "transfer 42 elsewhere: {}",
        try_as(&elsewhere, "transfer 42").await?
    );
    println!(
        "transfer 43 elsewhere: {}",
        try_as(&elsewhere, "transfer 43").await?
    );
    outer.release().await?;
    println!("after the outer release:");
    println!(
        "transfer 43 elsewhere: {}",
        try_as(&elsewhere, "transfer 43").await?
    );
    Ok(())
}

async fn try_as(locks: &LockClient, owner: &str) -> Result<String, LockError> {
    let Some(inner) = locks.lock("account:7").owner(owner).try_acquire().await? else {
        return Ok("the lock is held by another owner".to_owned());
    };
    let depth = locks
        .inspect("account:7")
        .await?
        .map_or(0, |info| info.depth);
    let answer = format!("acquired at level {depth}, token {}", inner.fencing_token());
    inner.release().await?;
    Ok(answer)
}
