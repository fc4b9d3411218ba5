//! Who holds it, as it changes: `scripts/with-mysql cargo run --example follow_holder`
//!
//! A dashboard follows a lock for which three services take turns. It waits for nothing, holds nothing, and is in nobody's way: all watches of a
//! client together are one query every tenth of a second. What it is told was so a moment ago, and a hold that was over within that time
//! may be missing; that a service died shows when its lease has ended.

use std::error::Error;
use std::time::Duration;

use tag_lock::LockClient;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let dashboard = LockClient::connect(&url).await?;
    dashboard.migrate().await?;
    dashboard.force_release("printer").await?;

    let mut watch = dashboard.watch("printer")?;
    let services = tokio::spawn(take_turns(url));
    let mut last = 0;
    let mut holders = Vec::new();
    while let Some(holder) = watch.next().await {
        match holder? {
            Some(holder) => {
                println!(
                    "{} since {}: {}",
                    holder.held_by,
                    holder.since.format("%T%.3f"),
                    holder.description
                );
                assert!(
                    holder.highest_fencing_token > last,
                    "grants are told in their order"
                );
                last = holder.highest_fencing_token;
                holders.push(holder.held_by);
            }
            None => println!("free"),
        }
        if holders.last().is_some_and(|holder| holder == "reports") {
            break;
        }
    }
    services.await??;
    assert_eq!(
        watch.next().await.transpose()?.flatten(),
        None,
        "its lease has ended"
    );
    println!("free: the lease of the service that died has ended");
    Ok(())
}

async fn take_turns(url: String) -> Result<(), tag_lock::Error> {
    for (service, document) in [
        ("billing", "42 invoices"),
        ("labels", "a roll"),
        ("reports", "a page"),
    ] {
        let options = url.parse().expect("a URL that was used before");
        let client = LockClient::builder(options)
            .holder(service)
            .connect()
            .await?;
        let request = client
            .lock("printer")
            .ttl(Duration::from_secs(2))
            .description(document);
        let guard = request.auto_renew(false).acquire().await?;
        sleep(Duration::from_millis(400)).await;
        if service == "reports" {
            // As if its process had died: nobody renews, and nobody releases.
            client.close(tag_lock::AtClose::Keep).await;
        } else {
            guard.release().await?;
        }
    }
    Ok(())
}
