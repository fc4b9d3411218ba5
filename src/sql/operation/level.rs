//! The levels of a lock that one owner holds several times, and those of them whose process has died.
//!
//! All levels share one row, and each has a lease of its own: until when, its holder was told by the server (`v.until`). One that
//! is not renewed must end by itself, although others renew the row. So the row counts in generations:
//!
//! - `count`: all levels;
//! - `stale_until`: when the generation ends;
//! - `fresh_count`: the levels whose leases end later than that. The leases of all others, the stale ones, end by then.
//!
//! When the generation has ended, its stale levels are dead: the next acquire or renewal leaves them out, and begins a generation
//! that ends with the row's deadline, by which every lease ends. So all levels are stale at first, and each becomes fresh with its
//! next renewal. If a release leaves stale levels only, the row's deadline becomes the end of the generation.
//!
//! What keeps a level from being left out while its lease runs: `count` is never below the number of levels whose leases run, nor
//! `fresh_count` below the number of those that were told of a time behind `stale_until`. Each operation keeps both, also when it
//! was told less than the row says, as after a renewal without an answer, or with two at once: then a dead level may count for one generation
//! more, and never too few.

use super::until;
use crate::sql::row::HELD;

/// The generation has ended.
const ENDED: &str = "t.stale_until<={at}";
/// The lease of the level lasts longer than the generation.
const IS_FRESH: &str = "v.until>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t.stale_until)";
/// A lease of `v.ttl` from now on would, or one until the row's deadline.
const REACHES: &str = "{micros}+v.ttl>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t.stale_until) \
                       OR t.deadline>t.stale_until";
/// It would last longer than the generation that begins now.
const EXTENDS: &str = "{micros}+v.ttl>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t.deadline)";

/// The level is counted, and its lease runs.
pub(super) fn is_held() -> String {
    format!("{HELD} AND t.deadline>{{at}} AND v.until>{{micros}}")
}

/// How many of the levels were fresh. A renewal that ran twice has counted twice.
const FRESH: &str = "LEAST(t.fresh_count,t.count)";

/// How many levels there are.
pub(super) fn count() -> String {
    format!("IF({ENDED},{FRESH},t.count)")
}

/// How many of them are fresh.
pub(super) fn fresh() -> String {
    format!("IF({ENDED},0,t.fresh_count)")
}

/// When the generation ends.
pub(super) fn stale_until() -> String {
    format!("IF({ENDED},t.deadline,t.stale_until)")
}

/// The row's deadline with a lease of `v.ttl` more: it is never shortened.
pub(super) fn deadline() -> String {
    format!("GREATEST(t.deadline,{})", until("v.ttl"))
}

/// 1 if the lease of one more level is fresh.
pub(super) fn is_new_fresh() -> String {
    format!("IF({ENDED},{EXTENDS},{REACHES})")
}

/// 1 if a renewal makes a stale level fresh.
pub(super) fn becomes_fresh() -> String {
    format!("IF({ENDED},{EXTENDS},NOT ({IS_FRESH}) AND ({REACHES}))")
}

/// How many fresh levels there are without this one, of which the lease runs.
pub(super) fn fresh_without_it() -> String {
    format!("{FRESH}-({IS_FRESH})")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    /// The row, as the assignments leave it.
    #[derive(Clone, Debug, Default)]
    struct Row {
        held: bool,
        count: i64,
        fresh_count: i64,
        stale_until: i64,
        deadline: i64,
    }

    impl Row {
        fn ended(&self, at: i64) -> bool {
            self.stale_until <= at
        }

        /// The count, the fresh ones and the end of the generation.
        fn generation(&self, at: i64) -> (i64, i64, i64) {
            if self.ended(at) {
                (self.fresh_count.min(self.count), 0, self.deadline)
            } else {
                (self.count, self.fresh_count, self.stale_until)
            }
        }

        /// What the holder is told.
        fn acquire(&mut self, at: i64, ttl: i64) -> i64 {
            if !(self.held && self.deadline > at) {
                *self = Self {
                    held: true,
                    count: 1,
                    fresh_count: 1,
                    stale_until: at,
                    deadline: at + ttl,
                };
                return at + ttl;
            }
            let (count, fresh, end) = self.generation(at);
            let told = self.deadline.max(at + ttl);
            self.count = count + 1;
            self.fresh_count = fresh + i64::from(told > end);
            self.stale_until = end;
            self.deadline = told;
            told
        }

        fn renew(&mut self, at: i64, ttl: i64, until: i64) -> Option<i64> {
            if !(self.held && self.deadline > at && until > at) {
                return None;
            }
            let (count, fresh, end) = self.generation(at);
            let told = self.deadline.max(at + ttl);
            let becomes_fresh = (self.ended(at) || until <= end) && told > end;
            self.count = count;
            self.fresh_count = fresh + i64::from(becomes_fresh);
            self.stale_until = end;
            self.deadline = told;
            Some(told)
        }

        fn release(&mut self, at: i64, until: i64) -> bool {
            if !(self.held && self.deadline > at && until > at) {
                return false;
            }
            let (count, ..) = self.generation(at);
            let fresh = self.fresh_count.min(self.count) - i64::from(until > self.stale_until);
            if count > 1 {
                if fresh <= 0 {
                    self.deadline = self.stale_until;
                }
            } else {
                self.held = false;
                self.deadline = at;
            }
            self.fresh_count = fresh.min(self.count - 1);
            self.count -= 1;
            true
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Acquire(i64),
        /// Which level; whether its holder hears the answer.
        Renew(usize, i64, bool),
        Release(usize),
        Dies(usize),
    }

    fn step() -> impl Strategy<Value = (i64, Step)> {
        let (which, ttl) = (0..6_usize, 1..8_i64);
        let step = prop_oneof![
            ttl.clone().prop_map(Step::Acquire),
            (which.clone(), ttl, prop::bool::weighted(0.8))
                .prop_map(|(which, ttl, heard)| Step::Renew(which, ttl, heard)),
            which.clone().prop_map(Step::Release),
            which.prop_map(Step::Dies),
        ];
        (0..4_i64, step)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// No level is left out while its lease runs, and none that died is counted for long.
        #[test]
        fn levels_are_counted_while_their_leases_run(steps in prop::collection::vec(step(), 1..40)) {
            let (mut row, mut at) = (Row::default(), 100);
            // Until when their leases run, as their holders were told.
            let mut levels: Vec<i64> = Vec::new();
            let mut unheard = false;
            for (pause, step) in steps {
                at += pause;
                levels.retain(|until| *until > at);
                let of = |which: usize| which.checked_rem(levels.len());
                match step {
                    Step::Acquire(ttl) => levels.push(row.acquire(at, ttl)),
                    Step::Renew(which, ttl, heard) => {
                        if let Some(which) = of(which) {
                            let told = row.renew(at, ttl, levels[which]);
                            prop_assert!(told.is_some(), "a lease that runs is renewed");
                            if heard {
                                levels[which] = told.unwrap_or_default();
                            } else {
                                unheard = true;
                            }
                        }
                    }
                    Step::Release(which) => {
                        if let Some(which) = of(which) {
                            prop_assert!(row.release(at, levels.swap_remove(which)));
                        }
                    }
                    Step::Dies(which) => {
                        if let Some(which) = of(which) {
                            levels.swap_remove(which);
                        }
                    }
                }
                let run = i64::try_from(levels.len()).expect("few");
                let (count, ..) = row.generation(at);
                prop_assert!(run == 0 || row.held && row.deadline > at, "{row:?} {levels:?}");
                prop_assert!(run <= count, "{row:?} {levels:?}");
                let told = levels.iter().filter(|until| **until > row.stale_until).count();
                prop_assert!(row.fresh_count >= i64::try_from(told).expect("few"), "{row:?} {levels:?}");
            }
            // Those that run renew twice in turn, until they are asked for behind two generations.
            for _ in 0..if unheard { 4 } else { 2 } {
                at = row.deadline.max(at).max(row.stale_until) - 1;
                levels.retain(|until| *until > at);
                for until in &mut levels {
                    *until = row.renew(at, 10, *until).expect("it runs");
                }
                at = row.stale_until.max(at);
                levels.retain(|until| *until > at);
                for until in &mut levels {
                    *until = row.renew(at, 20, *until).expect("it runs");
                }
            }
            let run = i64::try_from(levels.len()).expect("few");
            if run > 0 {
                prop_assert_eq!(row.generation(at).0, run);
            }
        }
    }
}
