//! The values that additions returned.
//!
//! Where all deltas have one sign, each acknowledged addition takes a stretch of the number line, from the value before it
//! to the value after it: stretches do not overlap, a gap is what ambiguous additions took, and stretches rise with
//! real time. Otherwise each is a step between two values, and all steps together are one walk from 0 to the last
//! value: every value is left as often as it is reached. A read is an addition of 0: it takes nothing, and has its place in
//! real time.

use std::collections::HashMap;

use super::super::finding::{Findings, Kind};
use super::super::index::Addition;
use super::super::subset::Sums;
use super::acknowledged;
use crate::history::Record;

/// An acknowledged addition; where all deltas are negative, both are turned round.
struct Step<'h> {
    before: i128,
    after: i128,
    invoked: u64,
    returned: u64,
    record: Option<&'h Record>,
}

pub(super) fn check(additions: &[Addition<'_>], last: Option<i64>, findings: &mut Findings) {
    let changing = || additions.iter().filter(|one| one.delta != 0);
    let happened = || changing().filter(|one| one.is_ambiguous() || acknowledged(one).is_some());
    let rises = happened().any(|one| one.delta > 0);
    let falls = happened().any(|one| one.delta < 0);
    let sign: i128 = if falls && !rises { -1 } else { 1 };
    let mut steps: Vec<Step<'_>> = additions
        .iter()
        .filter_map(|one| {
            let after = i128::from(acknowledged(one)?);
            Some(Step {
                before: sign * (after - i128::from(one.delta)),
                after: sign * after,
                invoked: one.invoked,
                returned: one.returned,
                record: one.record,
            })
        })
        .collect();
    let ambiguous: Vec<&Addition<'_>> = happened().filter(|one| one.is_ambiguous()).collect();
    let last = last.map(|last| sign * i128::from(last));
    if rises && falls {
        walk(&steps, ambiguous.len(), last, findings);
    } else {
        order(&steps, findings);
        steps.retain(|step| step.before != step.after);
        steps.sort_by_key(|step| step.after);
        stretches(&steps, &ambiguous, last, findings);
    }
}

/// A stretch that no acknowledged addition took, and the instant by which somebody had.
struct Gap {
    from: i128,
    size: i128,
    by: u64,
}

fn stretches(
    steps: &[Step<'_>],
    ambiguous: &[&Addition<'_>],
    last: Option<i128>,
    findings: &mut Findings,
) {
    let mut gaps = Vec::new();
    let mut reached = 0;
    let mut before: Option<&Step<'_>> = None;
    for step in steps {
        if step.before < reached {
            findings.add(
                Kind::WrongValue,
                |at| {
                    format!(
                        "the additions that returned at {} and {} both took the value {}",
                        at.at(before.map_or(0, |before| before.returned)),
                        at.at(step.returned),
                        (step.before + 1).max(before.map_or(0, |before| before.before + 1)),
                    )
                },
                [before.and_then(|before| before.record), step.record]
                    .into_iter()
                    .flatten(),
            );
        } else if step.before > reached {
            gaps.push(Gap {
                from: reached,
                size: step.before - reached,
                by: 0,
            });
        }
        if step.after > reached {
            reached = step.after;
            before = Some(step);
        }
    }
    if let Some(last) = last.filter(|last| *last > reached) {
        gaps.push(Gap {
            from: reached,
            size: last - reached,
            by: u64::MAX,
        });
    }
    // A value was taken before any greater one was returned.
    let mut by = u64::MAX;
    let mut later = steps.iter().rev().peekable();
    for gap in gaps.iter_mut().rev() {
        while let Some(step) = later.next_if(|step| step.after > gap.from) {
            by = by.min(step.returned);
        }
        gap.by = by;
    }
    fill(gaps, ambiguous, findings);
}

/// Each gap is filled by ambiguous additions that had begun by then.
fn fill(mut gaps: Vec<Gap>, ambiguous: &[&Addition<'_>], findings: &mut Findings) {
    let size = |one: &Addition<'_>| i128::from(one.delta).abs();
    let unfilled = |gap: &Gap, findings: &mut Findings| {
        findings.add(
            Kind::WrongValue,
            |_| {
                format!(
                    "the {} values behind {} were never returned, and no ambiguous additions explain that",
                    gap.size, gap.from
                )
            },
            None,
        );
    };
    let mut begun: Vec<u64> = ambiguous.iter().map(|one| one.invoked).collect();
    begun.sort_unstable();
    let unit = ambiguous.first().map_or(0, |one| size(one));
    if unit == 0 || ambiguous.iter().any(|one| size(one) != unit) {
        let sums = Sums::of(ambiguous.iter().map(|one| one.delta.saturating_abs()));
        for gap in gaps.iter().filter(|gap| !sums.may_be(gap.size)) {
            unfilled(gap, findings);
        }
        return;
    }
    // All of one size: the gaps that had to be filled first take those that began first.
    gaps.sort_by_key(|gap| gap.by);
    let mut needed = 0;
    for gap in &gaps {
        needed += gap.size / unit;
        let had = begun.partition_point(|begun| *begun < gap.by);
        let enough = i128::try_from(had).unwrap_or(i128::MAX) >= needed;
        if gap.size % unit != 0 || !enough {
            unfilled(gap, findings);
            return;
        }
    }
}

/// An addition, or a read, sees those that had returned before it was invoked.
fn order(steps: &[Step<'_>], findings: &mut Findings) {
    let mut by_call: Vec<&Step<'_>> = steps.iter().collect();
    by_call.sort_by_key(|step| step.invoked);
    let mut by_return: Vec<&Step<'_>> = by_call.clone();
    by_return.sort_by_key(|step| step.returned);
    let mut returned = by_return.into_iter().peekable();
    let mut greatest: Option<&Step<'_>> = None;
    for step in by_call {
        while let Some(before) = returned.next_if(|before| before.returned < step.invoked) {
            if greatest.is_none_or(|greatest| greatest.after < before.after) {
                greatest = Some(before);
            }
        }
        if let Some(earlier) = greatest
            && earlier.after > step.before
        {
            findings.add(
                Kind::ValueOutOfOrder,
                |at| {
                    format!(
                        "the addition from {} to {} was invoked at {}, after {} had been returned at {}",
                        step.before,
                        step.after,
                        at.at(step.invoked),
                        earlier.after,
                        at.at(earlier.returned),
                    )
                },
                [earlier.record, step.record].into_iter().flatten(),
            );
        }
    }
}

/// Every value is left as often as it is reached, but for the first and the last; each ambiguous addition may make
/// up for one difference.
fn walk(steps: &[Step<'_>], ambiguous: usize, last: Option<i128>, findings: &mut Findings) {
    let mut left: HashMap<i128, i64> = HashMap::new();
    for step in steps {
        *left.entry(step.before).or_default() += 1;
        *left.entry(step.after).or_default() -= 1;
    }
    *left.entry(0).or_default() -= 1;
    if let Some(last) = last {
        *left.entry(last).or_default() += 1;
    }
    let mut extra: Vec<(i128, i64)> = left.into_iter().filter(|(_, count)| *count > 0).collect();
    let missing: i64 = extra.iter().map(|(_, count)| count).sum();
    let free = i64::try_from(ambiguous).unwrap_or(i64::MAX);
    if missing > free {
        extra.sort_unstable();
        findings.add(
            Kind::WrongValue,
            |_| {
                let values: Vec<String> = extra
                    .iter()
                    .take(5)
                    .map(|(value, count)| format!("{value} ({count} times)"))
                    .collect();
                format!(
                    "additions began {missing} times more often at a value than it was reached, and {free} are ambiguous; for instance at {}",
                    values.join(", ")
                )
            },
            None,
        );
    }
}
