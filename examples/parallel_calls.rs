//! A partner that takes three calls at once, over all machines: `scripts/with-mysql cargo run --example parallel_calls`
//!
//! Three machines have twelve orders to send each. The partner counts its callers, and knows them by a number: it is told the slot of the
//! permit, which no other caller has at that time. It is also the order's line: what comes over a line with an old token is refused.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tag_lock::{LockClient, Permit, Semaphore};
use tokio::task::JoinSet;

const LINES: u32 = 3;

/// The partner: its lines, each with its caller, and the highest token that came over it.
#[derive(Default)]
struct Partner {
    lines: Mutex<[(Option<String>, u64); 3]>,
}

impl Partner {
    fn pick_up(&self, permit: &Permit, caller: &str) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = lines.iter().filter(|line| line.0.is_some()).count();
        for (line, (on, token)) in (0..).zip(lines.iter_mut()) {
            if line == permit.slot() {
                assert_eq!(*on, None, "line {line} has a caller");
                assert!(*token < permit.fencing_token(), "an old permit");
                (*on, *token) = (Some(caller.to_owned()), permit.fencing_token());
            }
        }
        println!("line {}: {caller}, beside {busy} others", permit.slot());
    }

    fn hang_up(&self, permit: &Permit) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        for (line, (on, _)) in (0..).zip(lines.iter_mut()) {
            if line == permit.slot() {
                *on = None;
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let url = std::env::var("DATABASE_URL")?;
    let partner = Arc::new(Partner::default());
    let mut calls = JoinSet::new();
    for machine in ["ada", "bob", "cy"] {
        let builder = LockClient::builder(url.parse()?).holder(machine);
        let locks = builder.connect().await?;
        locks.migrate().await?;
        let lines = locks.semaphore("partner", LINES);
        for order in 0..12 {
            let caller = format!("order {order} of {machine}");
            calls.spawn(call(lines.clone(), Arc::clone(&partner), caller));
        }
    }
    while let Some(ended) = calls.join_next().await {
        ended??;
    }
    Ok(())
}

async fn call(
    lines: Semaphore,
    partner: Arc<Partner>,
    caller: String,
) -> Result<(), tag_lock::Error> {
    let permit = lines.acquire().await?;
    partner.pick_up(&permit, &caller);
    // Whoever has lost the permit stops: another caller may have the line.
    tokio::select! {
        () = permit.lost() => println!("{caller} was cut off"),
        () = tokio::time::sleep(Duration::from_millis(20)) => {}
    }
    partner.hang_up(&permit);
    permit.release().await
}
