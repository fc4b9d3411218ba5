//! Counters as they stand in the table.

use chrono::{DateTime, Utc};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::inspect::time;

/// A counter as it stands in the table: see [`LockClient::list_counters`](crate::LockClient::list_counters). With the feature `serde` it can
/// be serialized: times as RFC 3339.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct CounterInfo {
    /// Its name.
    pub name: String,
    /// The value; 0 when its window has ended.
    pub value: i64,
    /// When its window ends, or ended, by the server's clock; `None` without a window.
    pub window_ends: Option<DateTime<Utc>>,
    /// When its row changed last, by the server's clock.
    pub modified: DateTime<Utc>,
}

impl CounterInfo {
    /// Reads a row of [`crate::sql::inspect::counters`].
    pub(crate) fn from_row(row: &MySqlRow) -> Result<Self, sqlx::Error> {
        let window_ends: Option<i64> = row.try_get_unchecked(2)?;
        Ok(Self {
            name: row.try_get_unchecked(0)?,
            value: row.try_get_unchecked(1)?,
            window_ends: window_ends.map(time),
            modified: time(row.try_get_unchecked(3)?),
        })
    }
}
