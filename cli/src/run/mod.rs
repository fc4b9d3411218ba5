//! `tag-lock run`: a program under a lock, or under what [`held`] has besides.
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
mod held;
mod signals;
mod stops;
mod take;
mod terminal;
mod watchman;

use std::ffi::OsString;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use tag_lock::{AtClose, Error};
use tokio::time::MissedTickBehavior;

use self::child::Child;
use self::held::Held;
use self::signals::Signals;
use self::take::Taken;
use self::terminal::Terminal;
use self::watchman::{Watched, Watchman};
use crate::args::{Common, Run};
use crate::exit::{Code, DONE, Failure, tell};

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
    let client = tokio::select! {
        client = common.client() => client?,
        signal = signals.next() => return Ok(signal.exit_code()),
    };
    let taken = tokio::select! {
        taken = take::take(&client, common, run) => taken,
        signal = signals.next() => Ok(Taken::Not(signal.exit_code())),
    };
    let code = match taken {
        Ok(Taken::Held(held)) => hold(common, run, held, &mut signals).await,
        Ok(Taken::Not(code)) => Ok(code),
        Err(failure) => Err(failure),
    };
    // A grant that was on its way when a signal came is given back, too.
    client.close_within(AtClose::Release, CLOSING).await;
    code
}

/// Runs COMMAND, and frees the lock.
async fn hold(
    common: &Common,
    run: &Run,
    held: Held,
    signals: &mut Signals,
) -> Result<Code, Failure> {
    let thing = take::thing(run);
    let code = match under(common, run, &held, signals).await {
        Ok(End::Ended(status)) => Ok(child::exit_code(status)),
        Ok(End::Lost) => return Ok(run.lost_exit_code),
        Err(failure) => Err(failure),
    };
    let succeeded = matches!(code, Ok(DONE));
    // While the server is away, this would try for as long as the lease lasts.
    let patience = common.request_timeout * 3;
    let why = match tokio::time::timeout(patience, held.end(succeeded)).await {
        Ok(Ok(())) => return code,
        Ok(Err(Error::LockLost { .. })) => {
            let text =
                format!("{thing} was not held any more when the command ended: check what it did");
            tell(&text, common.json);
            return Ok(run.lost_exit_code);
        }
        Ok(Err(error)) => Failure::from(error).to_string(),
        Err(_) => "the server did not answer".to_owned(),
    };
    if run.slot.is_some() && succeeded {
        let text = format!("{thing} may not be recorded as done, and be run again: {why}");
        tell(&text, common.json);
        return Ok(run.lost_exit_code);
    }
    let text = format!("{thing} may stay taken until its lease ends: {why}");
    tell(&text, common.json);
    code
}

/// Runs COMMAND, until it ends or the lock is lost and it has been ended.
async fn under(
    common: &Common,
    run: &Run,
    held: &Held,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let mut terminal = Terminal::lend();
    let variables = held.variables(run);
    let mut child = Child::start(&run.command, variables, terminal.is_lent(), common.json)?;
    let group = child.group();
    let mut watchman = match Watchman::start(group, run.grace) {
        Ok(watchman) => watchman,
        Err(failure) => {
            group.kill();
            child.end(Duration::ZERO).await;
            terminal.take_back(group);
            return Err(failure);
        }
    };
    watchman.tell(held.remaining());
    child.begin();
    let mut tick = tokio::time::interval((run.ttl / 20).clamp(TICK.0, TICK.1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut is_watched, mut was_asked) = (true, false);
    let status = loop {
        tokio::select! {
            // A lock that is lost in the moment in which COMMAND ends is lost.
            biased;
            () = held.lost() => break None,
            watched = watchman.ended(), if is_watched => match watched {
                Watched::Ended => {
                    was_asked = true;
                    break None;
                }
                Watched::Gone => is_watched = false,
            },
            status = child.ended() => break Some(status?),
            signal = signals.next() => group.tell(signal.number()),
            _ = tick.tick() => {
                // Somebody killed it. If there can be no other one now, there may be with the next tick.
                if !is_watched && let Ok(another) = Watchman::start(group, run.grace) {
                    watchman = another;
                    is_watched = true;
                }
                watchman.tell(held.remaining());
                terminal.wake(group, common.json);
            }
        }
    };
    let ended = match status {
        // It may have been the watchman who ended it.
        Some(status) if watchman.dismiss().await == Watched::Gone => Some(status),
        _ => None,
    };
    let end = match ended {
        Some(status) => End::Ended(status),
        None => {
            let text = format!("{} was lost: the command is ended", take::thing(run));
            tell(&text, common.json);
            // Where this program was stopped, the watchman has asked, or is about to.
            if !was_asked && !watchman.asks_by_itself() {
                group.terminate();
                watchman.asked();
            }
            let mut ending = pin!(child.end(run.grace));
            loop {
                tokio::select! {
                    () = &mut ending => break,
                    signal = signals.next() => group.tell(signal.number()),
                }
            }
            watchman.dismiss().await;
            End::Lost
        }
    };
    terminal.take_back(group);
    Ok(end)
}
