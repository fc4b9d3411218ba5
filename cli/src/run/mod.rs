//! `tag-lock run`: a program under a lock.
//!
//! Three processes. This program takes the lock, renews it, passes signals on, and frees the lock when COMMAND has ended. COMMAND
//! runs in a process group of its own, and is told by the kernel when this program dies ([`child`]). And the watchman, this
//! program once more ([`watchman`]), knows until when the lease can be trusted, and ends the group when that has passed or this
//! program is gone: it does so also where this program cannot, since it was killed or is stopped.
//!
//! | what happens | who ends the group |
//! |---|---|
//! | the lease is lost: freed by force, or the server did not answer in time | this program |
//! | this program is killed | the watchman, and the kernel for COMMAND itself |
//! | this program is stopped for longer than the lease lasts | the watchman; this program says so when it runs again |

mod child;
mod clock;
mod group;
mod signals;
mod terminal;
mod watchman;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use tag_lock::{AtClose, Error, LockClient, LockGuard};
use tokio::time::MissedTickBehavior;

use self::child::Child;
use self::signals::Signals;
use self::terminal::Terminal;
use self::watchman::{Watched, Watchman};
use crate::args::{Common, Run};
use crate::exit::{Code, Failure};

/// How long the end may take when the lock is free, or was not had.
const CLOSING: Duration = Duration::from_secs(5);
/// How often the watchman is told until when the lease can be trusted: at least, and at most.
const TICK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// If this process was started by `run` to be COMMAND, or to watch it: does that, and gives the exit code.
pub(crate) fn helper(mut arguments: impl Iterator<Item = OsString>) -> Option<Code> {
    let _program = arguments.next();
    let first = arguments.next()?;
    if first == child::HELPER {
        Some(child::become_command(arguments))
    } else if first == watchman::HELPER {
        Some(watchman::watch(arguments))
    } else {
        None
    }
}

/// What became of COMMAND.
enum End {
    /// It ended by itself.
    Ended(ExitStatus),
    /// It was ended, since the lock was lost.
    Lost,
}

pub(crate) async fn run(common: &Common, run: &Run) -> Result<Code, Failure> {
    // From here on signals are for COMMAND.
    let mut signals = Signals::listen()?;
    let (client, guard) = tokio::select! {
        taken = take(common, run) => taken?,
        signal = signals.next() => return Ok(signal.exit_code()),
    };
    let Some(guard) = guard else {
        client.close_within(AtClose::Release, CLOSING).await;
        return Ok(run.conflict_exit_code);
    };
    let (result, is_lost) = match under(run, &guard, &mut signals).await {
        Ok(End::Ended(status)) => (Ok(child::exit_code(status)), false),
        Ok(End::Lost) => (Ok(run.lost_exit_code), true),
        Err(failure) => (Err(failure), false),
    };
    let released = guard.release().await;
    client.close_within(AtClose::Release, CLOSING).await;
    match released {
        Err(Error::LockLost { .. }) if !is_lost => {
            eprintln!(
                "tag-lock: the lock {:?} was not held any more when the command ended: check what it did",
                run.name
            );
            Ok(run.lost_exit_code)
        }
        Err(error) if !is_lost => {
            let failure = Failure::from(error);
            eprintln!(
                "tag-lock: the lock {:?} may stay taken until its lease ends: {failure}",
                run.name
            );
            result
        }
        _ => result,
    }
}

/// Takes the lock; no guard if somebody else has it.
async fn take(common: &Common, run: &Run) -> Result<(LockClient, Option<LockGuard>), Failure> {
    let client = common.client().await?;
    let description = run.description.clone().unwrap_or_else(|| {
        let program = run.command.first().map(Path::new).and_then(Path::file_name);
        // Not its arguments: they may have secrets in them.
        program
            .unwrap_or_default()
            .to_string_lossy()
            .chars()
            .take(255)
            .collect()
    });
    let mut request = client.lock(&run.name).ttl(run.ttl).description(description);
    if let Some(least) = run.hold_at_least {
        request = request.hold_at_least(least);
    }
    if run.no_wait {
        let guard = request.try_acquire().await?;
        if guard.is_none() {
            eprintln!("tag-lock: the lock {:?} is taken", run.name);
        }
        return Ok((client, guard));
    }
    if let Some(wait) = run.wait {
        request = request.wait(wait);
    }
    match request.acquire().await {
        Ok(guard) => Ok((client, Some(guard))),
        Err(error @ Error::Timeout { .. }) => {
            eprintln!("tag-lock: {}", Failure::from(error));
            Ok((client, None))
        }
        Err(error) => Err(error.into()),
    }
}

/// Runs COMMAND, until it ends or the lock is lost.
async fn under(run: &Run, guard: &LockGuard, signals: &mut Signals) -> Result<End, Failure> {
    let mut child = Child::start(&run.command, guard.name(), guard.fencing_token())?;
    let mut watchman = Watchman::start(child.group(), run.grace)?;
    watchman.tell(guard.remaining());
    let terminal = Terminal::lend(child.group());
    let mut tick = tokio::time::interval((run.ttl / 20).clamp(TICK.0, TICK.1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_watched = true;
    let end = loop {
        tokio::select! {
            // A lock that is lost in the moment in which COMMAND ends is lost.
            biased;
            () = guard.lost() => break End::Lost,
            watched = watchman.ended(), if is_watched => match watched {
                Watched::Ended => break End::Lost,
                Watched::Gone => is_watched = false,
            },
            status = child.ended() => break End::Ended(status?),
            signal = signals.next() => child.group().signal(signal.number()),
            _ = tick.tick() => {
                watchman.tell(guard.remaining());
                terminal.wake(child.group());
            }
        }
    };
    let end = match end {
        End::Ended(status) => match watchman.dismiss().await {
            Watched::Ended => End::Lost,
            Watched::Gone => End::Ended(status),
        },
        End::Lost => End::Lost,
    };
    if matches!(end, End::Lost) {
        eprintln!(
            "tag-lock: the lock {:?} was lost: the command is ended",
            guard.name()
        );
        child.end(run.grace).await;
        watchman.dismiss().await;
    }
    terminal.take_back();
    Ok(end)
}
