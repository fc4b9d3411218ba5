//! What a packet can do to one row. Durations are microseconds by the server's clock.

use std::sync::Arc;

use crate::name::Name;
use crate::stripe::Stripe;
use crate::token::Token;

/// What a row is. A part of the primary key: a lock and a counter of one name are two rows, and no
/// user's name is ever a stripe (0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Lock = 1,
    Counter = 2,
    /// The id of an operation that runs once, and its result.
    Once = 3,
}

/// The address of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowKey {
    pub(crate) name: Name,
    pub(crate) kind: Kind,
}

impl RowKey {
    pub(crate) fn lock(name: Name) -> Self {
        Self {
            name,
            kind: Kind::Lock,
        }
    }

    pub(crate) fn counter(name: Name) -> Self {
        Self {
            name,
            kind: Kind::Counter,
        }
    }

    pub(crate) fn once(id: Name) -> Self {
        Self {
            name: id,
            kind: Kind::Once,
        }
    }

    pub(crate) fn stripe(&self) -> Stripe {
        Stripe::of(&self.name)
    }
}

/// Takes a lock that is free, expired, or held by the same owner.
#[derive(Clone, Debug)]
pub(crate) struct Acquire {
    pub(crate) token: Token,
    pub(crate) ttl: i64,
    /// How many fencing tokens the grant reserves, for turns in memory.
    pub(crate) block: u32,
    /// The token is an owner's: one that holds already goes one level deeper. The number marks this
    /// operation among those of the same owner.
    pub(crate) level: Option<i64>,
    /// It lets those go first that wait already, for a moment after each release.
    pub(crate) gives_way: bool,
    /// It waits at the row, when a transaction of the application holds that.
    pub(crate) queues: bool,
    pub(crate) description: Arc<str>,
    pub(crate) held_by: Arc<str>,
}

/// Gives a lock back, or one level of it.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub(crate) token: Token,
    /// The end of the grant's block: which grant this is.
    pub(crate) fence: u64,
    /// The last fencing token that was used; the rest of the block is given back.
    pub(crate) used: u64,
    /// The lock stays taken for this much longer.
    pub(crate) hold: i64,
    /// The token is an owner's: it may have more levels. The number marks this operation.
    pub(crate) level: Option<i64>,
}

/// Moves the deadline of a lease that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Renew {
    pub(crate) token: Token,
    pub(crate) fence: u64,
    pub(crate) ttl: i64,
}

/// Frees a lock, whoever holds it, if the grant is still the one that was seen.
#[derive(Clone, Debug)]
pub(crate) struct ForceRelease {
    pub(crate) token: Token,
    pub(crate) fence: u64,
}

/// Says in the row that another process waits.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) wait: i64,
}

/// What happens to a counter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Adds `step` as often as the result stays on this side of `edge`, at most `times` times.
    Add { step: i64, times: u32, edge: i64 },
    /// Replaces the value.
    Set { value: i64 },
}

/// Changes a counter if its value lies within `low..=high`.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    pub(crate) token: Token,
    pub(crate) low: i64,
    pub(crate) high: i64,
    pub(crate) change: Change,
    /// The length of the window, 0 for none.
    pub(crate) window: i64,
    /// Begins a new window.
    pub(crate) restart: bool,
}

/// Adds to a counter once for an id of the caller's: the row is the id's, and keeps the result.
#[derive(Clone, Debug)]
pub(crate) struct Once {
    /// What the id stands for: the counter, the delta, the range.
    pub(crate) token: Token,
    pub(crate) counter: RowKey,
    pub(crate) delta: i64,
    /// The counter's values from which it may be added.
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) window: i64,
    /// How long the id is remembered.
    pub(crate) retention: i64,
}

impl Once {
    /// Whether both may be added in one statement: they ask for the same of one counter.
    pub(crate) fn merges_with(&self, other: &Self) -> bool {
        (self.token, self.window) == (other.token, other.window) && self.counter == other.counter
    }
}

/// Creates the row, or says that it is in use, so that no purge takes it.
#[derive(Clone, Debug)]
pub(crate) struct Touch;

/// One change of one row.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Acquire(Acquire),
    Release(Release),
    Renew(Renew),
    ForceRelease(ForceRelease),
    Want(Want),
    Count(Count),
    Once(Once),
    Touch(Touch),
}

impl Operation {
    /// What `holder` is compared with.
    pub(crate) fn token(&self) -> Token {
        match self {
            Self::Acquire(acquire) => acquire.token,
            Self::Release(release) => release.token,
            Self::Renew(renew) => renew.token,
            Self::ForceRelease(force) => force.token,
            Self::Count(count) => count.token,
            Self::Once(once) => once.token,
            Self::Want(_) | Self::Touch(_) => Token::NONE,
        }
    }

    pub(crate) fn once(&self) -> Option<&Once> {
        match self {
            Self::Once(once) => Some(once),
            _ => None,
        }
    }

    /// The other row that it changes.
    pub(crate) fn second(&self) -> Option<&RowKey> {
        self.once().map(|once| &once.counter)
    }

    /// Whether a missing row is to be created for it.
    pub(crate) fn creates(&self) -> bool {
        matches!(
            self,
            Self::Acquire(_) | Self::Count(_) | Self::Once(_) | Self::Touch(_)
        )
    }

    /// Whether the outcome cannot be read from the row once others have changed it, and so must be
    /// written down with the batch.
    pub(crate) fn needs_record(&self) -> bool {
        match self {
            Self::Acquire(acquire) => acquire.level.is_some(),
            // Nothing tells an owner's levels apart later on. Any other release is told by the fence that it left
            // as long as nobody has acquired the lock since; its lease knows the rest.
            Self::Release(release) => release.level.is_some(),
            // An id's row says nothing any more once its retention has ended.
            Self::ForceRelease(_) | Self::Count(_) | Self::Once(_) => true,
            Self::Renew(_) | Self::Want(_) | Self::Touch(_) => false,
        }
    }

    /// Whether it may run again although it may have run: its token says what it has done.
    pub(crate) fn is_repeatable(&self) -> bool {
        match self {
            Self::Acquire(acquire) => acquire.level.is_none(),
            Self::Release(release) => release.level.is_none(),
            Self::Renew(_) | Self::Want(_) | Self::Touch(_) => true,
            Self::ForceRelease(_) | Self::Count(_) | Self::Once(_) => false,
        }
    }

    /// Whether it must not wait behind new work: a lease depends on it, or a waiter does.
    pub(crate) fn is_urgent(&self) -> bool {
        matches!(self, Self::Renew(_) | Self::Release(_))
    }
}
