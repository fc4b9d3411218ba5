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
//! more, and never too few. A lease is told to run until the row's deadline, so that a level that dies may be counted for as long as
//! the longest lease of the others.

use super::until;
use crate::mutant::{self, Mutant};
use crate::sql::row::HELD;

/// The generation has ended.
fn ended() -> &'static str {
    if mutant::on(Mutant::DeadLevelLasts) {
        "FALSE"
    } else {
        "t.stale_until<={at}"
    }
}

/// The lease of the level lasts longer than the generation.
const IS_FRESH: &str = "v.until>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t.stale_until)";
/// A lease of `v.ttl` from now on would, or one until the row's deadline.
const REACHES: &str = "{micros}+v.ttl>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t.stale_until) \
                       OR t.deadline>t.stale_until";
/// It would last longer than the generation that begins now.
const EXTENDS: &str = "{micros}+v.ttl>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t.deadline)";

/// The lease of the level runs, and did when the row was changed last: so nobody has left it out, also not one whose time was
/// later than this, since he came sooner to the row or the server's clock was ahead.
pub(super) fn is_held() -> String {
    format!(
        "{HELD} AND t.deadline>{{at}} AND v.until>{{micros}} \
         AND v.until>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t.modify_time)"
    )
}

/// How many of the levels were fresh. A renewal that ran twice has counted twice.
const FRESH: &str = "LEAST(t.fresh_count,t.count)";

/// How many levels there are.
pub(super) fn count() -> String {
    let ended = ended();
    format!("IF({ended},{FRESH},t.count)")
}

/// How many of them are fresh.
pub(super) fn fresh() -> String {
    let ended = ended();
    format!("IF({ended},0,t.fresh_count)")
}

/// When the generation ends.
pub(super) fn stale_until() -> String {
    let ended = ended();
    format!("IF({ended},t.deadline,t.stale_until)")
}

/// The row's deadline with a lease of `v.ttl` more: it is never shortened.
pub(super) fn deadline() -> String {
    format!("GREATEST(t.deadline,{})", until("v.ttl"))
}

/// 1 if the lease of one more level is fresh.
pub(super) fn is_new_fresh() -> String {
    let ended = ended();
    format!("IF({ended},{EXTENDS},{REACHES})")
}

/// 1 if a renewal makes a stale level fresh.
pub(super) fn becomes_fresh() -> String {
    let ended = ended();
    format!("IF({ended},{EXTENDS},NOT ({IS_FRESH}) AND ({REACHES}))")
}

/// How many fresh levels are left when this one goes, whose lease runs.
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
        modified: i64,
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

        fn is_held(&self, at: i64, until: i64) -> bool {
            self.held && self.deadline > at && until > at && until > self.modified
        }

        /// Decided `at` a time that is past by now, as are those of the others. What the holder is told.
        fn acquire(&mut self, at: i64, now: i64, ttl: i64) -> i64 {
            self.modified = now;
            if !(self.held && self.deadline > at) {
                *self = Self {
                    held: true,
                    count: 1,
                    fresh_count: 1,
                    stale_until: at,
                    deadline: now + ttl,
                    modified: now,
                };
                return at + ttl;
            }
            let (count, fresh, end) = self.generation(at);
            let told = self.deadline.max(at + ttl);
            self.count = count + 1;
            self.fresh_count = fresh + i64::from(told > end);
            self.stale_until = end;
            self.deadline = self.deadline.max(now + ttl);
            told
        }

        fn renew(&mut self, at: i64, now: i64, ttl: i64, until: i64) -> Option<i64> {
            if !self.is_held(at, until) {
                return None;
            }
            let (count, fresh, end) = self.generation(at);
            let told = self.deadline.max(at + ttl);
            let becomes_fresh = (self.ended(at) || until <= end) && told > end;
            self.count = count;
            self.fresh_count = fresh + i64::from(becomes_fresh);
            self.stale_until = end;
            self.deadline = self.deadline.max(now + ttl);
            self.modified = now;
            Some(told)
        }

        fn release(&mut self, at: i64, now: i64, until: i64) -> bool {
            if !self.is_held(at, until) {
                return false;
            }
            self.modified = now;
            let (count, ..) = self.generation(at);
            let fresh = self.fresh_count.min(self.count) - i64::from(until > self.stale_until);
            if count > 1 {
                if fresh <= 0 {
                    self.deadline = self.stale_until;
                }
            } else {
                self.held = false;
                self.deadline = now;
            }
            self.fresh_count = fresh.min(self.count - 1);
            self.count -= 1;
            true
        }
    }

    /// By less than this a decision is older than what it finds.
    const LATE: i64 = 3;

    /// The lease of a level: until when it runs as its holder was told, and as it was told before.
    #[derive(Clone, Copy, Debug)]
    struct Level {
        until: i64,
        before: i64,
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Acquire(i64),
        /// Which level; whether its holder hears the answer, and says what it was told last, or before.
        Renew(usize, i64, bool, bool),
        Release(usize),
        Dies(usize),
    }

    fn step() -> impl Strategy<Value = (i64, i64, Step)> {
        let (which, ttl) = (0..6_usize, 1..8_i64);
        let step = prop_oneof![
            ttl.clone().prop_map(Step::Acquire),
            (which.clone(), ttl, prop::bool::weighted(0.8), any::<bool>())
                .prop_map(|(which, ttl, heard, last)| Step::Renew(which, ttl, heard, last)),
            which.clone().prop_map(Step::Release),
            which.prop_map(Step::Dies),
        ];
        (0..4_i64, 0..LATE, step)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// No level is left out while its lease runs, and none that died is counted for long.
        #[test]
        fn levels_are_counted_while_their_leases_run(steps in prop::collection::vec(step(), 1..40)) {
            let (mut row, mut now) = (Row::default(), 100);
            let mut levels: Vec<Level> = Vec::new();
            for (pause, late, step) in steps {
                now += pause;
                let at = now - late;
                let of = |which: usize| which.checked_rem(levels.len());
                match step {
                    Step::Acquire(ttl) => {
                        let until = row.acquire(at, now, ttl);
                        levels.push(Level { until, before: until });
                    }
                    Step::Renew(which, ttl, heard, last) => {
                        if let Some(which) = of(which) {
                            let level = &mut levels[which];
                            let said = if last { level.until } else { level.before };
                            let told = row.renew(at, now, ttl, said);
                            prop_assert!(told.is_some() || said <= now, "a lease that runs is renewed");
                            if let Some(told) = told.filter(|_| heard) {
                                *level = Level { until: level.until.max(told), before: level.until };
                            }
                        }
                    }
                    Step::Release(which) => {
                        if let Some(which) = of(which) {
                            let until = levels.swap_remove(which).until;
                            prop_assert!(row.release(at, now, until) || until <= now);
                        }
                    }
                    Step::Dies(which) => {
                        if let Some(which) = of(which) {
                            levels.swap_remove(which);
                        }
                    }
                }
                // What was sent in time may come to the row when the lease has ended.
                levels.retain(|level| level.until > now - LATE);
                let running = levels.iter().filter(|level| level.until > now);
                let run = i64::try_from(running.clone().count()).expect("few");
                let (count, ..) = row.generation(now);
                prop_assert!(run == 0 || row.held && row.deadline > now, "{row:?} {levels:?}");
                prop_assert!(run <= count, "{row:?} {levels:?}");
                let fresh = running.filter(|level| level.until > row.stale_until).count();
                prop_assert!(row.fresh_count >= i64::try_from(fresh).expect("few"), "{row:?} {levels:?}");
            }
            // Those that run are renewed at the end of each of two generations.
            for ttl in [10, 20, 10, 20] {
                now = (row.stale_until - i64::from(ttl == 10)).max(now);
                levels.retain(|level| level.until > now);
                for level in &mut levels {
                    level.until = row.renew(now, now, ttl, level.until).expect("it runs");
                }
            }
            let run = i64::try_from(levels.len()).expect("few");
            if run > 0 {
                prop_assert_eq!(row.generation(now).0, run);
            }
        }
    }
}
