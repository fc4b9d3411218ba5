//! One lock's changes, as they happen.

use std::time::Duration;

use chrono::Utc;
use serde_json::json;
use tag_lock::{LockClient, LockInfo, LockState};

use crate::args::Common;
use crate::exit::{Code, Failure, tell};
use crate::output::{self, Lock, clock_time, plain, rfc3339};

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(10);

/// What of a lock is a change when it is another one: not its deadline, which each renewal moves.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    state: LockState,
    held_by: String,
    description: String,
    highest_fencing_token: u64,
    depth: u64,
}

impl Seen {
    fn of(lock: &LockInfo) -> Self {
        // A free lock is free, whoever had it last. Of shared holds each renewal makes another one the last to end.
        let taken = |text: &str| {
            if matches!(lock.state, LockState::Free | LockState::Shared) {
                String::new()
            } else {
                text.to_owned()
            }
        };
        Self {
            state: lock.state,
            held_by: taken(&lock.held_by),
            description: taken(&lock.description),
            highest_fencing_token: lock.highest_fencing_token,
            depth: lock.depth,
        }
    }
}

/// Prints how the lock is, and then each change. It ends by a signal only, or when trying again cannot help.
pub(crate) async fn watch(common: &Common, name: &str, every: Duration) -> Result<Code, Failure> {
    let client = common.client().await?;
    let mut last: Option<Option<Seen>> = None;
    let mut is_away = false;
    loop {
        match look(&client, name).await {
            Ok(lock) => {
                if std::mem::take(&mut is_away) && !common.json {
                    tell("the server answers again", false);
                }
                let seen = lock.as_ref().map(Seen::of);
                if last.as_ref() != Some(&seen) {
                    print(common.json, name, lock.as_ref())?;
                    last = Some(seen);
                }
            }
            Err(failure) if failure.is_retryable() => {
                if !std::mem::replace(&mut is_away, true) {
                    failure.tell(common.json);
                }
            }
            Err(failure) => return Err(failure),
        }
        tokio::time::sleep(every.max(SHORTEST)).await;
    }
}

async fn look(client: &LockClient, name: &str) -> Result<Option<LockInfo>, Failure> {
    Ok(client.inspect(name).await?)
}

fn print(as_json: bool, name: &str, lock: Option<&LockInfo>) -> Result<(), Failure> {
    let now = Utc::now();
    if as_json {
        let lock = match lock {
            Some(lock) => json!(Lock::from(lock)),
            None => json!({ "name": name, "state": "never_taken" }),
        };
        return output::json(&json!({ "seen": rfc3339(now), "lock": lock }));
    }
    let text = match lock {
        None => "was never taken".to_owned(),
        Some(lock) => match lock.state {
            LockState::Held => held(lock, "held by"),
            LockState::Shared if lock.depth > 1 => held(
                lock,
                &format!("shared by {} holds, one of them of", lock.depth),
            ),
            LockState::Shared => held(lock, "shared, held by"),
            LockState::Kept => held(lock, "released, and kept for its minimum hold, by"),
            // Of shared holds it is not known which one was the last.
            _ if lock.held_by.is_empty() => "free".to_owned(),
            _ => format!("free, last held by {}", plain(&lock.held_by)),
        },
    };
    output::line(&format!("{}  {text}", clock_time(now)))
}

fn held(lock: &LockInfo, how: &str) -> String {
    let mut text = format!("{how} {}", plain(&lock.held_by));
    if !lock.description.is_empty() {
        text.push_str(&format!(" ({})", plain(&lock.description)));
    }
    text.push_str(&format!(", highest token {}", lock.highest_fencing_token));
    text
}
