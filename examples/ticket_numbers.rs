//! A counter as a sequence: `scripts/with-mysql cargo run --example ticket_numbers`
//!
//! Three clients with a hundred tasks each draw numbers at the same time. Every number is given out once, without a gap.

use std::collections::BTreeSet;
use std::error::Error;

use tag_lock::LockClient;
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let locks = LockClient::connect(&url).await?;
    locks.migrate().await?;
    locks.counter("ticket").reset().await?;

    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let locks = LockClient::connect(&url).await?;
        for _ in 0..100 {
            let locks = locks.clone();
            tasks.spawn(async move { locks.counter("ticket").add(1).await });
        }
    }
    let mut numbers = BTreeSet::new();
    while let Some(number) = tasks.join_next().await {
        let number = number??;
        assert!(numbers.insert(number), "{number} was given out twice");
    }
    println!(
        "{} tickets, numbered {:?} to {:?}",
        numbers.len(),
        numbers.first(),
        numbers.last()
    );

    // The id of an order makes its number safe to ask for again: the second answer is the first one's.
    let order = format!("order {}", rand::random::<u64>());
    let first = locks.counter("ticket").add_once(&order, 1).await?;
    let again = locks.counter("ticket").add_once(&order, 1).await?;
    println!("the order has number {first}, and {again} when it asks again");
    Ok(())
}
