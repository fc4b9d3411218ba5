//! Taking what COMMAND is to run under, or telling who has it.

use std::path::Path;
use std::time::{Duration, Instant};

use tag_lock::{Error, LockClient};

use super::held::{Attempt, Claimed, Held};
use crate::args::{Common, Run};
use crate::exit::{Code, Failure, tell};

/// The longest description, in characters.
const LONGEST_DESCRIPTION: usize = 255;
/// How often a slot is asked for that somebody else is at.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What came of the wish.
pub(super) enum Taken {
    Held(Held),
    /// It was not had: the exit code.
    Not(Code),
}

/// What is meant, for messages.
pub(super) fn thing(run: &Run) -> String {
    let names: Vec<String> = run.names.iter().map(|name| format!("{name:?}")).collect();
    let names = names.join(", ");
    match (&run.slot, run.permits) {
        (Some(slot), _) => format!("the slot {slot:?} of the job {names}"),
        (None, Some(_)) => format!("the permit of the semaphore {names}"),
        (None, None) if run.names.len() > 1 => format!("one of the locks {names}"),
        (None, None) => format!("the lock {names}"),
    }
}

/// Takes it. If it was not had, standard error says why.
pub(super) async fn take(
    client: &LockClient,
    common: &Common,
    run: &Run,
) -> Result<Taken, Failure> {
    let taken = match (run.names.as_slice(), &run.slot, run.permits) {
        ([job], Some(slot), _) => return once(client, common, run, job, slot).await,
        ([name], None, Some(permits)) => permit(client, run, name, permits).await,
        ([name], None, None) if run.shared => shared(client, run, name).await,
        ([name], None, None) => alone(client, run, name).await,
        _ => several(client, run).await,
    };
    match taken {
        Ok(Some(held)) => return Ok(Taken::Held(held)),
        Ok(None) => tell(&conflict(run), common.json),
        Err(error @ Error::Timeout { .. }) => Failure::from(error).tell(common.json),
        Err(error) => return Err(error.into()),
    }
    Ok(Taken::Not(run.conflict_exit_code))
}

/// Why it was not had at once.
fn conflict(run: &Run) -> String {
    let thing = thing(run);
    match run.permits {
        Some(permits) => format!("all {permits} permits of {:?} are taken", run.names[0]),
        None if run.shared => format!("{thing} is taken, or somebody waits to have it alone"),
        None => format!("{thing} is taken"),
    }
}

async fn alone(client: &LockClient, run: &Run, name: &str) -> Result<Option<Held>, Error> {
    let mut request = client.lock(name).ttl(run.ttl).description(description(run));
    if let Some(least) = run.hold_at_least {
        request = request.hold_at_least(least);
    }
    if let Some(wait) = run.wait {
        request = request.wait(wait);
    }
    Ok(if run.no_wait {
        request.try_acquire().await?.map(Held::Lock)
    } else {
        Some(Held::Lock(request.acquire().await?))
    })
}

async fn shared(client: &LockClient, run: &Run, name: &str) -> Result<Option<Held>, Error> {
    let mut request = client.lock(name).ttl(run.ttl).description(description(run));
    if let Some(least) = run.hold_at_least {
        request = request.hold_at_least(least);
    }
    let mut request = request.shared();
    if let Some(wait) = run.wait {
        request = request.wait(wait);
    }
    Ok(if run.no_wait {
        request.try_acquire().await?.map(Held::Shared)
    } else {
        Some(Held::Shared(request.acquire().await?))
    })
}

async fn several(client: &LockClient, run: &Run) -> Result<Option<Held>, Error> {
    let request = client.lock_all(&run.names).ttl(run.ttl);
    let mut request = request.description(description(run));
    if let Some(wait) = run.wait {
        request = request.wait(wait);
    }
    Ok(if run.no_wait {
        request.try_acquire().await?.map(Held::Several)
    } else {
        Some(Held::Several(request.acquire().await?))
    })
}

async fn permit(
    client: &LockClient,
    run: &Run,
    name: &str,
    permits: u32,
) -> Result<Option<Held>, Error> {
    let semaphore = client.semaphore(name, permits).ttl(run.ttl);
    let mut semaphore = semaphore.description(description(run));
    if let Some(wait) = run.wait {
        semaphore = semaphore.wait(wait);
    }
    Ok(if run.no_wait {
        semaphore.try_acquire().await?.map(Held::Permit)
    } else {
        Some(Held::Permit(semaphore.acquire().await?))
    })
}

/// A slot that somebody is at may be done soon, or free: who waits asks again.
async fn once(
    client: &LockClient,
    common: &Common,
    run: &Run,
    job: &str,
    slot: &str,
) -> Result<Taken, Failure> {
    let asked = Instant::now();
    let slot = client.job(job).slot(slot).ttl(run.ttl);
    let slot = slot.description(description(run));
    loop {
        match Attempt::claim(slot.clone()).await? {
            Claimed::Granted(attempt) => return Ok(Taken::Held(Held::Slot(attempt))),
            Claimed::Done => {
                tell(&format!("{} is done already", thing(run)), common.json);
                return Ok(Taken::Not(run.done_exit_code));
            }
            Claimed::Busy => {}
        }
        let left = match run.wait {
            _ if run.no_wait => Duration::ZERO,
            Some(wait) => wait.saturating_sub(asked.elapsed()),
            None => ASK_AGAIN,
        };
        if left.is_zero() {
            tell(
                &format!("{} is not done, and somebody else is at it", thing(run)),
                common.json,
            );
            return Ok(Taken::Not(run.conflict_exit_code));
        }
        tokio::time::sleep(left.min(ASK_AGAIN)).await;
    }
}

/// What others read about the hold: COMMAND's name. Not its arguments: they may have secrets in them.
fn description(run: &Run) -> String {
    run.description.clone().unwrap_or_else(|| {
        let program = run.command.first().map(Path::new).and_then(Path::file_name);
        let program = program.unwrap_or_default().to_string_lossy();
        program.chars().take(LONGEST_DESCRIPTION).collect()
    })
}
