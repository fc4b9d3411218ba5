//! A lock that one process takes again and again: `scripts/with-mysql cargo run --release --example idle_lease`
//!
//! With `linger` a released lock idles in its process, and the next task there has it without asking the server. Another process that wants
//! it rings for it, and has it within milliseconds.

use std::error::Error;
use std::time::{Duration, Instant};

use tag_lock::{AtClose, LockClient, LockRequest};

const ORDERS: u32 = 200;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let shop = LockClient::connect(&url).await?;
    shop.migrate().await?;

    let customer = shop.lock("customer:7");
    println!("{ORDERS} orders of one customer, one after the other:");
    println!(
        "  released to the server each time: {:?}",
        book(&customer).await?
    );
    let customer = customer.linger(Duration::from_secs(5));
    println!(
        "  idle in between:                  {:?}",
        book(&customer).await?
    );

    // It still idles here.
    let elsewhere = LockClient::connect(&url).await?;
    let asked = Instant::now();
    let guard = elsewhere.lock("customer:7").acquire().await?;
    println!("another process has it after {:?}", asked.elapsed());
    guard.release().await?;
    shop.close(AtClose::Release).await;
    Ok(())
}

/// Works on all orders, each under the lock.
async fn book(customer: &LockRequest) -> Result<Duration, tag_lock::Error> {
    let start = Instant::now();
    for _order in 0..ORDERS {
        let guard = customer.clone().acquire().await?;
        // … the work …
        guard.release().await?;
    }
    Ok(start.elapsed())
}
