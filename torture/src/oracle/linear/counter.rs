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
    if windows == 0 || additions.is_empty() {
        return 0;
    }
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
        // What was still under way when the window begins may happen in it.
        let before = known[..begin].iter().filter(|one| one.returned >= from);
        let mut operations = Vec::with_capacity(SIZE + SIZE);
        for (one, early) in before
            .map(|one| (one, true))
            .chain(window.iter().map(|one| (one, false)))
        {
            let late = one.returned >= to;
            let told = match one.value {
                Some(value) if one.outcome == Outcome::Done => Told::Value(value),
                _ => Told::Refused,
            };
            operations.push(operation::<Counter>(
                Step {
                    delta: one.delta,
                    low: one.low,
                    high: one.high,
                    told,
                    loose: early || late,
                },
                if early { from } else { one.invoked },
                if late { u64::MAX } else { one.returned },
            ));
        }
        for one in &ambiguous[..loose] {
            let step = Step {
                delta: one.delta,
                low: one.low,
                high: one.high,
                told: Told::Nothing,
                loose: true,
            };
            operations.push(operation(step, one.invoked.max(from), u64::MAX));
        }
        search(&operations, "counter", findings);
        count += 1;
    }
    count
}
