//! The watchman: a process that ends COMMAND's group when the lease is over and nobody else does.
//!
//! It reads from a pipe until when the lease can be trusted, by the machine's clock, and hears at the pipe's end that the program
//! which holds the lock is gone. It lives in a process group of its own, from its first instant on: what is sent to a terminal's or to
//! that program's group does not reach it.

use std::ffi::OsString;
use std::io::{BufRead, ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal as Held};
use rustix::fs::{OFlags, fcntl_setfl};

use super::child::this_program;
use super::group::{Group, LOOK};
use super::{clock, stops};
use crate::exit::{Code, Failure, RUN_FAILED};

/// The first argument of this program if it is to watch. The process group and the grace in milliseconds follow.
pub(super) const HELPER: &str = "--tag-lock-watch";

/// Its exit code if it ended the group.
const ENDED: Code = 10;
/// What it is told when COMMAND has ended.
const DISMISSED: &str = "dismissed";
/// What it is told when the group was asked to end: many programs take a second SIGTERM as "at once".
const ASKED: &str = "asked";
/// How long it leaves it to the program that holds the lock to ask the group, which sees the end of the lease at the same time; at most.
const HEAD_START: Duration = Duration::from_millis(200);

/// That is a part of the grace.
fn head_start(grace: Duration) -> Duration {
    HEAD_START.min(grace)
}

/// How often it looks at the clock, at least: timers stand still while the machine sleeps.
const RECHECK: Duration = Duration::from_secs(1);
/// How long it may take to leave.
const LEAVING: Duration = Duration::from_secs(5);

/// What became of the watchman.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Watched {
    /// It ended the group.
    Ended,
    /// It did not, and is gone.
    Gone,
}

/// The watchman, from outside.
pub(super) struct Watchman {
    process: tokio::process::Child,
    pipe: Option<ChildStdin>,
    /// Until when the lease can be trusted, as it was told last.
    until: Duration,
    head_start: Duration,
}

impl Watchman {
    pub(super) fn start(group: Group, grace: Duration) -> Result<Self, Failure> {
        let (reader, writer) = std::io::pipe()?;
        fcntl_setfl(&writer, OFlags::NONBLOCK).map_err(std::io::Error::from)?;
        let mut command = Command::new(this_program()?);
        command.arg0("tag-lock").process_group(0);
        command
            .arg(HELPER)
            .arg(group.pid().as_raw_nonzero().to_string())
            .arg(
                u64::try_from(grace.as_millis())
                    .unwrap_or(u64::MAX)
                    .to_string(),
            )
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let held_off = stops::hold_off();
        let process = tokio::process::Command::from(command).spawn()?;
        drop(held_off);
        let pipe = Some(ChildStdin::from(std::os::fd::OwnedFd::from(writer)));
        Ok(Self {
            process,
            pipe,
            until: Duration::MAX,
            head_start: head_start(grace),
        })
    }

    /// Tells it for how long the lease can be trusted.
    pub(super) fn tell(&mut self, remaining: Duration) {
        self.until = clock::now() + remaining;
        self.write(&self.until.as_micros().to_string());
    }

    /// Whether it lives, and asks the group to end, or has: it would not hear in time that somebody else does.
    pub(super) fn asks_by_itself(&mut self) -> bool {
        let is_late = self.until.saturating_add(self.head_start / 2) <= clock::now();
        is_late && matches!(self.process.try_wait(), Ok(None))
    }

    /// Tells it that the group was asked to end, and that its grace has begun.
    pub(super) fn asked(&mut self) {
        self.write(ASKED);
    }

    /// Sends it away, and says what it did.
    pub(super) async fn dismiss(&mut self) -> Watched {
        self.write(DISMISSED);
        self.pipe = None;
        let left = tokio::time::timeout(LEAVING, self.ended()).await;
        left.unwrap_or_else(|_| {
            // It is stopped, say. The group's number may be another one's when it goes on.
            let _ = self.process.start_kill();
            Watched::Gone
        })
    }

    /// Waits until it is gone. It can be dropped and called again.
    pub(super) async fn ended(&mut self) -> Watched {
        match self.process.wait().await {
            Ok(status) if status.code() == Some(ENDED.into()) => Watched::Ended,
            _ => Watched::Gone,
        }
    }

    fn write(&mut self, line: &str) {
        // That it is gone is seen elsewhere. A short line is written whole or not at all.
        if let Some(pipe) = &mut self.pipe
            && let Err(error) = pipe.write_all(format!("{line}\n").as_bytes())
            && error.kind() == ErrorKind::WouldBlock
        {
            // It does not read: somebody has stopped it. Another one takes over.
            let _ = self.process.start_kill();
        }
    }
}

/// What the watchman hears.
enum Word {
    Until(Duration),
    Asked,
    Dismissed,
}

/// Is the watchman.
pub(super) fn watch(mut arguments: impl Iterator<Item = OsString>) -> Code {
    stops::let_through();
    let mut number = || arguments.next()?.to_str()?.parse::<u64>().ok();
    let group = number().and_then(|pid| Group::of(i32::try_from(pid).ok()?));
    let Some((group, grace)) = group.zip(number()) else {
        return RUN_FAILED;
    };
    // It outlives whoever ends all of a service's processes at once, until the group has ended.
    for signal in [Held::SIGTERM, Held::SIGINT, Held::SIGHUP] {
        let mut held = SigSet::empty();
        held.add(signal);
        let _ = held.thread_block();
    }
    keep_watch(group, Duration::from_millis(grace), &listen())
}

/// The words from the pipe; the channel ends where the pipe does.
fn listen() -> Receiver<Word> {
    let (sender, words) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            let word = match line.parse() {
                Ok(micros) => Word::Until(Duration::from_micros(micros)),
                Err(_) if line == ASKED => Word::Asked,
                Err(_) => Word::Dismissed,
            };
            if sender.send(word).is_err() {
                return;
            }
        }
    });
    words
}

fn keep_watch(group: Group, grace: Duration, words: &Receiver<Word>) -> Code {
    let mut until: Option<Duration> = None;
    // When the grace ends, if the group was asked.
    let mut asked: Option<Duration> = None;
    loop {
        let end = asked.or(until.map(|until| until.saturating_add(head_start(grace))));
        let left = end.map_or(RECHECK, |end| end.saturating_sub(clock::now()));
        match words.recv_timeout(left.min(RECHECK)) {
            Ok(Word::Until(later)) => until = Some(later),
            Ok(Word::Asked) => asked = Some(clock::now().saturating_add(grace)),
            Ok(Word::Dismissed) => return 0,
            Err(RecvTimeoutError::Timeout) => {
                if end.is_some_and(|end| end <= clock::now()) {
                    let latest = asked.unwrap_or_else(|| ask(group, grace));
                    wait_and_kill(group, latest);
                    return ENDED;
                }
            }
            // Nobody renews the lease: it may be somebody else's when it has ended.
            Err(RecvTimeoutError::Disconnected) => {
                let latest = asked.unwrap_or_else(|| ask(group, grace));
                wait_and_kill(group, latest.min(until.unwrap_or_default()));
                return ENDED;
            }
        }
    }
}

/// Asks all to end, and says when their grace does.
fn ask(group: Group, grace: Duration) -> Duration {
    group.terminate();
    clock::now().saturating_add(grace)
}

/// Kills those that are left at `latest`.
fn wait_and_kill(group: Group, latest: Duration) {
    while group.exists() {
        if clock::now() >= latest {
            group.kill();
            return;
        }
        std::thread::sleep(LOOK);
    }
}
