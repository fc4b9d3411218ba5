//! What is taken, by whom, and for how long still; and freeing it.

use serde_json::json;
use tag_lock::{LockClient, LockInfo, LockState};

use crate::args::Common;
use crate::exit::{Code, DONE, Failure, NO};
use crate::output::{self, Lock, clock_time, duration, plain};

/// How many locks one query gives.
const PAGE: u32 = 500;

/// All locks that are taken and whose names begin with `prefix`.
pub(crate) async fn taken(client: &LockClient, prefix: &str) -> Result<Vec<LockInfo>, Failure> {
    let mut found = Vec::new();
    let mut after = just_before(prefix);
    loop {
        let page = client.list(after.as_deref(), PAGE).await?;
        let Some(last) = page.last() else {
            return Ok(found);
        };
        after = Some(last.name.clone());
        let is_past = last.name.as_str() > prefix && !last.name.starts_with(prefix);
        found.extend(
            page.into_iter()
                .filter(|lock| lock.name.starts_with(prefix)),
        );
        if is_past {
            return Ok(found);
        }
    }
}

/// A text that stands before every name that begins with `prefix`, and not far before: in the server's order, in which
/// a name is followed by spaces, and `job\t` comes before `job`. `None` if nothing is known to.
fn just_before(prefix: &str) -> Option<String> {
    let (at, last) = prefix.char_indices().next_back()?;
    let previous = (0..u32::from(last)).rev().find_map(char::from_u32)?;
    let mut text = prefix[..at].to_owned();
    text.push(previous);
    text.push(char::MAX);
    // A name is no longer than this.
    (text.chars().count() <= 255).then_some(text)
}

/// Shows the locks that are taken.
pub(crate) async fn list(common: &Common, prefix: &str) -> Result<Code, Failure> {
    let locks = taken(&common.client().await?, prefix).await?;
    if common.json {
        output::json(&locks.iter().map(Lock::from).collect::<Vec<_>>())?;
        return Ok(DONE);
    }
    let rows: Vec<Vec<String>> = locks
        .iter()
        .map(|lock| {
            vec![
                plain(&lock.name),
                output::state(lock.state).to_owned(),
                plain(&lock.held_by),
                duration(lock.remaining),
                lock.fencing_token.to_string(),
                plain(&lock.description),
            ]
        })
        .collect();
    if rows.is_empty() {
        output::line("no lock is taken")?;
    } else {
        output::table(
            &[
                "NAME",
                "STATE",
                "HELD BY",
                "LEFT",
                "FENCING TOKEN",
                "DESCRIPTION",
            ],
            &rows,
        )?;
    }
    Ok(DONE)
}

/// Shows one lock.
pub(crate) async fn inspect(common: &Common, name: &str) -> Result<Code, Failure> {
    let found = common.client().await?.inspect(name).await?;
    let Some(lock) = found else {
        if common.json {
            output::json(&json!({ "name": name, "state": "never_taken" }))?;
        } else {
            output::line(&format!("{} was never taken", plain(name)))?;
        }
        return Ok(NO);
    };
    if common.json {
        output::json(&Lock::from(&lock))?;
        return Ok(DONE);
    }
    let is_free = lock.state == LockState::Free;
    let mut lines = vec![
        ("name", plain(&lock.name)),
        ("state", explained(lock.state).to_owned()),
        (
            if is_free { "held last by" } else { "held by" },
            plain(&lock.held_by),
        ),
    ];
    if !lock.description.is_empty() {
        lines.push(("description", plain(&lock.description)));
    }
    if !is_free {
        let left = format!(
            "in {}, at {} by the server's clock",
            duration(lock.remaining),
            clock_time(lock.deadline)
        );
        lines.push((
            if matches!(lock.state, LockState::Held | LockState::Shared) {
                "ends unless renewed"
            } else {
                "ends"
            },
            left,
        ));
    }
    if lock.depth > 1 {
        let holds = if lock.state == LockState::Shared {
            "shared holds"
        } else {
            "levels"
        };
        lines.push((holds, lock.depth.to_string()));
    }
    lines.push(("fencing token", lock.fencing_token.to_string()));
    lines.push(("changed last", clock_time(lock.modified)));
    for (key, value) in lines {
        output::line(&format!("{key:<20} {value}"))?;
    }
    Ok(DONE)
}

fn explained(state: LockState) -> &'static str {
    match state {
        LockState::Held => "held",
        LockState::Shared => "shared: others may hold it shared, too",
        LockState::Kept => "kept: released, and taken until its minimum hold ends",
        _ => "free",
    }
}

/// Frees a lock by force.
pub(crate) async fn release(common: &Common, name: &str) -> Result<Code, Failure> {
    let client = common.client().await?;
    let holder = client
        .inspect(name)
        .await?
        .map(|lock| lock.held_by)
        .unwrap_or_default();
    let released = client.force_release(name).await?;
    if common.json {
        let was_held_by = released.then_some(&holder);
        output::json(&json!({ "name": name, "released": released, "was_held_by": was_held_by }))?;
    } else if released {
        output::line(&format!(
            "{} is free; {} is told with its next renewal",
            plain(name),
            plain(&holder)
        ))?;
    } else {
        output::line(&format!("{} was not taken", plain(name)))?;
    }
    Ok(if released { DONE } else { NO })
}

#[cfg(test)]
mod tests {
    use super::just_before;

    #[test]
    fn a_list_begins_before_its_prefix() {
        assert_eq!(just_before(""), None);
        assert_eq!(just_before("job:").as_deref(), Some("job9\u{10ffff}"));
        assert_eq!(
            just_before("\u{e000}").as_deref(),
            Some("\u{d7ff}\u{10ffff}")
        );
        assert_eq!(just_before("a\0"), None);
        assert_eq!(just_before(&"x".repeat(255)), None);
    }
}
