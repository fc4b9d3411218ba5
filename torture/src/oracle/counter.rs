//! Counters: every acknowledged addition is there once, every ambiguous one at most once, and the values that were
//! returned are those of one order. Counters begin at 0.

mod limits;
mod values;

use std::sync::Arc;

use super::Context;
use super::finding::{Findings, Kind};
use super::index::{Addition, History};
use super::subset::Sums;
use crate::history::Outcome;

pub(super) fn check(
    name: &Arc<str>,
    history: &History<'_>,
    context: &Context<'_>,
    findings: &mut Findings,
) {
    let additions = &history.additions;
    if additions.is_empty() {
        return;
    }
    let last = context.counters.get(&**name).copied();
    bounds(additions, last, findings);
    if !context.case.rules.counters_are_exact {
        return;
    }
    sum(additions, last, findings);
    values::check(additions, last, findings);
    limits::check(additions, findings);
}

/// An addition that was acknowledged with its value.
fn acknowledged(addition: &Addition<'_>) -> Option<i64> {
    addition.value.filter(|_| addition.outcome == Outcome::Done)
}

/// What was added is what is there.
fn sum(additions: &[Addition<'_>], last: Option<i64>, findings: &mut Findings) {
    let Some(last) = last else { return };
    let done = additions.iter().filter(|one| one.outcome == Outcome::Done);
    let told: i128 = done
        .filter(|one| !one.is_ambiguous())
        .map(|one| i128::from(one.delta))
        .sum();
    let ambiguous = additions.iter().filter(|one| one.is_ambiguous());
    let count = ambiguous.clone().count();
    let sums = Sums::of(ambiguous.map(|one| one.delta));
    findings.checked("sums", 1);
    let rest = i128::from(last) - told;
    if !sums.may_be(rest) {
        findings.add(
            Kind::WrongSum,
            |_| {
                format!(
                    "it is {last}; what was acknowledged makes {told}, and no choice of the {count} ambiguous additions makes {rest}"
                )
            },
            None,
        );
    }
}

/// An addition does not end outside of its own bounds; nor does the counter, if all additions that could take it there
/// are bounded.
fn bounds(additions: &[Addition<'_>], last: Option<i64>, findings: &mut Findings) {
    let common = |bound: fn(&Addition<'_>) -> Option<Option<i64>>| {
        let mut bounds = additions.iter().filter_map(bound);
        let first = bounds.next()??;
        bounds.try_fold((first, first), |(least, greatest), bound| {
            let bound = bound?;
            Some((least.min(bound), greatest.max(bound)))
        })
    };
    let floor = common(|one| (one.delta < 0).then_some(one.low)).map(|(least, _)| least.min(0));
    let ceiling = common(|one| (one.delta > 0).then_some(one.high));
    let ceiling = ceiling.map(|(_, greatest)| greatest.max(0));
    let leaves = |value: i64, low: Option<i64>, high: Option<i64>| {
        low.is_some_and(|low| value < low) || high.is_some_and(|high| value > high)
    };
    let mut count = 0;
    for addition in additions {
        let Some(value) = acknowledged(addition) else {
            continue;
        };
        count += 1;
        if leaves(value, addition.low, addition.high) || leaves(value, floor, ceiling) {
            findings.add(
                Kind::OutOfBounds,
                |at| {
                    format!(
                        "an addition of {} within {} was acknowledged with {value} at {}",
                        addition.delta,
                        range(addition),
                        at.at(addition.returned),
                    )
                },
                addition.record,
            );
        }
    }
    findings.checked("additions", count);
    if let Some(last) = last.filter(|last| leaves(*last, floor, ceiling)) {
        findings.add(
            Kind::OutOfBounds,
            |_| format!("it is {last} in the end, and no addition allows that"),
            None,
        );
    }
}

fn range(addition: &Addition<'_>) -> String {
    let text = |bound: Option<i64>| bound.map_or(String::new(), |bound| bound.to_string());
    let (low, high) = (text(addition.low), text(addition.high));
    format!("{low}..={high}")
}
