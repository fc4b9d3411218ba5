//! Between which limits a counter's value must have been while an addition was under way: what had returned before
//! has happened, what was invoked by then may have. So an addition that was refused had no room at some instant, and one
//! that was acknowledged has a value within the limits.

use super::super::finding::{Findings, Kind};
use super::super::index::Addition;
use super::range;
use crate::history::Outcome;

/// The running sum of deltas by an instant of their additions.
struct Running(Vec<(u64, i128)>);

impl Running {
    fn of(deltas: impl Iterator<Item = (u64, i64)>) -> Self {
        let mut sums: Vec<(u64, i128)> = deltas
            .map(|(instant, delta)| (instant, i128::from(delta)))
            .collect();
        sums.sort_unstable();
        let mut sum = 0;
        for (_, delta) in &mut sums {
            sum += *delta;
            *delta = sum;
        }
        Self(sums)
    }

    fn before(&self, instant: u64) -> i128 {
        self.first(self.0.partition_point(|(at, _)| *at < instant))
    }

    fn until(&self, instant: u64) -> i128 {
        self.first(self.0.partition_point(|(at, _)| *at <= instant))
    }

    fn first(&self, count: usize) -> i128 {
        count.checked_sub(1).map_or(0, |last| self.0[last].1)
    }
}

/// What may have happened, by the instants that tell.
struct Limits {
    raised: Running,
    lowered: Running,
    may_raise: Running,
    may_lower: Running,
}

impl Limits {
    fn of(additions: &[Addition<'_>]) -> Self {
        let possible = || {
            let possible = |one: &&Addition<'_>| one.outcome == Outcome::Done || one.is_ambiguous();
            additions.iter().filter(possible)
        };
        let ended = |sign: i64| {
            let certain = possible().filter(|one| !one.is_ambiguous());
            let these = certain.filter(move |one| one.delta.signum() == sign);
            Running::of(these.map(|one| (one.returned, one.delta)))
        };
        let begun = |sign: i64| {
            let these = possible().filter(move |one| one.delta.signum() == sign);
            Running::of(these.map(|one| (one.invoked, one.delta)))
        };
        Self {
            raised: ended(1),
            lowered: ended(-1),
            may_raise: begun(1),
            may_lower: begun(-1),
        }
    }

    /// The least and the greatest value at any instant of an addition, its own change included.
    fn during(&self, addition: &Addition<'_>) -> (i128, i128) {
        let (from, to) = (addition.invoked, addition.returned);
        (
            self.raised.before(from) + self.may_lower.until(to),
            self.lowered.before(from) + self.may_raise.until(to),
        )
    }
}

pub(super) fn check(additions: &[Addition<'_>], findings: &mut Findings) {
    let limits = Limits::of(additions);
    let mut refused = 0;
    for addition in additions {
        let (least, greatest) = limits.during(addition);
        match (addition.outcome, addition.value.map(i128::from)) {
            (Outcome::Refused, seen) => {
                refused += 1;
                let (least, greatest) = seen.map_or((least, greatest), |seen| (seen, seen));
                refusal(addition, (least, greatest), findings);
            }
            (Outcome::Done, Some(value)) if value < least || value > greatest => {
                findings.add(
                    Kind::ValueOutOfOrder,
                    |at| {
                        format!(
                            "an addition of {} was acknowledged with {value} at {}, when the value was between {least} and {greatest}",
                            addition.delta,
                            at.at(addition.returned),
                        )
                    },
                    addition.record,
                );
            }
            _ => {}
        }
    }
    findings.checked("refused additions", refused);
}

fn refusal(addition: &Addition<'_>, (least, greatest): (i128, i128), findings: &mut Findings) {
    let delta = i128::from(addition.delta);
    let low = i128::from(addition.low.unwrap_or(i64::MIN));
    let high = i128::from(addition.high.unwrap_or(i64::MAX));
    if least + delta < low || greatest + delta > high {
        return;
    }
    findings.add(
        Kind::RefusedWithRoom,
        |at| {
            format!(
                "an addition of {} within {} was refused at {}, when the value was between {least} and {greatest}",
                addition.delta,
                range(addition),
                at.at(addition.returned),
            )
        },
        addition.record,
    );
}
