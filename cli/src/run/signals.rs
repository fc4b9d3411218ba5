//! The signals that are passed on to COMMAND.

use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Code, Failure};

const PASSED_ON: [Passed; 3] = [
    Passed(Signal::INT),
    Passed(Signal::TERM),
    Passed(Signal::HUP),
];

/// A signal that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed(Signal);

impl Passed {
    pub(super) fn number(self) -> Signal {
        self.0
    }

    /// As a shell tells a process that a signal ended.
    pub(super) fn exit_code(self) -> Code {
        Code::try_from(128 + self.0.as_raw()).unwrap_or(Code::MAX)
    }
}

/// All of them.
pub(super) struct Signals {
    passed_on: Vec<(Passed, tokio::signal::unix::Signal)>,
    /// That a neighbour in a pipeline asked for the terminal, which COMMAND has: the neighbour waits, and this program does not.
    _neighbours: tokio::signal::unix::Signal,
    /// That a child has ended. Where it was ignored when this program began, the kernel would forget how the child ended.
    _children: tokio::signal::unix::Signal,
}

impl Signals {
    /// From now on these signals do not end this program. One that was ignored when it started, as `nohup` has it, stays ignored,
    /// here and by COMMAND.
    pub(super) fn listen() -> Result<Self, Failure> {
        let ignored = ignored();
        let mut passed_on = Vec::new();
        for passed in PASSED_ON {
            let number = passed.0.as_raw();
            if ignored & (1 << (number - 1)) == 0 {
                passed_on.push((passed, signal(SignalKind::from_raw(number))?));
            }
        }
        let children = signal(SignalKind::child())?;
        let neighbours = signal(SignalKind::from_raw(Signal::TTIN.as_raw()))?;
        Ok(Self {
            passed_on,
            _neighbours: neighbours,
            _children: children,
        })
    }

    /// The next signal.
    pub(super) async fn next(&mut self) -> Passed {
        std::future::poll_fn(|context| {
            for (passed, signal) in &mut self.passed_on {
                if let Poll::Ready(Some(())) = signal.poll_recv(context) {
                    return Poll::Ready(*passed);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The signals that this process ignores, a bit each; none where the system does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}
