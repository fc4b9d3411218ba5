//! Whether names that this client has not used before are new on the server too: then their rows are created by the first packet, in
//! place of a second one. A lock for each order is always new; a lock for each customer is there already, as a rule.
//!
//! And whether other clients create rows all the time: then packets that pass over the stripes which others have create a few rows each,
//! and one that waits for its stripes creates them all. Clients that begin together create rows for a moment: they need no connection more.

use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, Ordering};
use std::time::Duration;

use crate::clock::Moment;
use crate::sql::row::RowKey;

/// How many names are known to be there; one takes the place of another.
const KNOWN: usize = 4_096;
/// One name moves the share by one part in so many of what is left.
const STEP: u16 = 8;
const HALF: u16 = 1 << 15;
/// One row moves the share of those that others are in the way of by one part in so many.
const STEP_OF_DENIED: u16 = 64;
/// Others are in the way of many, of 65,536: more than one crowded stripe of a hundred makes, or two; and fewer than there are once most
/// of the others stand in line.
const MANY: u16 = 1 << 13;
/// Others that have the stripes of many of the rows that this client creates, for so long, create rows all the time.
const ALL_THE_TIME: Duration = Duration::from_secs(1);
/// For so long that is believed: who stands in line does not see it.
const BELIEVED: Duration = Duration::from_secs(30);

/// What was seen of names.
pub(super) struct Fresh {
    /// The hashes of names whose rows are there.
    known: Box<[AtomicU32]>,
    /// How many of 65,536 names that this client had not used were new.
    share: AtomicU16,
    /// How many of 65,536 rows others were in the way of.
    denied: AtomicU16,
    /// Since when they have been in the way of many; when the last row was created; and until when it is believed that they always are:
    /// each a [`Moment`] in microseconds.
    denied_since: AtomicI64,
    created: AtomicI64,
    believed: AtomicI64,
}

impl Default for Fresh {
    fn default() -> Self {
        Self {
            known: (0..KNOWN).map(|_| AtomicU32::new(0)).collect(),
            share: AtomicU16::new(HALF),
            denied: AtomicU16::new(0),
            denied_since: AtomicI64::new(0),
            created: AtomicI64::new(0),
            believed: AtomicI64::new(0),
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
        self.share.load(Ordering::Relaxed) >= HALF
            && self.slot(hash).load(Ordering::Relaxed) != hash
    }

    /// A row was created that did not stand in line at first. `denied`: somebody else had its stripe before.
    pub(super) fn created(&self, denied: bool, now: Moment) {
        let last = self.created.swap(now.as_micros(), Ordering::Relaxed);
        if now.since(Moment::from_micros(last)) >= ALL_THE_TIME {
            // What was seen before says nothing any more.
            self.denied.store(0, Ordering::Relaxed);
        }
        if moved(&self.denied, denied, STEP_OF_DENIED) < MANY {
            self.denied_since.store(now.as_micros(), Ordering::Relaxed);
        }
        let since = Moment::from_micros(self.denied_since.load(Ordering::Relaxed));
        if now.since(since) >= ALL_THE_TIME {
            let until = now.after(BELIEVED).as_micros();
            self.believed.store(until, Ordering::Relaxed);
        }
    }

    /// Whether others create rows all the time.
    pub(super) fn others_create(&self, now: Moment) -> bool {
        now.as_micros() < self.believed.load(Ordering::Relaxed)
    }

    /// Its row was created, or was there.
    pub(super) fn saw(&self, key: &RowKey, new: bool) {
        let hash = hash(key);
        if self.slot(hash).swap(hash, Ordering::Relaxed) == hash {
            return;
        }
        moved(&self.share, new, STEP);
    }
}

/// Moves a share by one part in `step` of what is left towards what was seen. What it was.
fn moved(share: &AtomicU16, seen: bool, step: u16) -> u16 {
    let next = |share: u16| {
        Some(if seen {
            share + (u16::MAX - share) / step
        } else {
            share - share / step
        })
    };
    let moved = share.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    moved.unwrap_or_else(|share| share)
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

    /// In thousandths of the time after which others are believed to create rows all the time.
    fn at(begun: Moment, thousandths: u32) -> Moment {
        begun.after(ALL_THE_TIME * thousandths / 1_000)
    }

    #[test]
    fn others_that_are_in_the_way_all_the_time_are_believed_to_be_there_for_a_while() {
        let (fresh, begun) = (Fresh::default(), Moment::now());
        // Of a third of the rows, twice for a moment.
        for moment in (0..900).chain(3_000..3_900) {
            fresh.created(moment % 3 == 0, at(begun, moment));
            assert!(!fresh.others_create(at(begun, moment)));
        }
        (6_000..7_200).for_each(|moment| fresh.created(moment % 3 == 0, at(begun, moment)));
        let last = at(begun, 7_200);
        assert!(fresh.others_create(last));
        assert!(fresh.others_create(last.after(BELIEVED / 2)));
        // They have gone; and it does not create much.
        for moment in (40_000..50_000).step_by(200) {
            fresh.created(false, at(begun, moment));
            assert!(!fresh.others_create(at(begun, moment)));
        }
    }

    #[test]
    fn two_crowded_stripes_among_all_say_nothing() {
        let (fresh, begun) = (Fresh::default(), Moment::now());
        for moment in 0..20_000 {
            fresh.created(moment % 50 == 0, at(begun, moment));
            assert!(!fresh.others_create(at(begun, moment)));
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
