//! Slots of jobs: none is run twice to its end, none is begun once it is known to be done, none is said to be done that
//! nobody can have done, and what stands in the ledger is what was said.

use std::collections::HashMap;
use std::sync::Arc;

use super::Context;
use super::finding::{Findings, Kind};
use super::index::{Attempt, History};
use crate::history::Outcome;

pub(super) fn check(
    name: &Arc<str>,
    history: &History<'_>,
    context: &Context<'_>,
    findings: &mut Findings,
) {
    // A failover that loses commits loses records too.
    if history.attempts.is_empty() || !context.case.rules.counters_are_exact {
        return;
    }
    findings.checked("attempts", history.attempts.len());
    ends(name, history, context, findings);
    begins(history, findings);
    said(history, findings);
}

/// Attempts that have certainly recorded the slot as done: those that were told so, and those whose row stands in the ledger.
fn ends(name: &Arc<str>, history: &History<'_>, context: &Context<'_>, findings: &mut Findings) {
    let rows = context.booked.get(&**name).map_or(&[][..], Vec::as_slice);
    let mut found: HashMap<(u32, u32, u64), u32> = HashMap::new();
    for row in rows {
        *found
            .entry((row.worker, row.task, row.invoked))
            .or_default() += 1;
    }
    let mut ended: Vec<&Attempt<'_>> = Vec::new();
    for attempt in &history.attempts {
        let rows = found.remove(&(attempt.worker, attempt.task, attempt.invoked));
        let rows = rows.unwrap_or_default();
        let expected = match attempt.outcome {
            Outcome::Done if attempt.booked => 1..=1,
            Outcome::Lost | Outcome::Unknown if attempt.booked => 0..=1,
            _ => 0..=0,
        };
        if !expected.contains(&rows) {
            findings.add(
                Kind::WrongLedger,
                |at| {
                    format!(
                        "the attempt of worker {} at {}, of which was said {:?}, stands {rows} times in the ledger",
                        attempt.worker,
                        at.at(attempt.invoked),
                        attempt.outcome,
                    )
                },
                attempt.record,
            );
        }
        if attempt.outcome == Outcome::Done || rows > 0 {
            ended.push(attempt);
        }
    }
    for (worker, ..) in found.into_keys() {
        let sentence =
            format!("worker {worker} stands in the ledger with an attempt that nobody began");
        findings.add(Kind::WrongLedger, |_| sentence, None);
    }
    if let [first, second, ..] = ended[..] {
        findings.add(
            Kind::RanTwice,
            |at| {
                format!(
                    "{} attempts ended with the slot done, among them those of worker {} at {} and worker {} at {}",
                    ended.len(),
                    first.worker,
                    at.at(first.invoked),
                    second.worker,
                    at.at(second.invoked),
                )
            },
            first.record.into_iter().chain(second.record),
        );
    }
}

/// No work begins in an attempt that began when somebody had been told that the slot is done.
fn begins(history: &History<'_>, findings: &mut Findings) {
    let told = history.attempts.iter().filter(|attempt| attempt.done);
    let Some(told) = told.min_by_key(|attempt| attempt.returned) else {
        return;
    };
    for attempt in &history.attempts {
        if attempt.invoked > told.returned && attempt.token.is_some_and(|token| token > 0) {
            findings.add(
                Kind::RanTwice,
                |at| {
                    format!(
                        "worker {} began its work with an attempt of {}, when worker {} had known since {} that the slot is done",
                        attempt.worker,
                        at.at(attempt.invoked),
                        told.worker,
                        at.at(told.returned),
                    )
                },
                told.record.into_iter().chain(attempt.record),
            );
        }
    }
}

/// Whoever is told that the slot was done before is told the truth: an attempt that began earlier has done it, or may have.
fn said(history: &History<'_>, findings: &mut Findings) {
    let may_have_ended = |attempt: &&Attempt<'_>| match attempt.outcome {
        Outcome::Done => true,
        Outcome::Lost | Outcome::Unknown => attempt.token != Some(0),
        Outcome::Refused | Outcome::Failed => false,
    };
    let ends = history.attempts.iter().filter(may_have_ended);
    let first = ends.map(|attempt| attempt.invoked).min();
    for attempt in &history.attempts {
        let before = attempt.done && attempt.outcome == Outcome::Refused;
        if before && first.is_none_or(|first| first > attempt.returned) {
            findings.add(
                Kind::NeverDone,
                |at| {
                    format!(
                        "worker {} was told at {} that the slot is done, and nobody had begun an attempt that may have done it",
                        attempt.worker,
                        at.at(attempt.returned),
                    )
                },
                attempt.record,
            );
        }
    }
}
