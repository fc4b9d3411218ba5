//! What is held, by whom, how to free it by force, and what a purge would take: `scripts/with-mysql cargo run --example operator`

use std::error::Error;
use std::time::Duration;

use tag_lock::LockClient;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let service = LockClient::builder(url.parse()?)
        .holder("billing-3")
        .connect()
        .await?;
    service.migrate().await?;
    let request = service.lock("invoices:2026").ttl(Duration::from_secs(3));
    let guard = request.description("monthly run").acquire().await?;
    let _other = service.lock("invoices:2027").acquire().await?;

    let operator = LockClient::connect(&url).await?;
    // All that is taken, a page at a time.
    let mut after = None;
    loop {
        let page = operator.list("", after.as_deref(), 100).await?;
        for lock in &page {
            println!(
                "{:<14} {:?} by {} ({}), {:.1} s left, highest token {}",
                lock.name,
                lock.state,
                lock.held_by,
                lock.description,
                lock.remaining.as_secs_f64(),
                lock.highest_fencing_token
            );
        }
        match page.last() {
            Some(last) => after = Some(last.name.clone()),
            None => break,
        }
    }

    println!("forced: {}", operator.force_release("invoices:2026").await?);
    let info = operator.inspect("invoices:2026").await?;
    println!("now it is {:?}", info.map(|info| info.state));

    // The holder learns of it with its next renewal, at the latest when its lease would have ended.
    guard.lost().await;
    println!(
        "the holder: {}",
        guard
            .release()
            .await
            .err()
            .map_or("?".into(), |e| e.to_string())
    );

    // What was used within an hour stays.
    let unused = operator.purgeable(Duration::from_secs(3_600)).await?;
    println!("a purge would take {} rows", unused.rows);
    Ok(())
}
