//! Leaders, and those who follow them: `scripts/with-mysql cargo run --example election`
//!
//! Three nodes campaign, each with its address. A router follows the leaders and knows where to send requests, without asking the nodes. One leader is
//! removed, as by an operator: its work is dropped, and it campaigns again; the others resign when they have led for a while. Each leader has a higher
//! token than the one before, by which a store can refuse what an old leader still sends.

use std::error::Error;
use std::time::Duration;

use tag_lock::{Error as LockError, LeaseView, LockClient};
use tokio::task::JoinSet;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let router = LockClient::connect(&url).await?;
    router.migrate().await?;
    let mut leaders = router.election("orders").observe()?;

    let mut nodes = JoinSet::new();
    for node in 1..=3 {
        let locks = LockClient::connect(&url).await?;
        nodes.spawn(async move {
            let address = format!("http://10.0.0.{node}:8080");
            let mut terms = 0;
            let work = |leadership: LeaseView| {
                terms += 1;
                lead(node, terms, leadership)
            };
            let election = locks.election("orders").ttl(Duration::from_secs(2));
            election.lead(address, work).await
        });
    }

    let (mut token, mut removed) = (0, false);
    while !nodes.is_empty() {
        tokio::select! {
            Some(leader) = leaders.next() => match leader? {
                Some(leader) => {
                    println!("router: requests go to {}", leader.value);
                    assert!(leader.fencing_token > token);
                    token = leader.fencing_token;
                    if !std::mem::replace(&mut removed, true) {
                        router.force_release("orders").await?;
                    }
                }
                None => println!("router: nobody leads"),
            },
            Some(node) = nodes.join_next() => println!("node {} has ended", node??),
        }
    }
    Ok(())
}

/// What a leader does: dropped when its leadership is lost; it resigns when this ends.
async fn lead(node: u32, term: u32, leadership: LeaseView) -> Result<u32, LockError> {
    println!(
        "node {node} leads, its term {term}, token {}",
        leadership.fencing_token()
    );
    sleep(Duration::from_secs(1)).await;
    println!("node {node} resigns");
    Ok(node)
}
