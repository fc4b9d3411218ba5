//! Whether names that this client has not used before are new on the server too: then their rows are created by the first packet, in
//! place of a second one. A lock for each order is always new; a lock for each customer is there already, as a rule.
//!
//! And whether other clients create rows all the time: then packets that pass over the stripes which others have create a few rows each,
//! and one that waits for its stripes creates them all. Clients that begin together create rows for a moment: they need no connection more.

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use crate::clock::Moment;
use crate::sql::row::RowKey;

/// How many names are known to be there; one takes the place of another.
const KNOWN: usize = 4_096;
/// One name moves the share by one part in so many of what is left.
const STEP: u8 = 8;
/// Others that were in the way for so long create rows all the time; they were in the way as long as it happened again within that time.
const ALL_THE_TIME: Duration = Duration::from_secs(1);
/// For so long that is believed: who stands in line does not see it.
const BELIEVED: Duration = Duration::from_secs(30);

/// What was seen of names.
pub(super) struct Fresh {
    /// The hashes of names whose rows are there.
    known: Box<[AtomicU32]>,
    /// How many of 256 names that this client had not used were new.
    share: AtomicU8,
    /// Since when others have been in the way, when they last were, and until when it is believed that they always are: each a [`Moment`] in
    /// microseconds.
    met_since: AtomicI64,
    met_last: AtomicI64,
    met_until: AtomicI64,
}

impl Default for Fresh {
    fn default() -> Self {
        Self {
            known: (0..KNOWN).map(|_| AtomicU32::new(0)).collect(),
            share: AtomicU8::new(128),
            met_since: AtomicI64::new(0),
            met_last: AtomicI64::new(0),
            met_until: AtomicI64::new(0),
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

    /// Somebody else had the stripe of a row that was created a moment later.
    pub(super) fn met_others(&self, now: Moment) {
        let at = |moment: &AtomicI64| Moment::from_micros(moment.load(Ordering::Relaxed));
        let set = |moment: &AtomicI64, to: Moment| moment.store(to.as_micros(), Ordering::Relaxed);
        if now.since(at(&self.met_last)) >= ALL_THE_TIME {
            set(&self.met_since, now);
        }
        set(&self.met_last, now);
        if now.since(at(&self.met_since)) >= ALL_THE_TIME {
            set(&self.met_until, now.after(BELIEVED));
        }
    }

    /// Whether others create rows all the time.
    pub(super) fn others_create(&self, now: Moment) -> bool {
        now.as_micros() < self.met_until.load(Ordering::Relaxed)
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
    fn others_that_are_in_the_way_all_the_time_are_believed_to_be_there_for_a_while() {
        let (fresh, begun) = (Fresh::default(), Moment::now());
        let at = |tenths: u32| begun.after(ALL_THE_TIME * tenths / 10);
        // Twice for a moment.
        for moment in [0, 3, 9, 30, 35] {
            fresh.met_others(at(moment));
            assert!(!fresh.others_create(at(moment)));
        }
        for moment in [50, 55, 60] {
            fresh.met_others(at(moment));
        }
        assert!(fresh.others_create(at(60)));
        assert!(fresh.others_create(at(60).after(BELIEVED / 2)));
        assert!(!fresh.others_create(at(60).after(BELIEVED)));
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
