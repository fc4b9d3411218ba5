//! Bounded additions that were refused: at some instant of theirs there may have been no room.

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

    fn until(&self, instant: u64) -> i128 {
        let count = self.0.partition_point(|(at, _)| *at <= instant);
        count.checked_sub(1).map_or(0, |last| self.0[last].1)
    }
}

pub(super) fn check(additions: &[Addition<'_>], findings: &mut Findings) {
    let refused = |one: &&Addition<'_>| one.outcome == Outcome::Refused;
    if !additions.iter().any(|one| refused(&one)) {
        return;
    }
    // What has happened for certain by an instant, and what may have.
    let possible = || {
        additions
            .iter()
            .filter(|one| one.outcome == Outcome::Done || one.is_ambiguous())
    };
    let certain = || possible().filter(|one| !one.is_ambiguous());
    let raised = Running::of(
        certain()
            .filter(|one| one.delta > 0)
            .map(|one| (one.returned, one.delta)),
    );
    let lowered = Running::of(
        certain()
            .filter(|one| one.delta < 0)
            .map(|one| (one.returned, one.delta)),
    );
    let may_raise = Running::of(
        possible()
            .filter(|one| one.delta > 0)
            .map(|one| (one.invoked, one.delta)),
    );
    let may_lower = Running::of(
        possible()
            .filter(|one| one.delta < 0)
            .map(|one| (one.invoked, one.delta)),
    );
    let mut count = 0;
    for addition in additions.iter().filter(refused) {
        count += 1;
        let delta = i128::from(addition.delta);
        let low = i128::from(addition.low.unwrap_or(i64::MIN));
        let high = i128::from(addition.high.unwrap_or(i64::MAX));
        let (least, greatest) = match addition.value {
            Some(value) => (i128::from(value), i128::from(value)),
            None => (
                raised.until(addition.invoked) + may_lower.until(addition.returned),
                lowered.until(addition.invoked) + may_raise.until(addition.returned),
            ),
        };
        if least + delta >= low && greatest + delta <= high {
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
    }
    findings.checked("refused additions", count);
}
