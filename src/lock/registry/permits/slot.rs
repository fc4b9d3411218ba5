//! One slot of a semaphore as this process sees it.

use std::sync::Arc;

use crate::clock::{Moment, micros};
use crate::lock::registry::lease::Lease;
use crate::sql::reply::RowState;
use crate::sql::wish::GivesWay;
use crate::timing::{LOOK, WANT};

/// What goes on about a slot.
#[derive(Debug)]
pub(super) enum Slot {
    /// It is not ours.
    Apart(Apart),
    /// An acquire is on its way.
    Asking,
    Held(Arc<Lease>),
    /// A release is on its way; `is_busy`: it waits for a transaction of the application.
    Releasing {
        is_busy: bool,
    },
}

/// What is known of a slot that is not ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Apart {
    pub(super) guess: Guess,
    /// We waited while it was taken: when it is free we need not let others go first who did.
    pub(super) waits: bool,
    /// When we last said in the row that we wait.
    told: Option<Moment>,
}

/// Whether it may be free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Guess {
    /// Nobody has looked.
    #[default]
    Unseen,
    Free,
    /// It is taken, or left to somebody else.
    Taken,
}

impl Default for Slot {
    fn default() -> Self {
        Self::Apart(Apart::default())
    }
}

impl Slot {
    pub(super) fn taken() -> Self {
        Self::Apart(Apart {
            guess: Guess::Taken,
            ..Apart::default()
        })
    }

    pub(super) fn free() -> Self {
        Self::Apart(Apart {
            guess: Guess::Free,
            ..Apart::default()
        })
    }

    pub(super) fn is_apart(&self) -> bool {
        matches!(self, Self::Apart(_))
    }

    /// It is about to be released.
    pub(super) fn is_soon_free(&self) -> bool {
        matches!(self, Self::Releasing { is_busy: false })
    }

    /// What nobody has looked at is not asked for before somebody has.
    pub(super) fn is_not_guessed(&mut self) {
        if let Self::Apart(apart) = self
            && apart.guess == Guess::Unseen
        {
            apart.guess = Guess::Taken;
        }
    }

    /// We do not wait any more. Whether a wish of ours is to be taken back.
    pub(super) fn take_back(&mut self, now: Moment) -> bool {
        let Self::Apart(apart) = self else {
            return false;
        };
        apart.waits = false;
        let told = apart.told.take();
        told.is_some_and(|told| now.since(told) < WANT)
    }
}

impl Apart {
    /// A look saw its row; `None`: there was none, or nobody ever asked for it.
    pub(super) fn saw(&mut self, row: Option<&RowState>) {
        let free = row.is_none_or(|row| row.admits(GivesWay::of(self.waits)));
        self.guess = if free { Guess::Free } else { Guess::Taken };
    }

    /// It is taken, and we wait for it. Whether to say so in its row, if that `may` be: not while others have, or we have a moment ago.
    pub(super) fn wishes(&mut self, row: &RowState, may: bool, now: Moment) -> bool {
        let known = row.wanted > micros(WANT / 2);
        let told = self.told.is_some_and(|told| now.since(told) < LOOK);
        self.waits |= known || told || may;
        let tells = may && !known && !told;
        if tells {
            self.told = Some(now);
        }
        tells
    }
}
