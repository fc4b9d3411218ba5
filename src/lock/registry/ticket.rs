//! A task's wait for a lock or a permit, from its question to the answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::Instrument;

use super::place::Leaving;
use super::semaphore::SlotRows;
use super::turn::Turn;
use super::{InVain, Locks};
use crate::clock::Moment;
use crate::error::Error;
use crate::lock::terms::Wait;
use crate::mutant::{self, Mutant};
use crate::name::Name;
use crate::telemetry;
use crate::timing::ANSWER;

/// What a place says to one who asks.
pub(super) enum Entering {
    Taken(Turn),
    Refused,
    Waits(oneshot::Receiver<Result<Option<Turn>, Error>>),
}

/// What came of asking.
pub(crate) enum Entered<'l> {
    /// It idled here.
    Taken(Turn),
    /// It is held, and who asked does not wait.
    Refused,
    /// The answer comes here.
    Waits(Ticket<'l>),
}

/// Where a waiter stands.
pub(crate) enum Line<'l> {
    /// For a lock.
    Place(&'l Name),
    Semaphore(Arc<SlotRows>),
    /// For a shared hold of a lock.
    Shared(&'l Name),
}

impl Line<'_> {
    fn name(&self) -> &Name {
        match self {
            Self::Place(name) | Self::Shared(name) => name,
            Self::Semaphore(semaphore) => &semaphore.name,
        }
    }
}

/// A waiter's place in the queue, given up on drop.
pub(crate) struct Ticket<'l> {
    pub(super) locks: &'l Arc<Locks>,
    pub(super) line: Line<'l>,
    pub(super) wait: Wait,
    pub(super) id: u64,
    pub(super) receiver: oneshot::Receiver<Result<Option<Turn>, Error>>,
    /// As far as the waiter knows.
    pub(super) queued: bool,
}

impl Ticket<'_> {
    pub(crate) async fn wait(mut self) -> Result<Result<Turn, InVain>, Error> {
        let span = telemetry::wait(self.line.name());
        let answer = match self.wait {
            Wait::Forever => self.answer().instrument(span).await?,
            // Boxed, so that the future of a wait without an end has no room for it.
            _ => Box::pin(self.wait_for_a_time()).instrument(span).await?,
        };
        Ok(answer.inspect(|turn| turn.lease.reached_its_caller()))
    }

    async fn wait_for_a_time(&mut self) -> Result<Result<Turn, InVain>, Error> {
        let longest = match self.wait {
            Wait::For(wait) => wait,
            Wait::Not | Wait::Forever => Duration::ZERO,
        };
        if let Ok(answer) = tokio::time::timeout(longest, self.answer()).await {
            return answer;
        }
        let since = match self.time_is_over() {
            Some(Leaving::Stays(since)) => since,
            Some(Leaving::Left { seen }) => {
                self.queued = false;
                return Ok(Err(if seen { InVain::Held } else { InVain::NoNews }));
            }
            Some(Leaving::Answered) | None => return self.answer().await,
        };
        // The answer that is on its way is waited for: a short wait is one attempt.
        let limit = match self.wait {
            Wait::Not => self.locks.engine.answer_limit(),
            _ if mutant::on(Mutant::AnswerAwaited) => self.locks.engine.request_limit(),
            _ => ANSWER,
        };
        if let Ok(answer) = tokio::time::timeout(since.after(limit).left(), self.answer()).await {
            return answer;
        }
        // The place goes on: a grant that comes is the next one's, or is given back.
        if self.leave() != Some(true) {
            return self.answer().await;
        }
        self.queued = false;
        match self.wait {
            Wait::Not => Err(Error::OutcomeUnknown {
                name: self.line.name().to_string(),
            }),
            _ => Ok(Err(InVain::NoAnswer)),
        }
    }

    async fn answer(&mut self) -> Result<Result<Turn, InVain>, Error> {
        let answer = (&mut self.receiver).await;
        self.queued = false;
        let turn = answer.map_err(|_| Error::Closed)??;
        Ok(turn.ok_or(InVain::Held))
    }

    fn time_is_over(&self) -> Option<Leaving> {
        let (id, now) = (self.id, Moment::now());
        match &self.line {
            Line::Place(name) => self
                .locks
                .change(name, |place, actions| place.time_is_over(id, now, actions)),
            Line::Semaphore(semaphore) => {
                self.locks.change_permits(semaphore, |permits, actions| {
                    permits.time_is_over(id, now, actions)
                })
            }
            Line::Shared(name) => self
                .locks
                .change_readers(name, |readers, actions| readers.time_is_over(id, actions)),
        }
    }

    /// Leaves the queue; false: the answer is there.
    fn leave(&self) -> Option<bool> {
        let (id, now) = (self.id, Moment::now());
        match &self.line {
            Line::Place(name) => self
                .locks
                .change(name, |place, actions| place.leave(id, now, actions)),
            Line::Semaphore(semaphore) => {
                self.locks.change_permits(semaphore, |permits, actions| {
                    permits.leave(id, now, actions)
                })
            }
            Line::Shared(name) => self
                .locks
                .change_readers(name, |readers, actions| readers.leave(id, actions)),
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.queued {
            let _ = self.leave();
        }
    }
}
