//! A lock and a counter: `scripts/with-mysql cargo run --example quickstart`

use std::error::Error;
use std::time::Duration;

use tag_lock::{AtClose, LockClient};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = LockClient::connect(&std::env::var("DATABASE_URL")?).await?;
    locks.migrate().await?;

    // Waits up to 5 s for the lock. While the guard lives, its lease is renewed.
    let guard = locks
        .lock("sale_invite")
        .wait(Duration::from_secs(5))
        .acquire()
        .await?;
    println!(
        "holding {} with fencing token {}",
        guard.name(),
        guard.fencing_token()
    );

    // That a lock is held is a value, not an error.
    let second = locks.lock("sale_invite").try_acquire().await?;
    println!("a second try gets {second:?}");

    // Fails with `Error::LockLost` if somebody else could have held the lock meanwhile.
    guard.release().await?;
    println!("released");

    let stock = locks.counter("quickstart:prizes");
    stock.set(2).await?;
    for customer in ["Ada", "Ben", "Cleo"] {
        match stock.add_within(-1, 0..).await? {
            Some(left) => println!("{customer} gets a prize, {left} left"),
            None => println!("{customer} gets nothing: no prize is left"),
        }
    }

    // Sends what is queued. Without it, a guard that was just dropped may stay taken until its lease ends.
    locks.close(AtClose::Release).await;
    Ok(())
}
