//! Windows of the history for an independent linearizability checker (Wing and Gong's search, which is exponential at
//! worst): some hundred operations of one name at a time.
//!
//! # Why a window of a correct history is found correct
//!
//! - Holds are taken in the order of their tokens: consecutive holds are a consecutive part of any order of the whole.
//! - Where a counter goes one way only, consecutive values are a consecutive part too.
//! - Otherwise additions are taken by time. Those that were under way at the window's edges, and ambiguous ones, may have
//!   happened outside of it: the model lets each of them pass without a trace where its value does not fit. The value at
//!   the window's beginning is the one that its first addition found.

mod counter;
mod lock;

use std::time::Duration;

use porcupine_rs::{CheckResult, Model, Operation};

use super::Context;
use super::finding::{Findings, Kind};

/// How many operations a window has.
const SIZE: usize = 200;
/// How long one may take.
const LIMIT: Duration = Duration::from_secs(2);

pub(super) fn check(context: &Context<'_>, findings: &mut Findings) {
    let rules = context.case.rules;
    let names = &context.histories.names;
    let windows = rules.windows.div_ceil(names.len().max(1));
    let mut left = rules.windows;
    for (name, history) in names {
        let findings = findings.about(name);
        if rules.tokens_rise && rules.leases_exclude {
            let count = lock::check(history, windows.min(left), findings);
            left -= count;
        }
        if rules.counters_are_exact {
            let count = counter::check(&history.additions, windows.min(left), findings);
            left -= count;
        }
    }
}

/// The beginnings of windows, spread over a history of so many.
fn spread(length: usize, windows: usize) -> impl Iterator<Item = usize> {
    let whole = length.div_ceil(SIZE);
    let step = whole.div_ceil(windows.max(1)).max(1);
    (0..whole)
        .step_by(step)
        .take(windows)
        .map(|window| window * SIZE)
}

fn search<M: Model>(operations: &[Operation<M>], what: &str, findings: &mut Findings) {
    match porcupine_rs::check_operations_timeout(operations, LIMIT) {
        CheckResult::Ok => findings.checked("windows", 1),
        CheckResult::Unknown => findings.checked("windows without an answer", 1),
        CheckResult::Illegal => {
            findings.checked("windows", 1);
            let first = operations.iter().map(|operation| operation.call_time).min();
            let first = first.and_then(|first| u64::try_from(first).ok());
            findings.add(
                Kind::NotLinearizable,
                |at| {
                    format!(
                        "no order explains {} operations on the {what} from {} on",
                        operations.len(),
                        at.at(first.unwrap_or_default()),
                    )
                },
                None,
            );
        }
    }
}

fn operation<M: Model>(op: M::Op, invoked: u64, returned: u64) -> Operation<M> {
    let time = |instant: u64| i64::try_from(instant).unwrap_or(i64::MAX);
    Operation {
        client_id: None,
        call_time: time(invoked),
        return_time: time(returned),
        op,
        metadata: None,
    }
}
