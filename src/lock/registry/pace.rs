//! How often a waiting client looks at the row: seldom while nothing changes for long, and one look after the
//! other in the moments in which the lock should become free, for whoever is next.

use std::time::Duration;

use crate::clock::Moment;
use crate::mutant::{self, Mutant};
use crate::timing::{LOOK, STAND_BY_AFTER};

/// A waiting client looks again after a sixteenth of the time for which nothing has changed, within
/// these bounds.
const FIRST: Duration = Duration::from_millis(1);
/// A lock that was held for longer the last time is not looked for without a pause: a sixteenth of its time
/// is what a timer can do.
const SHORT: Duration = Duration::from_millis(32);

/// What was seen of one lock, and when.
#[derive(Debug)]
pub(crate) struct Pace {
    /// When the row was first seen as it is.
    changed: Moment,
    held: bool,
    /// For how long others held it the last time.
    hold: Duration,
}

impl Pace {
    pub(crate) fn new(now: Moment) -> Self {
        Self {
            changed: now,
            held: false,
            hold: Duration::ZERO,
        }
    }

    /// We had the lock ourselves until now.
    pub(crate) fn own(&mut self, now: Moment) {
        self.changed = now;
        self.held = false;
    }

    /// Others hold it or do not, and the grant may be another than before.
    pub(crate) fn saw(&mut self, held: bool, moved: bool, now: Moment) {
        if self.held && (moved || !held) {
            self.hold = now.since(self.changed);
        }
        if moved {
            self.changed = now;
        }
        self.held = held;
    }

    /// Somebody holds it, and nothing has changed for long.
    pub(crate) fn is_long(&self, now: Moment) -> bool {
        self.held && now.since(self.changed) >= STAND_BY_AFTER
    }

    /// The pause before the next look.
    pub(crate) fn pause(&self, next_in_line: bool, now: Moment) -> Duration {
        if mutant::on(Mutant::NobodyGivesWay) {
            return LOOK;
        }
        let age = now.since(self.changed);
        let pause = (age / 16).clamp(FIRST, LOOK);
        if !self.held || !next_in_line || self.hold >= SHORT {
            return pause;
        }
        let (soon, late) = (self.hold * 3 / 4, self.hold * 3 / 2);
        if age < soon {
            pause.min(soon - age)
        } else if age < late {
            Duration::ZERO
        } else {
            pause
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: i64) -> Moment {
        Moment::from_micros(milliseconds * 1_000)
    }

    #[test]
    fn pauses_grow_with_the_time_for_which_nothing_changes() {
        let mut pace = Pace::new(at(0));
        pace.saw(true, true, at(0));
        assert_eq!(pace.pause(true, at(0)), FIRST);
        assert_eq!(pace.pause(true, at(160)), Duration::from_millis(10));
        assert_eq!(pace.pause(true, at(60_000)), LOOK);
    }

    #[test]
    fn who_is_next_looks_without_a_pause_when_the_end_is_near() {
        let mut pace = Pace::new(at(0));
        pace.saw(true, true, at(0));
        pace.saw(false, false, at(8));
        pace.saw(true, true, at(10));
        assert_eq!(pace.pause(true, at(11)), FIRST);
        assert_eq!(pace.pause(true, at(16)), Duration::ZERO);
        assert_eq!(pace.pause(false, at(16)), FIRST);
        assert_eq!(pace.pause(true, at(22)), FIRST, "it is held for longer");
        pace.own(at(30));
        assert_eq!(pace.pause(true, at(36)), FIRST);
    }

    #[test]
    fn a_long_hold_is_not_looked_for_without_a_pause() {
        let mut pace = Pace::new(at(0));
        pace.saw(true, true, at(0));
        pace.saw(false, false, at(100));
        pace.saw(true, true, at(101));
        assert!(pace.pause(true, at(195)) >= FIRST);
    }
}
