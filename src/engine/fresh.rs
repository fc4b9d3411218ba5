//! Whether names that this client has not used before are new on the server too: then their rows are created by the first packet, in
//! place of a second one. A lock for each order is always new; a lock for each customer is there already, as a rule.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::sql::row::RowKey;

/// How many names are known to be there; one takes the place of another.
const KNOWN: usize = 4_096;
/// One name moves the share by one part in so many of what is left.
const STEP: u8 = 8;

/// What was seen of names.
pub(super) struct Fresh {
    /// The hashes of names whose rows are there.
    known: Box<[AtomicU32]>,
    /// How many of 256 names that this client had not used were new.
    share: AtomicU8,
}

impl Default for Fresh {
    fn default() -> Self {
        Self {
            known: (0..KNOWN).map(|_| AtomicU32::new(0)).collect(),
            share: AtomicU8::new(128),
        }
    }
}

fn hash(key: &RowKey) -> u32 {
    // Another one than that of the stripe, of which there are few; and never that of no name.
    let name = crc32fast::hash(key.name.as_str().as_bytes());
    name.wrapping_add(key.kind as u32).max(1)
}

impl Fresh {
    fn slot(&self, hash: u32) -> &AtomicU32 {
        // A remainder is within the bounds.
        &self.known[hash as usize % KNOWN]
    }

    /// Whether its row is missing, most likely.
    pub(super) fn is_likely(&self, key: &RowKey) -> bool {
        let hash = hash(key);
        self.share.load(Ordering::Relaxed) >= 128 && self.slot(hash).load(Ordering::Relaxed) != hash
    }

    /// Its row was created, or was there.
    pub(super) fn saw(&self, key: &RowKey, new: bool) {
        let hash = hash(key);
        if self.slot(hash).swap(hash, Ordering::Relaxed) == hash {
            return;
        }
        let next = |share: u8| {
            Some(if new {
                share + (u8::MAX - share) / STEP
            } else {
                share - share / STEP
            })
        };
        let _ = self
            .share
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;

    fn key(number: u32) -> RowKey {
        RowKey::lock(Name::new(&format!("order:{number}")).expect("a name"))
    }

    #[test]
    fn a_client_that_meets_new_names_takes_the_next_one_for_new() {
        let fresh = Fresh::default();
        let mut tried = 0;
        for number in 0..1_000 {
            tried += u32::from(!fresh.is_likely(&key(number)));
            fresh.saw(&key(number), true);
        }
        assert!(tried < 10, "{tried}");
        assert!(!fresh.is_likely(&key(999)), "it is there by now");
    }

    #[test]
    fn names_that_are_there_are_not_taken_for_new() {
        let fresh = Fresh::default();
        for number in 0..100 {
            fresh.saw(&key(number), true);
        }
        // The same process goes on with names that others have made.
        let taken = (100..1_100).filter(|number| {
            let likely = fresh.is_likely(&key(*number));
            fresh.saw(&key(*number), false);
            likely
        });
        assert!(taken.count() < 10);
        // One new name among many says nothing.
        for number in 2_000..3_000 {
            assert!(!fresh.is_likely(&key(number)));
            fresh.saw(&key(number), number % 4 == 0);
        }
    }

    #[test]
    fn a_name_that_is_used_again_and_again_counts_once() {
        let fresh = Fresh::default();
        for number in 0..100 {
            fresh.saw(&key(number), true);
        }
        for _ in 0..1_000 {
            fresh.saw(&key(7), false);
        }
        assert!(fresh.is_likely(&key(5_000)));
    }
}
