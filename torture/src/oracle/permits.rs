//! Semaphores: never more permits at once than there are, none of a slot that there is not, and a free one for who waits.
//!
//! Each slot is a lock too, with a history of its own: that no two hold one slot, and what their tokens must be, is judged there.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::Context;
use super::finding::{Findings, Kind};
use super::index::{History, Hold};
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

/// Whoever waits waits for each slot: none is free for long meanwhile. What was refused, or has no answer, may have been granted on any.
fn service<'h>(
    history: &History<'h>,
    slots: &[Option<&History<'h>>],
    permits: u32,
    context: &Context<'_>,
    findings: &mut Findings,
) {
    let waits = || {
        let granted = history.permits.iter().map(|permit| permit.record);
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
