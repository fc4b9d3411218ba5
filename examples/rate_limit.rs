//! A rate limit for all processes together: `scripts/with-mysql cargo run --example rate_limit`
//!
//! A counter with a window starts again at 0 when its window has ended, by the server's clock. The next window begins with the next change.
//! Windows are fixed: at most five requests pass within one, and up to ten within a second in which one ends and the next begins.

use std::error::Error;
use std::time::{Duration, Instant};

use tag_lock::{Error as LockError, LockClient};

const LIMIT: i64 = 5;
const WINDOW: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = LockClient::connect(&std::env::var("DATABASE_URL")?).await?;
    locks.migrate().await?;
    locks.counter("requests:ada").window(WINDOW).reset().await?;

    let start = Instant::now();
    for request in 1..=16 {
        let answer = if may_pass(&locks, "ada").await? {
            "served"
        } else {
            "too many requests"
        };
        println!(
            "{:>4} ms  request {request:>2}: {answer}",
            start.elapsed().as_millis()
        );
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    Ok(())
}

/// Whether `user` may make one more request in this window.
async fn may_pass(locks: &LockClient, user: &str) -> Result<bool, LockError> {
    let requests = locks.counter(&format!("requests:{user}")).window(WINDOW);
    Ok(requests.add_within(1, ..=LIMIT).await?.is_some())
}
