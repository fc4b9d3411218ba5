//! What a caller is told: what became of its operation, and when that was asked for.

use crate::clock::Moment;
pub(crate) use crate::sql::outcome::{Judgment, Outcome};

/// An outcome, and when the packet that brought it about was sent.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) outcome: Outcome,
    pub(crate) sent: Moment,
    /// The reply was lost, and the outcome was read from the row later: others may have changed it since.
    pub(crate) settled: bool,
}
