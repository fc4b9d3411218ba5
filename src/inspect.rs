//! What is held, by whom, and until when.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::clock::from_micros;
use crate::sql::reply::{ACTIVE, KEPT};

/// The state of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockState {
    /// Nobody holds it: it was released, or its lease has ended.
    Free,
    /// A lease is running.
    Held,
    /// It was released, but stays taken until its minimum hold ends.
    Kept,
}

/// A lock as it stands in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// Its name.
    pub name: String,
    /// Whether it is held.
    pub state: LockState,
    /// Who holds it, or held it last: `host/pid`, or what the client was built with.
    pub held_by: String,
    /// What it is, or was, held for.
    pub description: String,
    /// When the lease ends if it is not renewed, by the server's clock.
    pub deadline: DateTime<Utc>,
    /// How much of the lease is left; zero when it is free.
    pub remaining: Duration,
    /// The highest fencing token that may have been given out.
    pub fencing_token: u64,
    /// How many levels of one owner hold it.
    pub depth: u64,
    /// When the row changed last, by the server's clock.
    pub modified: DateTime<Utc>,
}

impl LockInfo {
    /// Reads a row of [`crate::sql::inspect`].
    pub(crate) fn from_row(row: &MySqlRow) -> Result<Self, sqlx::Error> {
        let status: u8 = row.try_get_unchecked(1)?;
        let count: i64 = row.try_get_unchecked(5)?;
        let deadline: i64 = row.try_get_unchecked(6)?;
        let modified: i64 = row.try_get_unchecked(7)?;
        let now: i64 = row.try_get_unchecked(8)?;
        let state = match status {
            ACTIVE if deadline > now => LockState::Held,
            KEPT if deadline > now => LockState::Kept,
            _ => LockState::Free,
        };
        let left = match state {
            LockState::Free => 0,
            LockState::Held | LockState::Kept => deadline - now,
        };
        Ok(Self {
            name: row.try_get_unchecked(0)?,
            state,
            held_by: row.try_get_unchecked(2)?,
            description: row.try_get_unchecked(3)?,
            deadline: time(deadline),
            remaining: from_micros(left),
            fencing_token: row.try_get_unchecked(4)?,
            depth: u64::try_from(count).unwrap_or_default(),
            modified: time(modified),
        })
    }

    /// Who holds it and what for, in one line.
    pub(crate) fn holder(&self) -> String {
        if self.description.is_empty() {
            self.held_by.clone()
        } else {
            format!("{} ({})", self.held_by, self.description)
        }
    }
}

fn time(micros: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(micros).unwrap_or_default()
}
