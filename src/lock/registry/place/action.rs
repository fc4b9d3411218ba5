//! What a place wants done, and what it tells those who wait.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::lock::registry::lease::Lease;
use crate::lock::terms::Terms;
use crate::sql::wish::GivesWay;

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Action {
    Ask(Question),
    /// Give a lease back; `announce`: the place waits to hear of it.
    Release {
        lease: Arc<Lease>,
        announce: bool,
    },
    /// A waiter that asked at once has to wait, or one that came stands behind others.
    Waits,
    /// Say in the row that this process waits, for so long; then ring that client, whose lease may idle.
    Want(Duration, Option<u32>),
    /// Ring that client again.
    Ring(u32),
    /// Take that back.
    NoLongerWant,
    /// Wake the watcher: a place has a new time to look.
    Watch,
    /// Find out whether another process waits.
    LookForOthers(Arc<Lease>),
    /// Renew it before its date.
    Renew(Arc<Lease>),
}

/// An acquire that is to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) terms: Terms,
    pub(crate) asking: Asking,
    /// Who goes first.
    pub(crate) gives_way: GivesWay,
    /// It is for this waiter, which goes past the queue.
    pub(crate) entrant: Option<u64>,
}

/// What became of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnOver {
    /// The next task has it.
    HandedOn,
    /// Other tasks of this process have it too.
    Shared,
    /// Nobody wants it here, and it idles.
    Lingers,
    /// It goes back to the table, or had been lost.
    Over,
}

/// How it is asked for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    /// As somebody who has not waited: those go first who have.
    New,
    /// As somebody who waits.
    Waiting,
    /// As somebody who waits at the row itself, since transactions hold it again and again; until then.
    AtRow(Option<Moment>),
}

/// What becomes of a waiter whose time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// An answer is on its way since then, and is its own, whatever it is.
    Stays(Moment),
    /// It was not to be had; `seen`: as was seen a moment ago.
    Left { seen: bool },
    /// It has its answer.
    Answered,
}

/// Ends a lease of which no place needs to hear.
pub(super) fn give_back_quietly(lease: &Arc<Lease>) -> Action {
    lease.end();
    Action::Release {
        lease: Arc::clone(lease),
        announce: false,
    }
}
