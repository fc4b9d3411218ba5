//! What is taken, by whom, and for how long still; and freeing it. Locks, permits of semaphores, and slots of jobs.

use serde_json::json;
use tag_lock::{LockClient, LockInfo, LockState};

use crate::args::Common;
use crate::exit::{Code, DONE, Failure, NO};
use crate::output::{self, Lock, clock_time, duration, plain};

/// How many locks one query gives.
const PAGE: u32 = 500;
/// The most permits that a semaphore has: whoever looks at all of them need not know how many there are of this one.
const PERMITS: u32 = 1_024;
/// Which column of a list says whether somebody waits.
const WANTED: usize = 4;

/// All locks that are taken and whose names begin with `prefix`.
pub(crate) async fn taken(client: &LockClient, prefix: &str) -> Result<Vec<LockInfo>, Failure> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = client.list(prefix, after.as_deref(), PAGE).await?;
        let Some(last) = page.last() else {
            return Ok(found);
        };
        after = Some(last.name.clone());
        found.extend(page);
    }
}

/// The slots of a job that are done, or that somebody is at.
async fn slots(client: &LockClient, job: &str) -> Result<Vec<LockInfo>, Failure> {
    let (job, head) = (client.job(job), format!("{job}@"));
    let (mut found, mut after) = (Vec::<LockInfo>::new(), None);
    loop {
        let page = job.list(after.as_deref(), PAGE).await?;
        let Some(last) = page.last() else {
            return Ok(found);
        };
        let Some(slot) = last.name.strip_prefix(&head) else {
            return Ok(found);
        };
        after = Some(slot.to_owned());
        found.extend(page);
    }
}

/// Shows what is taken: locks whose names begin with `name`, permits of the semaphore `name`, or slots of the job `name`.
pub(crate) async fn list(
    common: &Common,
    name: &str,
    is_semaphore: bool,
    is_job: bool,
) -> Result<Code, Failure> {
    let client = common.client().await?;
    let (locks, none) = if is_semaphore {
        (
            client.semaphore(name, PERMITS).list().await?,
            "no permit is taken",
        )
    } else if is_job {
        (
            slots(&client, name).await?,
            "no slot is done, and nobody is at one",
        )
    } else {
        (taken(&client, name).await?, "no lock is taken")
    };
    if common.json {
        output::json(&locks.iter().map(Lock::from).collect::<Vec<_>>())?;
        return Ok(DONE);
    }
    if locks.is_empty() {
        output::line(none)?;
        return Ok(DONE);
    }
    let mut head = vec![
        "NAME",
        "STATE",
        "HELD BY",
        "LEFT",
        "WANTED",
        "HIGHEST TOKEN",
        "DESCRIPTION",
    ];
    let mut rows: Vec<Vec<String>> = locks
        .iter()
        .map(|lock| {
            vec![
                plain(&lock.name),
                output::state(lock.state).to_owned(),
                plain(&lock.held_by),
                left(lock),
                output::wanted(lock.wish).to_owned(),
                lock.highest_fencing_token.to_string(),
                plain(&lock.description),
            ]
        })
        .collect();
    if is_job {
        // Nobody says in the row of a slot that he waits.
        head.remove(WANTED);
        for row in &mut rows {
            row.remove(WANTED);
        }
    }
    output::table(&head, &rows)?;
    Ok(DONE)
}

/// How long it lasts if it is not renewed. What is done does not end.
fn left(lock: &LockInfo) -> String {
    match lock.state {
        LockState::Done => String::new(),
        _ => duration(lock.remaining),
    }
}

/// What the row of a slot is called.
fn called(name: &str, slot: Option<&str>) -> String {
    slot.map_or_else(|| name.to_owned(), |slot| format!("{name}@{slot}"))
}

/// Shows one lock, or this slot of a job.
pub(crate) async fn inspect(
    common: &Common,
    name: &str,
    slot: Option<&str>,
) -> Result<Code, Failure> {
    let client = common.client().await?;
    let found = match slot {
        Some(slot) => client.job(name).slot(slot).inspect().await?,
        None => client.inspect(name).await?,
    };
    let Some(lock) = found else {
        let name = called(name, slot);
        if common.json {
            output::json(&json!({ "name": name, "state": "never_taken" }))?;
        } else {
            output::line(&format!("{} was never taken", plain(&name)))?;
        }
        return Ok(NO);
    };
    if common.json {
        output::json(&Lock::from(&lock))?;
        return Ok(DONE);
    }
    let has_ended = matches!(lock.state, LockState::Free | LockState::Done);
    let mut lines = vec![
        ("name", plain(&lock.name)),
        ("state", explained(lock.state).to_owned()),
    ];
    // Of shared holds that have ended it is not known which one was the last.
    if !lock.held_by.is_empty() {
        let how = if has_ended { "held last by" } else { "held by" };
        lines.push((how, plain(&lock.held_by)));
    }
    if !lock.description.is_empty() {
        lines.push(("description", plain(&lock.description)));
    }
    if !has_ended {
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
    if slot.is_none() {
        lines.push(("wanted", output::wanted_by(lock.wish).to_owned()));
    }
    lines.push(("highest token", lock.highest_fencing_token.to_string()));
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
        LockState::Done => "done: nobody runs it again",
        _ => "free",
    }
}

/// Frees a lock by force, or this slot of a job, or this permit of a semaphore.
pub(crate) async fn release(
    common: &Common,
    name: &str,
    slot: Option<&str>,
    permit: Option<u32>,
) -> Result<Code, Failure> {
    let client = common.client().await?;
    // Who has it is asked first: afterwards nobody does.
    let (name, before, released) = if let Some(slot) = slot {
        let slot_of_job = client.job(name).slot(slot);
        let before = slot_of_job.inspect().await?;
        (called(name, Some(slot)), before, slot_of_job.reset().await?)
    } else if let Some(permit) = permit {
        let (semaphore, row) = (client.semaphore(name, PERMITS), format!("{name}#{permit}"));
        let before = semaphore
            .list()
            .await?
            .into_iter()
            .find(|taken| taken.name == row);
        (row, before, semaphore.force_release(permit).await?)
    } else {
        (
            name.to_owned(),
            client.inspect(name).await?,
            client.force_release(name).await?,
        )
    };
    let state = before.as_ref().map(|before| before.state);
    let holder = before.map(|before| before.held_by).unwrap_or_default();
    if common.json {
        let was_held_by = released.then_some(&holder);
        output::json(&json!({ "name": name, "released": released, "was_held_by": was_held_by }))?;
    } else if released {
        let (name, holder) = (plain(&name), plain(&holder));
        output::line(&match state {
            Some(LockState::Done) => format!("{name} is free; {holder} had done it"),
            Some(LockState::Kept) => {
                format!("{name} is free; {holder} had released it, and it was kept")
            }
            _ => format!("{name} is free; {holder} is told with its next renewal"),
        })?;
    } else {
        output::line(&format!("{} was not taken", plain(&name)))?;
    }
    Ok(if released { DONE } else { NO })
}
