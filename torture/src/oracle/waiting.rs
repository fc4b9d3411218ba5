//! Waiters are served: a lock that nobody holds goes to one who waits for it.
//!
//! Nobody knows from outside for how long the lease of a worker that died, or of a future that was dropped, still runs:
//! for its ttl at most. So whoever waits longer than that, and some slack, while no hold is on file, was not served.

use super::Context;
use super::finding::{Findings, Kind, Seconds};
use super::index::History;
use crate::history::{Outcome, Record};

/// From here on a wait is reported: what is shorter may be a matter of the workers' own scheduling.
const NOTABLE: u64 = 10_000_000;

pub(super) type Span = (u64, u64);

pub(super) fn check(history: &History<'_>, context: &Context<'_>, findings: &mut Findings) {
    // Of semaphores, and of locks that are held shared, see there.
    let is_other = history.is_slot || !history.permits.is_empty() || !history.sharing.is_empty();
    if is_other || history.holds.is_empty() && history.refusals.is_empty() {
        return;
    }
    check_waits(history, history.waits(), context, findings);
}

/// As [`check`], of those who wait for this lock, or for any of several of which it is one.
pub(super) fn check_waits<'h>(
    history: &History<'h>,
    waits: impl Iterator<Item = &'h Record>,
    context: &Context<'_>,
    findings: &mut Findings,
) {
    let ttl = history.holds.iter().map(|hold| hold.ttl).max();
    let ttl = ttl.unwrap_or(context.histories.longest_ttl);
    let patience = context.case.rules.served_within.map(|slack| ttl + slack);
    served(history, waits, context, patience, findings);
    if let Some(patience) = patience {
        refusals(history, context, patience, findings);
    }
}

/// When somebody holds the lock, may hold it, or nobody can be served. A grant counts from its return: until then its
/// own worker waits too.
fn taken(history: &History<'_>, context: &Context<'_>, from_call: bool) -> Vec<Span> {
    let mut spans: Vec<Span> = context.everybody.clone();
    for hold in &history.holds {
        // Who asked for several may have held it before it had the others.
        let from = if from_call || hold.together {
            hold.grant.invoked
        } else {
            hold.grant.returned
        };
        let over = if hold.end.is_none() {
            // It may have renewed the lease until it died.
            hold.over().max(context.died(hold.worker()))
        } else {
            hold.over()
        };
        spans.push((from, over));
    }
    for refusal in &history.refusals {
        if refusal.together || matches!(refusal.outcome, Outcome::Unknown | Outcome::Lost) {
            let died = match refusal.record {
                Some(_) => 0,
                None => context.died(refusal.worker),
            };
            spans.push((refusal.invoked, refusal.returned.max(died)));
        }
    }
    for transfer in &history.transfers {
        let end = match transfer.record {
            Some(record) => record.returned,
            None => context.died(transfer.worker).max(transfer.invoked),
        };
        spans.push((transfer.invoked, end));
    }
    spans
}

/// What lies between the spans.
fn gaps(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut gaps = Vec::new();
    let mut end = 0;
    for (from, to) in spans {
        if from > end {
            gaps.push((end, from));
        }
        end = end.max(to);
    }
    gaps.push((end, u64::MAX));
    gaps
}

/// What is left of a span without others, which are sorted.
pub(super) fn without(span: Span, others: &[Span]) -> Vec<Span> {
    let (mut from, to) = span;
    let mut rest = Vec::new();
    for (begin, end) in others.iter().filter(|(b, e)| *b < to && *e > span.0) {
        if *begin > from {
            rest.push((from, *begin));
        }
        from = from.max(*end);
    }
    if from < to {
        rest.push((from, to));
    }
    rest
}

fn served<'h>(
    history: &History<'h>,
    waits: impl Iterator<Item = &'h Record>,
    context: &Context<'_>,
    patience: Option<u64>,
    findings: &mut Findings,
) {
    let notable = patience.map_or(NOTABLE, |patience| (patience / 8).max(NOTABLE));
    let mut free = gaps(taken(history, context, false));
    free.retain(|(from, to)| to - from >= notable);
    let mut count = 0;
    for wait in waits {
        count += 1;
        let own = context.spans_of(wait.worker);
        for span in without((wait.invoked, wait.returned), own) {
            // The longest time for which nobody held it while this one waited.
            let first = free.partition_point(|(_, to)| *to <= span.0);
            let idle = free[first..]
                .iter()
                .take_while(|(from, _)| *from < span.1)
                .map(|(from, to)| (*to).min(span.1).saturating_sub((*from).max(span.0)))
                .max()
                .unwrap_or_default();
            if idle >= notable {
                findings.waited(idle);
            }
            if patience.is_some_and(|patience| idle > patience) {
                not_served(wait, idle, findings);
            }
        }
    }
    findings.checked("waits", count);
}

fn not_served(wait: &Record, idle: u64, findings: &mut Findings) {
    findings.add(
        Kind::NotServed,
        |at| {
            format!(
                "worker {} task {} waited from {} to {}, and for {} of it nobody held the lock",
                wait.worker,
                wait.task,
                at.at(wait.invoked),
                at.at(wait.returned),
                Seconds(idle),
            )
        },
        [wait],
    );
}

/// Whoever is told that the lock is held, long after the last holder's lease must have ended.
fn refusals(history: &History<'_>, context: &Context<'_>, patience: u64, findings: &mut Findings) {
    let free = gaps(taken(history, context, true));
    for refusal in &history.refusals {
        let Some(record) = refusal.record else {
            continue;
        };
        let alone = without(
            (record.invoked, record.returned),
            context.spans_of(record.worker),
        );
        if refusal.together
            || refusal.outcome != Outcome::Refused
            || alone != [(record.invoked, record.returned)]
        {
            continue;
        }
        let first = free.partition_point(|(_, to)| *to <= record.invoked);
        if let Some((from, to)) = free.get(first)
            // Before the first hold nothing is known.
            && *from > 0
            && record.returned < *to
            && record.invoked > from.saturating_add(patience)
        {
            findings.add(
                Kind::NotServed,
                |at| {
                    format!(
                        "worker {} task {} was refused the lock at {}, which nobody held since {}",
                        record.worker,
                        record.task,
                        at.at(record.returned),
                        at.at(*from),
                    )
                },
                [record],
            );
        }
    }
}
