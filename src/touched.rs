//! Which rows this client has lately made sure of.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Moment;
use crate::sql::row::RowKey;

/// A row that was touched this recently is there: a purge leaves rows alone that were changed within
/// an hour ([`crate::purge`]).
const FRESH: Duration = Duration::from_secs(30 * 60);
/// A row that was changed this recently needs no touch: it is younger than an hour for as long as it is fresh.
pub(crate) const YOUNG: Duration = Duration::from_secs(15 * 60);
/// More are forgotten, all at once: it costs a round trip each to learn again.
const MOST: usize = 16_384;

/// Rows and when they were touched.
#[derive(Default)]
pub(crate) struct Touched(Mutex<HashMap<RowKey, Moment>>);

impl Touched {
    pub(crate) fn is_fresh(&self, key: &RowKey) -> bool {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.get(key)
            .is_some_and(|touched| Moment::now().since(*touched) < FRESH)
    }

    /// The row was seen to be missing: somebody deleted it, or a failover lost it.
    pub(crate) fn forget(&self, key: &RowKey) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.remove(key);
    }

    pub(crate) fn note(&self, key: &RowKey) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if rows.len() >= MOST {
            rows.clear();
        }
        rows.insert(key.clone(), Moment::now());
    }
}
