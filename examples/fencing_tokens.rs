//! Fencing tokens protect a store outside the database: `scripts/with-mysql cargo run --example fencing_tokens`
//!
//! A holder that was paused for longer than its lease cannot know at once that somebody else holds the lock.
//! The store can: it keeps the highest token that it saw, and refuses lower ones.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

use tag_lock::LockClient;

/// A file of two lines, the token of its last writer and the text.
struct Store(PathBuf);

impl Store {
    /// A store with many writers has to make this one atomic step, as `UPDATE … WHERE token <= ?` is.
    fn write(&self, token: u64, text: &str) -> io::Result<bool> {
        let highest = fs::read_to_string(&self.0)?
            .lines()
            .next()
            .and_then(|line| line.parse().ok())
            .unwrap_or(0);
        if token < highest {
            return Ok(false);
        }
        fs::write(&self.0, format!("{token}\n{text}\n"))?;
        Ok(true)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = LockClient::connect(&std::env::var("DATABASE_URL")?).await?;
    locks.migrate().await?;
    let store = Store(std::env::temp_dir().join(format!("report-{}", std::process::id())));
    fs::write(&store.0, "")?;

    // Not renewed: as if the process were paused from here on.
    let request = locks.lock("report").ttl(Duration::from_millis(300));
    let paused = request.auto_renew(false).acquire().await?;
    // Waits until the lease has ended.
    let next = locks.lock("report").acquire().await?;

    let written = store.write(next.fencing_token(), "by the new holder")?;
    println!(
        "the new holder, token {}: written = {written}",
        next.fencing_token()
    );
    let written = store.write(paused.fencing_token(), "by the paused holder")?;
    println!(
        "the paused one, token {}: written = {written}",
        paused.fencing_token()
    );
    println!("the paused one on release: {:?}", paused.release().await);
    next.release().await?;
    Ok(fs::remove_file(store.0)?)
}
