//! Locks: holds exclude each other while they are trusted, tokens rise, and what checks tokens is never overtaken.

use std::collections::HashMap;

use super::finding::{Findings, Kind};
use super::index::{History, Hold};
use super::{Context, Rules};
use crate::history::Outcome;

pub(super) fn check(history: &History<'_>, rules: Rules, findings: &mut Findings) {
    if rules.leases_exclude {
        exclusion(&history.holds, findings);
    }
    if rules.tokens_rise {
        tokens(&history.holds, findings);
    }
    writes(history, findings);
    if rules.counters_are_exact {
        releases(history, findings);
    }
}

/// Holds begin when the grant returned and end with the last instant at which the holder saw it held: in between it
/// trusted its lease throughout. They are sorted by their beginning, so the one that reached furthest tells.
fn exclusion(holds: &[Hold<'_>], findings: &mut Findings) {
    let mut furthest: Option<&Hold<'_>> = None;
    let trusted = |hold: &&Hold<'_>| hold.trusted_until > hold.grant.returned;
    findings.checked("holds", holds.iter().filter(trusted).count());
    for hold in holds.iter().filter(trusted) {
        if let Some(other) = furthest
            && other.trusted_until > hold.grant.returned
        {
            let records = [Some(other.grant), other.end, Some(hold.grant), hold.end];
            findings.add(
                Kind::HoldsOverlap,
                |at| {
                    format!(
                        "worker {} task {} trusted token {} from {} to {}, and worker {} task {} token {} from {} to {}",
                        other.worker(),
                        other.grant.task,
                        other.token,
                        at.at(other.grant.returned),
                        at.at(other.trusted_until),
                        hold.worker(),
                        hold.grant.task,
                        hold.token,
                        at.at(hold.grant.returned),
                        at.at(hold.trusted_until),
                    )
                },
                records.into_iter().flatten(),
            );
        }
        if furthest.is_none_or(|other| other.trusted_until < hold.trusted_until) {
            furthest = Some(hold);
        }
    }
}

/// Every grant has a token of its own, greater than those of all grants that returned before it was asked for.
fn tokens(holds: &[Hold<'_>], findings: &mut Findings) {
    findings.checked("tokens", holds.len());
    let mut by_token: Vec<&Hold<'_>> = holds.iter().collect();
    by_token.sort_by_key(|hold| hold.token);
    for pair in by_token.windows(2) {
        let [first, second] = pair else { continue };
        if first.token == second.token {
            findings.add(
                Kind::TokenRepeated,
                |at| {
                    format!(
                        "token {} was granted to worker {} at {} and to worker {} at {}",
                        first.token,
                        first.worker(),
                        at.at(first.grant.returned),
                        second.worker(),
                        at.at(second.grant.returned),
                    )
                },
                [first.grant, second.grant],
            );
        }
    }
    let mut by_call: Vec<&Hold<'_>> = holds.iter().collect();
    by_call.sort_by_key(|hold| hold.grant.invoked);
    let mut returned = holds.iter().peekable();
    let mut highest: Option<&Hold<'_>> = None;
    for hold in by_call {
        while let Some(before) = returned.next_if(|b| b.grant.returned < hold.grant.invoked) {
            if highest.is_none_or(|highest| highest.token < before.token) {
                highest = Some(before);
            }
        }
        if let Some(before) = highest
            && before.token > hold.token
        {
            findings.add(
                Kind::TokenFell,
                |at| {
                    format!(
                        "worker {} asked at {} and was granted token {}, after worker {} had been granted {} at {}",
                        hold.worker(),
                        at.at(hold.grant.invoked),
                        hold.token,
                        before.worker(),
                        before.token,
                        at.at(before.grant.returned),
                    )
                },
                [before.grant, hold.grant],
            );
        }
    }
}

/// The resource accepts no older token behind a newer one, and refuses nobody for any other cause.
fn writes(history: &History<'_>, findings: &mut Findings) {
    if history.writes.is_empty() {
        return;
    }
    findings.checked("fenced writes", history.writes.len());
    let mut by_call: Vec<_> = history.writes.iter().collect();
    by_call.sort_by_key(|write| write.invoked);
    let mut by_return: Vec<_> = by_call.clone();
    by_return.retain(|write| write.accepted == Some(true));
    by_return.sort_by_key(|write| write.returned);
    let mut returned = by_return.into_iter().peekable();
    let mut newest: Option<&super::index::Write<'_>> = None;
    for write in &by_call {
        while let Some(before) = returned.next_if(|before| before.returned < write.invoked) {
            if newest.is_none_or(|newest| newest.token < before.token) {
                newest = Some(before);
            }
        }
        if write.accepted == Some(true)
            && let Some(before) = newest
            && before.token > write.token
        {
            findings.add(
                Kind::StaleWriteAccepted,
                |at| {
                    format!(
                        "a write with token {} was accepted at {}, after one with {} at {}",
                        write.token,
                        at.at(write.returned),
                        before.token,
                        at.at(before.returned),
                    )
                },
                [before.record, write.record].into_iter().flatten(),
            );
        }
    }
    let mut by_end: Vec<_> = by_call.clone();
    by_end.sort_by_key(|write| write.returned);
    let mut begun = by_call.iter().peekable();
    let mut highest = 0;
    for write in by_end {
        while let Some(other) = begun.next_if(|other| other.invoked < write.returned) {
            highest = highest.max(other.token);
        }
        if write.accepted == Some(false) && highest <= write.token {
            findings.add(
                Kind::WriteRefused,
                |at| {
                    format!(
                        "a write with token {} was refused at {}, and nobody had tried a newer one",
                        write.token,
                        at.at(write.returned),
                    )
                },
                write.record,
            );
        }
    }
}

/// A lock that only one task ever wants is free for it, once the task has released it and knows what became of all that it asked
/// for. What is refused after a good part of a lease may have been granted to itself meanwhile, in an answer that was lost.
fn releases(history: &History<'_>, findings: &mut Findings) {
    let granted = history.holds.iter().map(|hold| hold.grant);
    let refused = history.refusals.iter().filter_map(|refusal| refusal.record);
    let mut users = granted
        .chain(refused)
        .map(|record| (record.worker, record.task));
    let first = users.next();
    if users.any(|user| Some(user) != first) || !history.sharing.is_empty() {
        return;
    }
    let ttls = || history.holds.iter().map(|hold| hold.ttl);
    let at_once = ttls().min().unwrap_or_default() / 4;
    // A lease that was not released, and is not renewed any more, ends by then: what refuses the lock later is something else.
    let longest = ttls().max().unwrap_or_default();
    // From when on, and until when, the task may have the lock.
    let mut claims: Vec<(u64, u64)> = Vec::new();
    for hold in &history.holds {
        let end = match hold.release {
            Some((release, Outcome::Done)) => release.returned,
            _ => u64::MAX,
        };
        claims.push((hold.grant.invoked, end));
    }
    let mut asked = Vec::new();
    for refusal in &history.refusals {
        match (refusal.outcome, refusal.record) {
            (Outcome::Refused, Some(record)) => asked.push(record),
            (Outcome::Failed, _) => {}
            _ => claims.push((refusal.invoked, u64::MAX)),
        }
    }
    claims.sort_unstable();
    let released = claims.iter().filter(|(_, end)| *end < u64::MAX);
    findings.checked("releases", released.count());
    asked.sort_by_key(|record| record.returned);
    let mut begun = claims.into_iter().peekable();
    let (mut released, mut found) = (None, None);
    for record in asked {
        while let Some((_, end)) = begun.next_if(|(from, _)| *from < record.returned) {
            released = released.max(Some(end));
        }
        // Each release once, however often the lock was refused after it.
        if released != found
            && record.returned - record.invoked < at_once
            && let Some(released) = released.filter(|released| {
                *released < record.invoked && record.invoked - *released < longest
            })
        {
            found = Some(released);
            findings.add(
                Kind::ReleaseUndone,
                |at| {
                    format!(
                        "worker {} task {} alone wants it, released it at {}, and was refused it at {}",
                        record.worker,
                        record.task,
                        at.at(released),
                        at.at(record.returned),
                    )
                },
                [record],
            );
        }
    }
}

/// What stands in the tables when all is over.
pub(super) fn check_end(context: &Context<'_>, findings: &mut Findings) {
    let (last, rules) = (context.case.last, context.case.rules);
    findings.checked("locks free in the end", context.histories.locks());
    for name in &last.held {
        findings.about(name).add(
            Kind::LeaseOutlived,
            |_| {
                "it is still held, though every worker has ended and every lease must have"
                    .to_owned()
            },
            None,
        );
    }
    let mut accepted: HashMap<&str, u64> = HashMap::new();
    for (name, token) in &last.accepted {
        let newest = accepted.entry(name).or_default();
        if *token < *newest {
            let newest = *newest;
            findings.about(name).add(
                Kind::StaleWriteAccepted,
                |_| format!("the resource accepted token {token} after {newest}"),
                None,
            );
        }
        *newest = (*newest).max(*token);
    }
    if rules.tokens_rise {
        for (name, fence) in &last.fences {
            let history = context.histories.names.get(name);
            let holds = history.into_iter().flat_map(|history| {
                let shared = history.sharing.holds.iter().map(|share| &share.hold);
                history.holds.iter().chain(shared)
            });
            if let Some(hold) = holds.max_by_key(|hold| hold.token)
                && hold.token > *fence
            {
                findings.about(name).add(
                    Kind::TokenFell,
                    |_| format!("its row says {fence}, and token {} was granted", hold.token),
                    [hold.grant],
                );
            }
        }
    }
    if rules.no_deadlocks && last.deadlocks > 0 {
        findings.about(&"".into()).add(
            Kind::Deadlock,
            |_| format!("the server counted {} deadlocks", last.deadlocks),
            None,
        );
    }
}
