//! A counter with bounded additions.

use porcupine_rs::Model;

use super::super::finding::Findings;
use super::super::index::Addition;
use super::{SIZE, operation, search, spread};
use crate::history::Outcome;

/// More ambiguous additions than this may happen in a window: too many for a search.
const AMBIGUOUS: usize = 6;

#[derive(Debug, Clone, Copy)]
struct Step {
    delta: i64,
    low: Option<i64>,
    high: Option<i64>,
    told: Told,
    /// It may have happened outside of the window.
    loose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Value(i64),
    Refused,
    Nothing,
}

#[derive(Debug, Clone, Copy)]
struct Counter;

impl Model for Counter {
    /// The value, once it is known.
    type State = Option<i64>;
    type Op = Step;
    type Metadata = ();

    fn init() -> Self::State {
        None
    }

    fn step(state: &Self::State, step: &Step) -> (bool, Self::State) {
        let after = |value: i64| {
            let after = value.checked_add(step.delta)?;
            let low = step.low.is_none_or(|low| after >= low);
            let high = step.high.is_none_or(|high| after <= high);
            (low && high).then_some(after)
        };
        match (*state, step.told) {
            (None, _) if step.loose => (true, None),
            (None, Told::Value(value)) => (true, Some(value)),
            (None, _) => (true, None),
            (Some(value), Told::Value(told)) if after(value) == Some(told) => (true, Some(told)),
            (Some(value), Told::Refused) if after(value).is_none() => (true, Some(value)),
            (Some(value), Told::Nothing) => (true, Some(after(value).unwrap_or(value))),
            (Some(value), _) => (step.loose, Some(value)),
        }
    }
}

/// Checks up to so many windows; how many there were.
pub(super) fn check(additions: &[Addition<'_>], windows: usize, findings: &mut Findings) -> usize {
    if windows == 0 {
        return 0;
    }
    let happened = |one: &&Addition<'_>| one.outcome == Outcome::Done || one.is_ambiguous();
    let rises = additions.iter().filter(happened).any(|one| one.delta > 0);
    let falls = additions.iter().filter(happened).any(|one| one.delta < 0);
    if rises && falls {
        by_time(additions, windows, findings)
    } else {
        by_value(additions, windows, findings)
    }
}

/// The step of an addition that was acknowledged or refused.
fn step(one: &Addition<'_>, loose: bool) -> Step {
    let told = match one.value {
        Some(value) if one.outcome == Outcome::Done => Told::Value(value),
        _ => Told::Refused,
    };
    Step {
        delta: one.delta,
        low: one.low,
        high: one.high,
        told,
        loose,
    }
}

/// Consecutive values were taken one after another, and nothing else happened in between.
fn by_value(additions: &[Addition<'_>], windows: usize, findings: &mut Findings) -> usize {
    let before = |one: &Addition<'_>| {
        let value = i128::from(one.value.unwrap_or_default());
        value - i128::from(one.delta)
    };
    let mut known: Vec<&Addition<'_>> = additions
        .iter()
        .filter(|one| one.outcome == Outcome::Done && one.value.is_some() && one.delta != 0)
        .collect();
    known.sort_by_key(|one| before(one).abs());
    let mut count = 0;
    for begin in spread(known.len(), windows) {
        let end = known.len().min(begin + SIZE);
        let mut operations = Vec::with_capacity(SIZE + 1);
        let mut reached = before(known[begin]);
        if let Ok(start) = i64::try_from(reached) {
            let start = Step {
                delta: 0,
                low: None,
                high: None,
                told: Told::Value(start),
                loose: false,
            };
            operations.push(operation::<Counter>(start, 0, 0));
        }
        for one in &known[begin..end] {
            if before(one) != reached {
                // Something ambiguous happened here, or something wrong.
                break;
            }
            reached += i128::from(one.delta);
            operations.push(operation(step(one, false), one.invoked, one.returned));
        }
        search(&operations, "counter", findings);
        count += 1;
    }
    count
}

/// What happened between two instants, with all that was still under way at one of them.
fn by_time(additions: &[Addition<'_>], windows: usize, findings: &mut Findings) -> usize {
    let mut known: Vec<&Addition<'_>> = additions
        .iter()
        .filter(|one| !one.is_ambiguous() && one.outcome != Outcome::Failed)
        .collect();
    known.sort_by_key(|one| one.invoked);
    let mut ambiguous: Vec<&Addition<'_>> =
        additions.iter().filter(|one| one.is_ambiguous()).collect();
    ambiguous.sort_by_key(|one| one.invoked);
    let mut count = 0;
    for begin in spread(known.len(), windows) {
        let end = known.len().min(begin + SIZE);
        let window = &known[begin..end];
        let from = window[0].invoked;
        let to = known.get(end).map_or(u64::MAX, |next| next.invoked);
        let loose = ambiguous.partition_point(|one| one.invoked <= to);
        if loose > AMBIGUOUS {
            findings.checked("windows with too much that is ambiguous", 1);
            continue;
        }
        let mut operations = Vec::with_capacity(SIZE + SIZE);
        // What was still under way when the window begins may happen in it.
        for one in known[..begin].iter().filter(|one| one.returned >= from) {
            let returned = if one.returned >= to {
                u64::MAX
            } else {
                one.returned
            };
            operations.push(operation::<Counter>(step(one, true), from, returned));
        }
        for one in window {
            let late = one.returned >= to;
            let returned = if late { u64::MAX } else { one.returned };
            operations.push(operation(step(one, late), one.invoked, returned));
        }
        for one in &ambiguous[..loose] {
            let step = Step {
                told: Told::Nothing,
                ..step(one, true)
            };
            operations.push(operation(step, one.invoked.max(from), u64::MAX));
        }
        search(&operations, "counter", findings);
        count += 1;
    }
    count
}
