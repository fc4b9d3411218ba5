//! Many read, or one writes: `scripts/with-mysql cargo run --release --example readers`
//!
//! A price list has two columns that belong together, and is written one after the other. Readers that hold the lock shared never see one without
//! the other, and do not wait for each other.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tag_lock::LockClient;
use tokio::task::JoinSet;

const READERS: u32 = 50;
const WRITES: u32 = 5;

/// Net and gross, which a reader must see of one write.
#[derive(Default)]
struct Prices {
    net: AtomicU32,
    gross: AtomicU32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let shop = LockClient::connect(&url).await?;
    shop.migrate().await?;
    let office = LockClient::connect(&url).await?;
    let prices = Arc::<Prices>::default();

    let start = Instant::now();
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let (shop, prices) = (shop.clone(), Arc::clone(&prices));
        readers.spawn(async move {
            let mut seen = 0;
            while seen < WRITES {
                let reading = shop.lock("prices").shared().acquire().await?;
                seen = prices.net.load(Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(20)).await;
                let gross = prices.gross.load(Ordering::SeqCst);
                assert_eq!(seen, gross, "a reader saw half of a write");
                reading.release().await?;
            }
            Ok::<(), tag_lock::Error>(())
        });
    }
    for write in 1..=WRITES {
        let writing = office.lock("prices").acquire().await?;
        prices.net.store(write, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(10)).await;
        prices.gross.store(write, Ordering::SeqCst);
        // Others read from here on; nobody writes before this one has looked at what it wrote.
        let reading = writing.downgrade().await?;
        println!("written for the {write}. time, after {:?}", start.elapsed());
        reading.release().await?;
    }
    while let Some(reader) = readers.join_next().await {
        reader??;
    }
    println!("{READERS} readers have seen every write whole");
    Ok(())
}
