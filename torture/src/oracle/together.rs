//! Several locks at once: all are granted or none, and what a transaction under all of them did is there of all or of none.
//!
//! Each of them is a lock, and each account is one of the bank's: the rest is judged there.

use std::collections::HashMap;

use super::Context;
use super::finding::{Findings, Kind};
use super::index::History;
use crate::history::{Event, Record};

/// Which task's call, and when it was made: all that is told of the locks of one call has the same.
type Call = (u32, u32, u64);

pub(super) fn check(context: &Context<'_>, findings: &mut Findings) {
    let histories = context.histories.names.iter();
    let together: Vec<_> = histories.filter(|(_, history)| is_one(history)).collect();
    if together.is_empty() {
        return;
    }
    grants(together.iter().map(|(_, history)| *history), findings);
    if !context.case.rules.counters_are_exact {
        return;
    }
    let mut sizes: HashMap<Call, usize> = HashMap::new();
    let mut sum = 0;
    for (name, history) in together {
        let accounts = context.accounts.get(&**name).copied();
        sum += accounts.map_or(0, |[_, second]| i128::from(second));
        for transfer in &history.transfers {
            let call = (transfer.worker, transfer.task, transfer.invoked);
            *sizes.entry(call).or_default() += 1;
        }
    }
    ledger(context, &sizes, findings);
    if sum != 0 {
        findings.about(&"".into()).add(
            Kind::WrongBalance,
            |_| format!("{sum} is on the accounts between which transfers under several locks moved what they had, which was 0"),
            None,
        );
    }
}

fn is_one(history: &History<'_>) -> bool {
    // Several permits of a semaphore are judged with that.
    if history.is_slot || !history.permits.is_empty() {
        return false;
    }
    let mut holds = history.holds.iter().map(|hold| hold.together);
    let mut refusals = history.refusals.iter().map(|refusal| refusal.together);
    holds.any(|together| together) || refusals.any(|together| together)
}

/// A guard that was given to its caller has all locks that were asked for.
fn grants<'c, 'h: 'c>(histories: impl Iterator<Item = &'c History<'h>>, findings: &mut Findings) {
    // Those that were granted, and one that was not.
    let mut calls: HashMap<Call, (Option<&'h Record>, Option<&'h Record>)> = HashMap::new();
    for history in histories {
        let holds = history.holds.iter().filter(|hold| hold.together);
        let refusals = history.refusals.iter().filter(|one| one.together);
        let refused = refusals.filter_map(|refusal| refusal.record);
        for record in holds.map(|hold| hold.grant).chain(refused) {
            let call = calls.entry((record.worker, record.task, record.invoked));
            let (granted, refused) = call.or_default();
            match record.event {
                Event::Together { token: 0, .. } => *refused = Some(record),
                _ => *granted = Some(record),
            }
        }
    }
    findings.checked("groups", calls.len());
    for (granted, refused) in calls.into_values() {
        if let (Some(granted), Some(refused)) = (granted, refused) {
            findings.about(&refused.name).add(
                Kind::GrantedInPart,
                |at| {
                    format!(
                        "worker {} has a guard since {} that has {} and does not have this, for which it had asked at once",
                        refused.worker,
                        at.at(refused.returned),
                        granted.name,
                    )
                },
                [granted, refused],
            );
        }
    }
}

/// The rows that one transaction wrote are all there, or none is.
fn ledger(context: &Context<'_>, sizes: &HashMap<Call, usize>, findings: &mut Findings) {
    findings.checked("transfers of groups", sizes.len());
    let mut rows: HashMap<Call, usize> = HashMap::new();
    for row in &context.case.last.transfers {
        let call = (row.worker, row.task, row.invoked);
        *rows.entry(call).or_default() += 1;
    }
    for (call, size) in sizes {
        let there = rows.get(call).copied().unwrap_or_default();
        if there != 0 && there != *size {
            let (worker, _, invoked) = call;
            findings.about(&"".into()).add(
                Kind::WrongLedger,
                |at| {
                    format!(
                        "of the transfer between {size} accounts that worker {worker} began at {} {there} stand in the ledger",
                        at.at(*invoked),
                    )
                },
                None,
            );
        }
    }
}
