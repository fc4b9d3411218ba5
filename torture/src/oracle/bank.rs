//! Business transactions under verification: none commits once a newer holder has been granted the lock, none is lost,
//! none is there that was refused, and no money appears.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Context;
use super::finding::{Findings, Kind};
use super::index::History;
use crate::history::{Committed, Outcome, Record};

/// No transaction sends its COMMIT, and succeeds, after a newer holder was granted the lock: the verification holds the
/// row until the end.
pub(super) fn check(history: &History<'_>, findings: &mut Findings) {
    if history.transfers.is_empty() {
        return;
    }
    findings.checked("transfers", history.transfers.len());
    let newest = Newest::of(history);
    for transfer in &history.transfers {
        if transfer.outcome != Outcome::Done || transfer.committing == 0 {
            continue;
        }
        if let Some((token, grant)) = newest.before(transfer.committing)
            && token > transfer.token
        {
            findings.add(
                Kind::StaleCommit,
                |at| {
                    format!(
                        "worker {} committed with token {} after {}, when worker {} had been granted {token} at {}",
                        transfer.worker,
                        transfer.token,
                        at.at(transfer.committing),
                        grant.worker,
                        at.at(grant.returned),
                    )
                },
                transfer.record.into_iter().chain([grant]),
            );
        }
    }
}

/// The greatest token of an exclusive hold, by the instant of its grant.
pub(super) struct Newest<'h>(Vec<(u64, u64, &'h Record)>);

impl<'h> Newest<'h> {
    pub(super) fn of(history: &History<'h>) -> Self {
        let mut greatest: Vec<(u64, u64, &Record)> = Vec::with_capacity(history.holds.len());
        for hold in &history.holds {
            let (token, grant) = match greatest.last() {
                Some((_, token, grant)) if *token >= hold.token => (*token, *grant),
                _ => (hold.token, hold.grant),
            };
            greatest.push((hold.grant.returned, token, grant));
        }
        Self(greatest)
    }

    /// The greatest that was granted before this instant, and its grant.
    pub(super) fn before(&self, instant: u64) -> Option<(u64, &'h Record)> {
        let before = self.0.partition_point(|(returned, ..)| *returned < instant);
        let (_, token, grant) = *self.0.get(before.checked_sub(1)?)?;
        Some((token, grant))
    }
}

/// The ledger that the transactions wrote, against what was said of them.
pub(super) fn check_ledger(context: &Context<'_>, findings: &mut Findings) {
    let last = context.case.last;
    if !context.case.rules.counters_are_exact {
        return;
    }
    let mut ledger: BTreeMap<&Arc<str>, Vec<&Committed>> = BTreeMap::new();
    for committed in &last.transfers {
        ledger.entry(&committed.name).or_default().push(committed);
    }
    for (name, history) in &context.histories.names {
        if !history.transfers.is_empty() {
            let entries = ledger.remove(name).unwrap_or_default();
            compare(history, &entries, findings.about(name));
            balances(context, name, &entries, findings);
        }
    }
    for (name, entries) in ledger {
        let findings = findings.about(name);
        for committed in entries {
            unknown_entry(committed, findings);
        }
    }
}

fn compare(history: &History<'_>, entries: &[&Committed], findings: &mut Findings) {
    for pair in entries.windows(2) {
        let [first, second] = pair else { continue };
        if first.token > second.token {
            findings.add(
                Kind::StaleCommit,
                |_| {
                    format!(
                        "worker {} committed with token {} behind worker {} with {}",
                        second.worker, second.token, first.worker, first.token
                    )
                },
                None,
            );
        }
    }
    let key = |committed: &Committed| (committed.worker, committed.task, committed.invoked);
    let mut found: HashMap<(u32, u32, u64), Vec<&Committed>> = HashMap::new();
    for committed in entries {
        found.entry(key(committed)).or_default().push(committed);
    }
    for transfer in &history.transfers {
        let there = found.remove(&(transfer.worker, transfer.task, transfer.invoked));
        let there = there.unwrap_or_default();
        let count = there.len();
        let same = there
            .iter()
            .all(|entry| (entry.token, entry.amount) == (transfer.token, transfer.amount));
        let expected = match transfer.outcome {
            Outcome::Done => 1..=1,
            Outcome::Unknown => 0..=1,
            Outcome::Refused | Outcome::Lost | Outcome::Failed => 0..=0,
        };
        if !same || !expected.contains(&count) {
            findings.add(
                Kind::WrongLedger,
                |at| {
                    format!(
                        "the transfer of worker {} at {}, of which was said {:?}, stands {count} times in the ledger{}",
                        transfer.worker,
                        at.at(transfer.invoked),
                        transfer.outcome,
                        if same { "" } else { ", with another token or amount" },
                    )
                },
                transfer.record,
            );
        }
    }
    for committed in entries {
        if found.contains_key(&key(committed)) {
            unknown_entry(committed, findings);
        }
    }
}

fn unknown_entry(committed: &Committed, findings: &mut Findings) {
    findings.add(
        Kind::WrongLedger,
        |at| {
            format!(
                "a transfer of worker {} at {} stands in the ledger, and nobody began it",
                committed.worker,
                at.at(committed.invoked),
            )
        },
        None,
    );
}

fn balances(
    context: &Context<'_>,
    name: &Arc<str>,
    entries: &[&Committed],
    findings: &mut Findings,
) {
    let moved: i128 = entries.iter().map(|entry| i128::from(entry.amount)).sum();
    let balances = context.accounts.get(&**name).copied().unwrap_or_default();
    let [first, second] = balances.map(i128::from);
    if (first, second) != (-moved, moved) {
        findings.add(
            Kind::WrongBalance,
            |_| {
                format!(
                    "the accounts hold {first} and {second}, where {moved} was moved from 0 and 0"
                )
            },
            None,
        );
    }
}
