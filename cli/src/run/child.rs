//! COMMAND: its start, its end, and its exit code.
//!
//! It begins as this program, which asks the kernel for SIGTERM when its parent dies, waits until the watchman is there, and then becomes
//! COMMAND. (Between `fork` and `exec` only unsafe code could ask.)

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::group::{Group, LOOK};
use super::{held, stops, terminal};
use crate::exit::{CANNOT_EXECUTE, Code, Failure, NOT_FOUND, RUN_FAILED, tell};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, getpid, getppid};

/// The first argument of this program if it is to become COMMAND. The parent's process id follows, whether COMMAND is to have the
/// terminal, whether errors are told as JSON, the pipe by which it hears that it may begin, and COMMAND.
pub(super) const HELPER: &str = "--tag-lock-become";

const WITH_TERMINAL: &str = "terminal";
const AS_JSON: &str = "json";

/// COMMAND, running.
pub(super) struct Child {
    process: tokio::process::Child,
    group: Group,
    begins: std::io::PipeWriter,
}

impl Child {
    /// Starts what is to become COMMAND, with these variables that tell of the lock; with the terminal, if that is lent. If it cannot be
    /// run, it tells so itself.
    pub(super) fn start(
        command: &[OsString],
        variables: Vec<(String, String)>,
        has_terminal: bool,
        as_json: bool,
    ) -> Result<Self, Failure> {
        let mut program = tokio::process::Command::new(this_program()?);
        // Those of a `run` around this one are of another lock.
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(held::is_variable) {
                program.env_remove(name);
            }
        }
        let (hears, begins) = std::io::pipe()?;
        let held_off = stops::hold_off();
        // What is started has this end alone.
        fcntl_setfd(&hears, FdFlags::empty()).map_err(std::io::Error::from)?;
        let process = program
            .arg0("tag-lock")
            .arg(HELPER)
            .arg(getpid().as_raw_nonzero().to_string())
            .arg(if has_terminal { WITH_TERMINAL } else { "" })
            .arg(if as_json { AS_JSON } else { "" })
            .arg(hears.as_raw_fd().to_string())
            .args(command)
            .envs(variables)
            .process_group(0)
            .spawn()?;
        drop(held_off);
        let group = process
            .id()
            .and_then(|pid| Group::of(i32::try_from(pid).ok()?));
        let group =
            group.ok_or_else(|| Failure::Other("the command has no process id".to_owned()))?;
        Ok(Self {
            process,
            group,
            begins,
        })
    }

    /// Lets COMMAND begin.
    pub(super) fn begin(&mut self) {
        // If it does not hear it, it has ended.
        let _ = self.begins.write_all(b"!");
    }

    /// The process group that it began.
    pub(super) fn group(&self) -> Group {
        self.group
    }

    /// Waits for its end. It can be dropped and called again.
    pub(super) async fn ended(&mut self) -> Result<ExitStatus, Failure> {
        Ok(self.process.wait().await?)
    }

    /// Waits until it and what it started have ended, which were asked to; kills who is left after the grace.
    pub(super) async fn end(&mut self, grace: Duration) {
        let begun = Instant::now();
        while self.group.exists() {
            if begun.elapsed() >= grace {
                self.group.kill();
                break;
            }
            // A process that has ended, and was not waited for, is still in its group.
            let _ = self.process.try_wait();
            tokio::time::sleep(LOOK.min(grace)).await;
        }
        let _ = self.process.wait().await;
    }
}

/// How this program starts itself, also when its file was replaced meanwhile.
pub(super) fn this_program() -> Result<PathBuf, Failure> {
    if cfg!(any(target_os = "linux", target_os = "android")) {
        return Ok(PathBuf::from("/proc/self/exe"));
    }
    Ok(std::env::current_exe()?)
}

/// Becomes COMMAND. If it comes back, it could not: the exit code says why.
pub(super) fn become_command(mut arguments: impl Iterator<Item = OsString>) -> Code {
    stops::let_through();
    let parent = arguments
        .next()
        .and_then(|pid| pid.to_str()?.parse().ok())
        .and_then(Pid::from_raw);
    let has_terminal = arguments.next().is_some_and(|word| word == WITH_TERMINAL);
    let as_json = arguments.next().is_some_and(|word| word == AS_JSON);
    let hears = arguments
        .next()
        .and_then(|pipe| pipe.to_str()?.parse().ok());
    let Some(((parent, hears), command)) = parent.zip(hears).zip(arguments.next()) else {
        return RUN_FAILED;
    };
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Err(error) =
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
    {
        let text = format!("the command could not be tied to this program: {error}");
        tell(&text, as_json);
        return RUN_FAILED;
    }
    // It died before the kernel was asked.
    if getppid() != Some(parent) || !may_begin(hears) {
        return RUN_FAILED;
    }
    if has_terminal {
        terminal::take(parent);
    }
    let error = std::process::Command::new(&command).args(arguments).exec();
    failed(&command, &error, as_json)
}

/// Waits until COMMAND may begin. Not, if the pipe ends. COMMAND does not have the pipe.
fn may_begin(hears: RawFd) -> bool {
    let own = if cfg!(any(target_os = "linux", target_os = "android")) {
        "/proc/self/fd"
    } else {
        "/dev/fd"
    };
    let pipe = File::open(format!("{own}/{hears}"));
    let closed = nix::unistd::close(hears);
    pipe.is_ok_and(|mut pipe| closed.is_ok() && pipe.read_exact(&mut [0]).is_ok())
}

fn failed(command: &OsStr, error: &std::io::Error, as_json: bool) -> Code {
    tell(
        &format!("{} cannot be run: {error}", command.display()),
        as_json,
    );
    if error.kind() == ErrorKind::NotFound {
        NOT_FOUND
    } else {
        CANNOT_EXECUTE
    }
}

/// The exit code that tells how a process ended, as a shell's would.
pub(super) fn exit_code(status: ExitStatus) -> Code {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| Code::try_from(code).ok())
        .unwrap_or(Code::MAX)
}
