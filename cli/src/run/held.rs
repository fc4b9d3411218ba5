//! What COMMAND runs under: a lock, alone or shared, several locks, a permit, or a slot of a job.

use std::time::Duration;

use tag_lock::{Error, JobLease, JobSlot, LockAllGuard, LockGuard, Permit, RunOnce, SharedGuard};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::args::Run;
use crate::exit::Failure;

/// What COMMAND is told by, and finds the numbered ones of several names by.
const NAME: &str = "TAG_LOCK_NAME";
const FENCING_TOKEN: &str = "TAG_LOCK_FENCING_TOKEN";
/// The number of a permit, or the slot of a job.
const SLOT: &str = "TAG_LOCK_SLOT";

/// Whether a variable tells COMMAND of its lock.
pub(super) fn is_variable(variable: &str) -> bool {
    let is_numbered = |head: &str| {
        let number = variable
            .strip_prefix(head)
            .and_then(|tail| tail.strip_prefix('_'));
        number.is_some_and(|number| number.parse::<usize>().is_ok())
    };
    [NAME, FENCING_TOKEN, SLOT].contains(&variable)
        || [NAME, FENCING_TOKEN].into_iter().any(is_numbered)
}

/// What is held.
pub(super) enum Held {
    Lock(LockGuard),
    Shared(SharedGuard),
    Several(LockAllGuard),
    Permit(Permit),
    Slot(Attempt),
}

impl Held {
    /// How long it can be trusted without a renewal.
    pub(super) fn remaining(&self) -> Duration {
        match self {
            Self::Lock(guard) => guard.remaining(),
            Self::Shared(guard) => guard.remaining(),
            Self::Several(guard) => guard.remaining(),
            Self::Permit(permit) => permit.remaining(),
            Self::Slot(attempt) => attempt.lease.remaining(),
        }
    }

    /// Resolves when it is lost.
    pub(super) async fn lost(&self) {
        match self {
            Self::Lock(guard) => guard.lost().await,
            Self::Shared(guard) => guard.lost().await,
            Self::Several(guard) => guard.lost().await,
            Self::Permit(permit) => permit.lost().await,
            Self::Slot(attempt) => attempt.lease.lost().await,
        }
    }

    /// The variables by which COMMAND is told. Those of several names have the numbers that these have on the command line.
    pub(super) fn variables(&self, run: &Run) -> Vec<(String, String)> {
        let one = |token: u64| {
            let names = run.names.iter().take(1);
            let mut told: Vec<_> = names.map(|name| (NAME.to_owned(), name.clone())).collect();
            told.push((FENCING_TOKEN.to_owned(), token.to_string()));
            told
        };
        match self {
            Self::Lock(guard) => one(guard.fencing_token()),
            Self::Shared(guard) => one(guard.fencing_token()),
            Self::Several(guard) => {
                let mut told = Vec::new();
                for (number, name) in (1..).zip(&run.names) {
                    let token = guard.fencing_token(name).unwrap_or_default();
                    told.push((format!("{NAME}_{number}"), name.clone()));
                    told.push((format!("{FENCING_TOKEN}_{number}"), token.to_string()));
                }
                told
            }
            Self::Permit(permit) => {
                let mut told = one(permit.fencing_token());
                told.push((SLOT.to_owned(), permit.slot().to_string()));
                told
            }
            Self::Slot(attempt) => {
                let mut told = one(attempt.lease.fencing_token());
                told.push((SLOT.to_owned(), attempt.lease.slot().to_owned()));
                told
            }
        }
    }

    /// Ends the hold when COMMAND has ended, and waits until that is certain. A slot is done if COMMAND succeeded, and free otherwise.
    pub(super) async fn end(self, succeeded: bool) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Shared(guard) => guard.release().await,
            Self::Several(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
            Self::Slot(attempt) => attempt.end(succeeded).await,
        }
    }
}

/// An attempt at a slot of a job. The library holds the slot while the work runs that it was given: here the work is to wait for the end
/// of COMMAND.
pub(super) struct Attempt {
    lease: JobLease,
    outcome: oneshot::Sender<bool>,
    task: JoinHandle<Result<RunOnce<()>, Undone>>,
}

/// Why a slot was not recorded as done.
enum Undone {
    /// COMMAND failed.
    Failed,
    Error(Error),
}

impl From<Error> for Undone {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// What came of an attempt.
pub(super) enum Claimed {
    Granted(Attempt),
    /// Somebody else is at it.
    Busy,
    /// It was done before.
    Done,
}

impl Attempt {
    pub(super) async fn claim(slot: JobSlot) -> Result<Claimed, Failure> {
        let (grants, granted) = oneshot::channel();
        let (outcome, ended) = oneshot::channel();
        let work = async move |lease: JobLease| {
            // Nobody hears it: a signal was faster.
            grants.send(lease).map_err(|_| Undone::Failed)?;
            match ended.await {
                Ok(true) => Ok(()),
                Ok(false) | Err(_) => Err(Undone::Failed),
            }
        };
        let task = tokio::spawn(slot.run_once(work));
        if let Ok(lease) = granted.await {
            return Ok(Claimed::Granted(Self {
                lease,
                outcome,
                task,
            }));
        }
        match task.await {
            Ok(Ok(RunOnce::AlreadyDone)) => Ok(Claimed::Done),
            Ok(Ok(RunOnce::Busy)) => Ok(Claimed::Busy),
            Ok(Err(Undone::Error(error))) => Err(error.into()),
            // Work ran that was not granted, or panicked.
            Ok(Ok(RunOnce::Done(())) | Err(Undone::Failed)) | Err(_) => {
                Err(Failure::Other("the slot was given up".to_owned()))
            }
        }
    }

    async fn end(self, succeeded: bool) -> Result<(), Error> {
        // If nobody hears it, the lease was lost, and the task says so.
        let _ = self.outcome.send(succeeded);
        match self.task.await {
            Ok(Ok(_) | Err(Undone::Failed)) => Ok(()),
            Ok(Err(Undone::Error(error))) => Err(error),
            Err(_) => Err(Error::Closed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_variable;

    #[test]
    fn settings_are_no_variables_of_a_lock() {
        for variable in [
            "TAG_LOCK_NAME",
            "TAG_LOCK_NAME_12",
            "TAG_LOCK_FENCING_TOKEN_1",
            "TAG_LOCK_SLOT",
        ] {
            assert!(is_variable(variable), "{variable}");
        }
        for variable in [
            "TAG_LOCK_REQUEST_TIMEOUT",
            "TAG_LOCK_NAME_",
            "TAG_LOCK_NAMES",
            "TAG_LOCK_NAME_X",
            "PATH",
        ] {
            assert!(!is_variable(variable), "{variable}");
        }
    }
}
