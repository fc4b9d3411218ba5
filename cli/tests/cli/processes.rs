//! Processes: whether they live, and who began them.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{Ran, until, until_true};

/// Whether a process runs. One that has ended and was not waited for does not.
pub(crate) fn lives(pid: i32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // The name before the state may have anything in it.
        Ok(stat) => stat
            .rsplit_once(')')
            .is_some_and(|(_, behind)| !behind.trim_start().starts_with(['Z', 'X'])),
        Err(_) => false,
    }
}

pub(crate) fn until_dead(pid: i32) {
    until_true(&format!("the end of {pid}"), || !lives(pid));
}

pub(crate) fn until_stopped(pid: i32) {
    until_true(&format!("{pid} is stopped"), || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
        status.is_ok_and(|status| status.contains("State:\tT"))
    });
}

pub(crate) fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a process id"), signal).expect("signals");
}

/// The watchman that a `tag-lock run` started.
pub(crate) fn watchman_of(program: i32) -> i32 {
    until("a watchman", || {
        std::fs::read_dir("/proc")
            .ok()?
            .flatten()
            .find_map(|entry| {
                let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
                let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
                let parent: i32 = stat
                    .rsplit_once(')')?
                    .1
                    .split_whitespace()
                    .nth(1)?
                    .parse()
                    .ok()?;
                let arguments = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
                (parent == program && arguments.contains("--tag-lock-watch")).then_some(pid)
            })
    })
}

/// A run of the program that goes on beside the test. It is killed when the test ends.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(Some(
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("starts"),
        ))
    }

    pub(crate) fn pid(&self) -> i32 {
        let child = self.0.as_ref().expect("it runs");
        i32::try_from(child.id()).expect("a process id")
    }

    pub(crate) fn send(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Waits for its end.
    pub(crate) fn ended(mut self) -> Ran {
        let output = self
            .0
            .take()
            .expect("it runs")
            .wait_with_output()
            .expect("waits");
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
