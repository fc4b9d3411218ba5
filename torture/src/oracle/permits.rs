//! Semaphores: never more permits at once than there are, none of a slot that there is not, all of several that were asked for at once, and a
//! free one for who waits.
//!
//! Each slot is a lock too, with a history of its own: that no two hold one slot, and what their tokens must be, is judged there.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use super::Context;
use super::finding::{Findings, Kind};
use super::index::{History, Hold, Permit};
use super::waiting;
use crate::setup;

pub(super) fn check(
    name: &Arc<str>,
    history: &History<'_>,
    context: &Context<'_>,
    findings: &mut Findings,
) {
    let Some(permits) = history.permits.iter().map(|permit| permit.permits).max() else {
        return;
    };
    findings.checked("permits", history.permits.len());
    for permit in &history.permits {
        if permit.slot >= permit.permits {
            findings.add(
                Kind::SlotOutside,
                |at| {
                    format!(
                        "worker {} was granted slot {} of {} at {}",
                        permit.record.worker,
                        permit.slot,
                        permit.permits,
                        at.at(permit.record.returned),
                    )
                },
                [permit.record],
            );
        }
    }
    in_part(history, findings);
    let highest = history.permits.iter().map(|permit| permit.slot + 1).max();
    let slots: Vec<Option<&History<'_>>> = (0..permits.max(highest.unwrap_or_default()))
        .map(|slot| {
            let names = &context.histories.names;
            names.get(setup::slot(name, slot).as_str())
        })
        .collect();
    let holds = slots.iter().flatten().flat_map(|slot| &slot.holds);
    if context.case.rules.leases_exclude {
        number(holds.collect(), permits, findings);
    }
    service(history, &slots, permits, context, findings);
}

/// Whoever asked for several at once has so many, or none.
fn in_part<'h>(history: &History<'h>, findings: &mut Findings) {
    let mut calls: HashMap<_, (&Permit<'h>, HashSet<u32>)> = HashMap::new();
    for permit in &history.permits {
        let call = (
            permit.record.worker,
            permit.record.task,
            permit.record.invoked,
        );
        let (_, slots) = calls.entry(call).or_insert((permit, HashSet::new()));
        slots.insert(permit.slot);
    }
    calls.retain(|_, (permit, _)| permit.count > 1);
    findings.checked("several permits", calls.len());
    for (permit, slots) in calls.into_values() {
        if slots.len() as u64 != u64::from(permit.count) {
            findings.add(
                Kind::GrantedInPart,
                |at| {
                    format!(
                        "worker {} has {} permits since {} of {} for which it had asked at once",
                        permit.record.worker,
                        slots.len(),
                        at.at(permit.record.returned),
                        permit.count,
                    )
                },
                [permit.record],
            );
        }
    }
}

/// At no instant are more holds trusted than there are permits: whatever slots they say they have.
fn number(mut holds: Vec<&Hold<'_>>, permits: u32, findings: &mut Findings) {
    holds.retain(|hold| hold.trusted_until > hold.grant.returned);
    holds.sort_by_key(|hold| hold.grant.returned);
    let permits = usize::try_from(permits).unwrap_or(usize::MAX);
    let mut ends: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    for hold in holds {
        while let Some(Reverse(end)) = ends.peek()
            && *end <= hold.grant.returned
        {
            ends.pop();
        }
        ends.push(Reverse(hold.trusted_until));
        if ends.len() > permits {
            findings.add(
                Kind::TooManyPermits,
                |at| {
                    format!(
                        "worker {} was granted a permit at {}, when {permits} others were trusted, which is all",
                        hold.worker(),
                        at.at(hold.grant.returned),
                    )
                },
                [Some(hold.grant), hold.end].into_iter().flatten(),
            );
        }
    }
}

/// Whoever waits for one permit waits for each slot: none is free for long meanwhile. What was refused, or has no answer, may have been granted on
/// any; and who waits for several may have any of them.
fn service<'h>(
    history: &History<'h>,
    slots: &[Option<&History<'h>>],
    permits: u32,
    context: &Context<'_>,
    findings: &mut Findings,
) {
    let waits = || {
        let single = history.permits.iter().filter(|permit| permit.count == 1);
        let granted = single.map(|permit| permit.record);
        granted.chain(history.waits())
    };
    let own = usize::try_from(permits).unwrap_or(usize::MAX);
    for slot in slots.iter().take(own) {
        let as_lock = History {
            holds: slot.map(|slot| slot.holds.clone()).unwrap_or_default(),
            refusals: history.refusals.clone(),
            ..History::default()
        };
        waiting::check_waits(&as_lock, waits(), context, findings);
    }
}
