//! How far a request for several rows has come: decisions only.

use crate::sql::operation::Operation;
use crate::sql::packet::{RowOperation, StripeUse};
use crate::sql::row::RowKey;

/// So often a packet may pass over rows that are there and free before the request is refused: somebody is at them.
pub(super) const TRIES: u8 = 8;
/// So often it tries to get the stripes of rows that are missing before it waits for them.
pub(super) const TRIES_TO_CREATE: u8 = 3;

/// How far a request has come.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TogetherCourse {
    /// The positions of rows that are created, since they were missing.
    pub(super) missing: Vec<usize>,
    /// Nobody has looked yet whether they are missing, or locked.
    pub(super) guessed: bool,
    /// How often rows were passed over that are there and free.
    pub(super) passed_over: u8,
    /// How often rows were missing although the packet was to create them.
    pub(super) not_created: u8,
}

impl TogetherCourse {
    /// Takes in that a packet did not have these rows, and that nobody has looked. Whether the next one goes at once.
    pub(super) fn guess(&mut self, not_had: Vec<usize>) -> bool {
        self.guessed = !not_had.is_empty();
        self.missing = not_had;
        self.guessed
    }

    /// Takes in that a packet was in vain, and these rows were seen to be missing. False if it was the last one.
    pub(super) fn again(&mut self, missing: Vec<usize>) -> bool {
        if missing.is_empty() {
            self.passed_over += 1;
        } else {
            self.not_created = self.not_created.saturating_add(1);
        }
        self.missing = missing;
        self.passed_over < TRIES
    }

    /// Whether all rows are there, and one was passed over.
    pub(super) fn was_passed_over(&self) -> bool {
        self.passed_over > 0 && self.missing.is_empty()
    }

    /// How the next packet takes the stripe of a row.
    pub(super) fn stripes(&self, position: usize, every_stripe: bool) -> StripeUse {
        if every_stripe {
            StripeUse::Wait
        } else if !self.missing.contains(&position) {
            StripeUse::None
        } else if self.not_created < TRIES_TO_CREATE {
            StripeUse::Try
        } else {
            StripeUse::Wait
        }
    }

    pub(super) fn rows(
        &self,
        rows: &[(RowKey, Operation)],
        every_stripe: bool,
    ) -> Vec<RowOperation> {
        let row = |(position, (key, operation)): (usize, &(RowKey, Operation))| RowOperation {
            key: key.clone(),
            operation: operation.clone(),
            create: self.missing.contains(&position),
            stripes: self.stripes(position, every_stripe),
            group: 0,
        };
        rows.iter().enumerate().map(row).collect()
    }
}
