//! Locks that are held shared: no exclusive hold stands beside a shared one, tokens tell which came first, what is read stays as it is,
//! and neither who reads nor who writes is kept out by the others.
//!
//! The exclusive holds among each other are judged as those of any lock.

use std::collections::HashMap;
use std::sync::Arc;

use super::Context;
use super::bank::Newest;
use super::finding::{Findings, Kind, Seconds};
use super::index::{History, Hold, Reading, Refusal, Share};
use super::overtaking;
use super::sections::{Written, explains};
use super::waiting::{self, without};
use crate::history::{Committed, Outcome, Record};

/// For so long at least readers that come later may be let in beside a writer that waits: where a round trip takes some hundred
/// milliseconds, its wish is not known all the time.
pub(super) const BESIDE_A_WRITER: u64 = 8_000_000_000;

pub(super) fn check(
    name: &Arc<str>,
    history: &History<'_>,
    context: &Context<'_>,
    findings: &mut Findings,
) {
    if history.sharing.is_empty() {
        return;
    }
    let rules = context.case.rules;
    if rules.leases_exclude {
        exclusion(history, findings);
        looks(history, findings);
    }
    if rules.tokens_rise && rules.leases_exclude {
        tokens(history, findings);
    }
    if rules.tokens_rise && rules.counters_are_exact {
        transactions(name, history, context, findings);
    }
    free(history, context, findings);
    writers(history, context, findings);
    readers(history, context, findings);
}

fn shares<'c, 'h>(history: &'c History<'h>) -> impl Iterator<Item = &'c Hold<'h>> {
    history.sharing.holds.iter().map(|share| &share.hold)
}

/// No exclusive hold is trusted while a shared one is.
fn exclusion(history: &History<'_>, findings: &mut Findings) {
    let exclusive = history.holds.iter().map(|hold| (hold, false));
    let shared = shares(history).map(|hold| (hold, true));
    let mut all: Vec<_> = exclusive.chain(shared).collect();
    all.retain(|(hold, _)| hold.trusted_until > hold.grant.returned);
    all.sort_by_key(|(hold, _)| hold.grant.returned);
    findings.checked("shared holds", shares(history).count());
    // Of the exclusive holds, and of the shared ones, that which is trusted for longest.
    let mut furthest: [Option<&Hold<'_>>; 2] = [None; 2];
    for (hold, is_shared) in all {
        if let Some(other) = furthest[usize::from(!is_shared)]
            && other.trusted_until > hold.grant.returned
        {
            let (shared, exclusive) = if is_shared {
                (hold, other)
            } else {
                (other, hold)
            };
            findings.add(
                Kind::HoldsOverlap,
                |at| {
                    format!(
                        "worker {} task {} trusted the shared token {} from {} to {}, and worker {} task {} the exclusive {} from {} to {}",
                        shared.worker(),
                        shared.grant.task,
                        shared.token,
                        at.at(shared.grant.returned),
                        at.at(shared.trusted_until),
                        exclusive.worker(),
                        exclusive.grant.task,
                        exclusive.token,
                        at.at(exclusive.grant.returned),
                        at.at(exclusive.trusted_until),
                    )
                },
                [Some(shared.grant), shared.end, Some(exclusive.grant), exclusive.end]
                    .into_iter()
                    .flatten(),
            );
        }
        let last = &mut furthest[usize::from(is_shared)];
        if last.is_none_or(|last| last.trusted_until < hold.trusted_until) {
            *last = Some(hold);
        }
    }
}

/// A shared lease has a token of its own, above those of all exclusive holds before it, and below those of all after it.
fn tokens(history: &History<'_>, findings: &mut Findings) {
    findings.checked("shared tokens", history.sharing.holds.len());
    let mut known: HashMap<u64, (Option<u32>, &Record)> = HashMap::new();
    for hold in &history.holds {
        known.insert(hold.token, (None, hold.grant));
    }
    for hold in shares(history) {
        let of = (Some(hold.worker()), hold.grant);
        let (worker, other) = *known.entry(hold.token).or_insert(of);
        if worker != Some(hold.worker()) {
            findings.add(
                Kind::TokenRepeated,
                |at| {
                    format!(
                        "token {} was granted to worker {} at {} and, shared, to worker {} at {}",
                        hold.token,
                        other.worker,
                        at.at(other.returned),
                        hold.worker(),
                        at.at(hold.grant.returned),
                    )
                },
                [other, hold.grant],
            );
        }
    }
    let exclusive: Vec<&Hold<'_>> = history.holds.iter().collect();
    let shared: Vec<&Hold<'_>> = shares(history).collect();
    rise(&exclusive, &shared, findings);
    rise(&shared, &exclusive, findings);
    downgrades(history, findings);
}

/// What was asked for after others were granted has a greater token. Both are sorted by the instants of their grants.
fn rise(before: &[&Hold<'_>], after: &[&Hold<'_>], findings: &mut Findings) {
    let mut by_call = after.to_vec();
    by_call.sort_by_key(|hold| hold.grant.invoked);
    let mut returned = before.iter().peekable();
    let mut highest: Option<&Hold<'_>> = None;
    for hold in by_call {
        while let Some(other) = returned.next_if(|one| one.grant.returned < hold.grant.invoked) {
            if highest.is_none_or(|highest| highest.token < other.token) {
                highest = Some(other);
            }
        }
        if let Some(other) = highest
            && other.token > hold.token
        {
            findings.add(
                Kind::TokenFell,
                |at| {
                    format!(
                        "worker {} asked at {} and was granted token {}, after worker {} had been granted {} at {}, one shared and the other not",
                        hold.worker(),
                        at.at(hold.grant.invoked),
                        hold.token,
                        other.worker(),
                        other.token,
                        at.at(other.grant.returned),
                    )
                },
                [other.grant, hold.grant],
            );
        }
    }
}

/// Nobody has the lock for itself between an exclusive hold and the shared one that was made of it.
fn downgrades(history: &History<'_>, findings: &mut Findings) {
    let mut exclusive: Vec<&Hold<'_>> = history.holds.iter().collect();
    exclusive.sort_by_key(|hold| hold.token);
    let made = history.sharing.holds.iter().filter(|share| share.from > 0);
    let mut count = 0;
    for Share { hold, from, .. } in made {
        count += 1;
        let next = exclusive.partition_point(|other| other.token <= *from);
        if let Some(other) = exclusive.get(next).filter(|one| one.token < hold.token) {
            findings.add(
                Kind::DowngradeGap,
                |at| {
                    format!(
                        "worker {} made its token {from} the shared {} at {}, and worker {} was granted {} between them",
                        hold.worker(),
                        hold.token,
                        at.at(hold.grant.returned),
                        other.worker(),
                        other.token,
                    )
                },
                [other.grant, hold.grant],
            );
        }
    }
    findings.checked("downgrades", count);
}

/// A value that is read under a shared hold that is trusted is what the exclusive hold before it has left, at first and at last.
fn looks(history: &History<'_>, findings: &mut Findings) {
    let Written { trusted, stray } = Written::of(history);
    let mut count = 0;
    for Share { hold, readings, .. } in &history.sharing.holds {
        let trusted_until = hold.trusted_until;
        let plain = readings.iter().filter(|one| one.transaction.is_none());
        for reading in plain.filter(|one| one.record.returned <= trusted_until) {
            count += 1;
            let before = trusted.partition_point(|section| section.token < hold.token);
            let before = before.checked_sub(1).map(|last| trusted[last]);
            let end = reading.record.returned;
            let explained = |read| explains(&stray, before, read, end);
            if !explained(reading.found) || !explained(reading.again) {
                let left = before.map_or(0, |before| before.wrote);
                wrong(hold, reading, &format!("{left} had been left"), findings);
            }
        }
    }
    findings.checked("readings", count);
}

fn wrong(hold: &Hold<'_>, reading: &Reading<'_>, instead: &str, findings: &mut Findings) {
    findings.add(
        Kind::WrongRead,
        |at| {
            format!(
                "worker {} with the shared token {} read {} and then {} between {} and {}, where {instead}",
                hold.worker(),
                hold.token,
                reading.found,
                reading.again,
                at.at(reading.record.invoked),
                at.at(reading.record.returned),
            )
        },
        [hold.grant, reading.record],
    );
}

/// No transaction that verified a shared hold commits when a newer exclusive hold has been granted; and the transfers that it counted are
/// those of older ones.
fn transactions(
    name: &Arc<str>,
    history: &History<'_>,
    context: &Context<'_>,
    findings: &mut Findings,
) {
    let newest = Newest::of(history);
    // In the order of their commits.
    let ledger = context.case.last.transfers.iter();
    let ledger: Vec<&Committed> = ledger.filter(|row| row.name == *name).collect();
    let mut count = 0;
    for Share { hold, readings, .. } in &history.sharing.holds {
        for reading in readings {
            let Some((committing, Outcome::Done)) = reading.transaction else {
                continue;
            };
            count += 1;
            if let Some((token, grant)) = newest.before(committing)
                && token > hold.token
            {
                findings.add(
                    Kind::StaleCommit,
                    |at| {
                        format!(
                            "worker {} committed with the shared token {} after {}, when worker {} had been granted {token} at {}",
                            hold.worker(),
                            hold.token,
                            at.at(committing),
                            grant.worker,
                            at.at(grant.returned),
                        )
                    },
                    [reading.record, grant],
                );
            }
            let older = ledger.partition_point(|row| row.token < hold.token) as u64;
            if (reading.found, reading.again) != (older, older) {
                let instead = format!("{older} transfers have an older token");
                wrong(hold, reading, &instead, findings);
            }
        }
    }
    findings.checked("shared transactions", count);
}

/// A lock that nobody holds goes to one who waits for it; one that nobody holds or wants for itself, to one who wants to share it.
fn free(history: &History<'_>, context: &Context<'_>, findings: &mut Findings) {
    let unknown =
        |refusal: &&Refusal<'_>| matches!(refusal.outcome, Outcome::Unknown | Outcome::Lost);
    let mut holds = history.holds.clone();
    holds.extend(shares(history));
    let mut refusals = history.refusals.clone();
    refusals.extend(history.sharing.refusals.iter().filter(unknown));
    let to_write = History {
        holds,
        refusals,
        ..History::default()
    };
    waiting::check_waits(&to_write, history.waits(), context, findings);
    // Who waits to write keeps readers out as if it held the lock.
    let wishes = history.refusals.iter().map(|refusal| Refusal {
        outcome: Outcome::Unknown,
        ..*refusal
    });
    let granted = history.waits().map(|record| Refusal {
        record: Some(record),
        worker: record.worker,
        invoked: record.invoked,
        returned: record.returned,
        outcome: Outcome::Unknown,
        together: false,
    });
    let to_read = History {
        holds: history.holds.clone(),
        refusals: wishes
            .chain(granted)
            .chain(history.sharing.refusals.iter().copied())
            .collect(),
        ..History::default()
    };
    waiting::check_waits(&to_read, history.sharing.waits(), context, findings);
}

/// While somebody waits to write, those who come later to read are let in for a bounded time, until a writer has the lock.
fn writers(history: &History<'_>, context: &Context<'_>, findings: &mut Findings) {
    let mut read: Vec<&Record> = history
        .sharing
        .holds
        .iter()
        .filter(|share| share.from == 0)
        .map(|share| share.hold.grant)
        .collect();
    read.sort_by_key(|grant| grant.invoked);
    let held = history.holds.iter();
    let mut written: Vec<_> = held
        .map(|hold| (hold.grant.returned, hold.over()))
        .collect();
    // They may have been granted.
    let unknown = history.refusals.iter();
    let unknown = unknown.filter(|refusal| refusal.outcome == Outcome::Unknown);
    written.extend(unknown.map(|refusal| (refusal.invoked, refusal.returned)));
    let ttl = context.histories.longest_ttl;
    let slack = context.case.rules.served_within;
    let bound = slack.map(|slack| (ttl + slack).max(BESIDE_A_WRITER));
    let mut count = 0;
    for wait in history.waits() {
        count += 1;
        let own = (wait.invoked, wait.returned);
        let mut others = context.disturbed(wait.worker);
        others.extend(&written);
        others.sort_unstable();
        for (from, to) in without(own, &others) {
            let first = read.partition_point(|grant| grant.invoked < from);
            let began = read[first..].iter().take_while(|grant| grant.invoked < to);
            let ended = began.map(|grant| grant.returned).filter(|end| *end <= to);
            let let_in = ended.max().map_or(0, |last| last - from);
            findings.readers_let_in(let_in);
            if bound.is_some_and(|bound| let_in > bound) {
                findings.add(
                    Kind::Overtaken,
                    |at| {
                        format!(
                            "worker {} task {} waited from {} to {}, and for {} others came and were let in to read, and nobody to write",
                            wait.worker,
                            wait.task,
                            at.at(wait.invoked),
                            at.at(wait.returned),
                            Seconds(let_in),
                        )
                    },
                    [wait],
                );
            }
        }
    }
    findings.checked("waits to write", count);
}

/// While somebody waits to read, others have the lock for themselves so many times and no more.
fn readers(history: &History<'_>, context: &Context<'_>, findings: &mut Findings) {
    let turns = overtaking::turns(history);
    let mut count = 0;
    for wait in history.sharing.waits() {
        let unheard = context.unheard(wait.worker);
        for span in without((wait.invoked, wait.returned), &unheard) {
            count += 1;
            let passed = overtaking::begun(&turns, span);
            findings.passed_over(passed);
            let most = context.case.rules.passed_over;
            if most.is_some_and(|most| passed > most) {
                overtaking::starved(wait, passed, findings);
            }
        }
    }
    findings.checked("waits to read", count);
}
