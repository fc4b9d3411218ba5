//! What a request waits for, and what happens to it next: decisions only.
//!
//! ```text
//!              not had               not had                  row locked
//!  Stage::Try ─────────▶ Create ───────────────▶ Stripe ─────────────────▶ Row
//!  row is there         created, if its stripe   waits for its stripe      waits for its row
//!                       is free
//!  └──────────── lanes that never wait ────┘     └ lanes of stripes ┘      └ lanes of rows ┘
//! ```
//!
//! A request whose row is missing tries `Create` for a while, since the stripes are free again and again; where other clients create rows
//! all the time it stands in line at once. One whose row is there and locked goes on at once. A request goes to the right only when a
//! packet did not have what it needs, or its row is taken to be missing where others create rows, so that it does not delay what can be
//! answered at once. A release waits for its row, and for no stripe. Renewals, and releases whose caller may have locked the row
//! himself, do not wait for it: if they find it locked again and again they go from `Try` to `Stripe`, since it may be a crowd of
//! acquires that stands there.

use super::outcome::{Judgment, Outcome};
use crate::sql::operation::Operation;
use crate::sql::reply::RowState;

/// What the packets of a lane may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneKind {
    NeverWaits,
    /// For the stripes of all their requests; or of one, where somebody keeps a stripe.
    WaitsForStripe,
    /// For the row of one request.
    WaitsForRow,
}

/// What a request needs, in the order in which it comes to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Its row is taken to be there.
    Try,
    /// Its row may be missing: it is created, if its stripe is free.
    Create,
    /// Others want its stripe: it stands in line there.
    Stripe {
        /// Its row may be missing.
        create: bool,
    },
    /// Its row is there, and somebody holds it.
    Row,
}

impl Stage {
    /// The kind of lane that serves it.
    pub(crate) fn lane_kind(self) -> LaneKind {
        match self {
            Self::Try | Self::Create => LaneKind::NeverWaits,
            Self::Stripe { .. } => LaneKind::WaitsForStripe,
            Self::Row => LaneKind::WaitsForRow,
        }
    }

    /// Whether its packet creates the row if that is missing.
    pub(crate) fn creates(self) -> bool {
        matches!(self, Self::Create | Self::Stripe { create: true })
    }
}

/// How it is known what a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Its packet is committed, which took it or waited for it as its stage says.
    Packet,
    /// Its packet is committed, and passed over all that it would have had to wait for.
    Glance,
    /// Its packet did not have it, and then it was read without a lock.
    Look,
    /// The packet's reply was lost, and the row was read later.
    Lost,
}

/// What is known of one request after its packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'c> {
    pub(crate) operation: &'c Operation,
    pub(crate) stage: Stage,
    /// How often it was tried again since its row was seen to be locked.
    pub(crate) tries: u8,
    pub(crate) row: Option<&'c RowState>,
    pub(crate) how: How,
    /// The packet ran when its time for grants was over.
    pub(crate) late: bool,
    /// Other clients create rows all the time.
    pub(crate) others_create: bool,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Answer(Outcome),
    /// It has changed nothing, and goes to this stage.
    Go(Stage),
    /// Its row was locked, or its stripe, as a rule for a moment: it runs once more where it is.
    Retry,
    /// Read its row: the packet says only that it did not have it.
    Look,
    /// Its row is still missing after a packet that creates it: its stripe is missing too, or a purge took it just now.
    FindStripe,
}

/// A row that is locked although its request stood in line is held by a transaction of the application, or by a packet that did not
/// stand there: that one is over in a moment. So often it is tried again.
const TRIES: u8 = 2;
/// What does not wait for its row stands in line last of all: not behind a stripe that somebody holds, if it can do without.
const TRIES_BEFORE_THE_LINE: u8 = 8;
/// Where clients begin together, each stripe is free again and again: a request tries so often before it stands in line, which takes a
/// connection more.
const TRIES_TO_CREATE: u8 = 20;

/// Of so many tries one looks whether the row is still missing: that is a round trip of its own.
const LOOK_EVERY: u8 = 5;

fn most_tries(operation: &Operation, stage: Stage) -> u8 {
    if stage == Stage::Try && never_waits_for_its_row(operation) {
        TRIES_BEFORE_THE_LINE
    } else {
        TRIES
    }
}

/// Renewals, and releases whose caller may have locked the row himself.
fn never_waits_for_its_row(operation: &Operation) -> bool {
    match operation {
        Operation::Renew(_) => true,
        Operation::Release(release) => !release.queues,
        _ => false,
    }
}

/// What happens to a request next.
pub(crate) fn next(case: Case<'_>) -> Next {
    match (case.how, case.row) {
        (How::Packet | How::Glance, None) => not_had(case),
        (How::Packet | How::Glance, Some(row)) => decided(case, row),
        (How::Look, _) => seen_locked(case),
        (How::Lost, _) => lost(case),
    }
}

/// The packet did not have its row.
fn not_had(case: Case<'_>) -> Next {
    if case.how == How::Glance {
        // Where connections are shared, the packet skips locked rows: read the row, to tell one that is gone from one that is locked.
        return match case.stage {
            Stage::Row => Next::Look,
            stage => Next::Go(stage),
        };
    }
    if !case.operation.creates() {
        return Next::Look;
    }
    match case.stage {
        Stage::Try => Next::Go(Stage::Create),
        // Others are at its stripe, or it is there, and locked.
        Stage::Create if case.others_create => Next::Go(Stage::Stripe { create: true }),
        Stage::Create if !case.tries.is_multiple_of(LOOK_EVERY) => Next::Retry,
        Stage::Create if case.tries < TRIES_TO_CREATE => Next::Look,
        Stage::Create | Stage::Stripe { create: false } => Next::Go(Stage::Stripe { create: true }),
        // The packet had the stripe, and would have created a missing row. So the row is there and locked, most likely.
        Stage::Stripe { create: true } => Next::Look,
        // It was there.
        Stage::Row => Next::Go(Stage::Create),
    }
}

/// The packet had its row, and decided.
fn decided(case: Case<'_>, row: &RowState) -> Next {
    match case.operation.judge(Some(row)) {
        Judgment::Final(outcome) => Next::Answer(outcome),
        // Refused by a clock that has been corrected since.
        _ if case.late => Next::Go(case.stage),
        _ => match case.operation {
            // It gives way to somebody who waits.
            Operation::Acquire(_) => Next::Answer(Outcome::Held(*row)),
            // Its counter was not had.
            Operation::Once(_) if case.how == How::Glance => Next::Go(case.stage),
            Operation::Once(_) => match case.stage {
                Stage::Try => Next::Go(Stage::Create),
                Stage::Create | Stage::Stripe { create: false } => {
                    Next::Go(Stage::Stripe { create: true })
                }
                Stage::Stripe { create: true } => Next::Go(Stage::Row),
                // It waited for the id's row and its counter: the counter's row may be missing.
                Stage::Row => Next::Go(Stage::Create),
            },
            _ => Next::Go(Stage::Row),
        },
    }
}

/// The packet passed over its row, which was read then.
fn seen_locked(case: Case<'_>) -> Next {
    match (case.stage, case.row) {
        (Stage::Create, None) => return Next::Retry,
        (Stage::Create, Some(_)) => return Next::Go(Stage::Stripe { create: true }),
        (_, None) if case.operation.creates() => return Next::FindStripe,
        _ => {}
    }
    let verdict = match (case.operation.judge(case.row), case.row) {
        // A transaction that has it locked may be about to set it.
        (Judgment::Final(Outcome::NotSet), Some(_)) => Judgment::Busy,
        (verdict, _) => verdict,
    };
    let open = verdict.is_open();
    if open && case.tries < most_tries(case.operation, case.stage) && case.row.is_some() {
        return Next::Retry;
    }
    match (verdict, case.operation) {
        // The row is locked again and again, as by many acquires in line at its stripe, each of whose packets locks the row. Who stands in
        // that line too has the row in its turn.
        (_, operation)
            if open && case.stage == Stage::Try && never_waits_for_its_row(operation) =>
        {
            Next::Go(Stage::Stripe { create: false })
        }
        (Judgment::Final(outcome), _) => Next::Answer(outcome),
        // Whoever waits for a lock asks again; it needs no connection for that.
        (_, Operation::Acquire(acquire)) if !acquire.queues => Next::Answer(Outcome::Busy),
        // Whoever releases is told that a transaction is in the way, and releases again.
        (_, Operation::Release(release)) if !release.queues => Next::Answer(Outcome::Busy),
        _ => Next::Go(Stage::Row),
    }
}

/// The row as it is some time after the packet, which was committed.
fn lost(case: Case<'_>) -> Next {
    match case.operation.judge(case.row) {
        Judgment::Final(outcome) => Next::Answer(outcome),
        Judgment::Missing => Next::Go(Stage::Create),
        Judgment::Busy => Next::Go(case.stage),
    }
}

#[cfg(test)]
mod tests;
