//! Elections: whoever is seen to lead is seen with the value that it campaigned with, and the work of a leader ends with its lease.
//!
//! Leading is to hold the election's lock: that no two lead, and what their tokens must be, is judged as of any lock.

use std::collections::HashMap;

use super::finding::{Findings, Kind};
use super::index::{History, Leader};

pub(super) fn check(history: &History<'_>, findings: &mut Findings) {
    let election = &history.election;
    if election.leaders.is_empty() && election.seen.is_empty() {
        return;
    }
    findings.checked("leaders", election.leaders.len());
    findings.checked("leaders seen", election.seen.len());
    let leaders = || election.leaders.iter();
    let by_token: HashMap<u64, &Leader<'_>> = leaders().map(|one| (one.token, one)).collect();
    let once = leaders().filter(|one| one.once);
    let by_value: HashMap<u64, &Leader<'_>> = once.map(|one| (one.value, one)).collect();
    for (record, token, value) in &election.seen {
        // Of a leader that nobody tells of (its worker was killed, or it had given up when it was elected) only that is known that it
        // is not one of the others. A candidate may have been elected before, and have heard of it when that was over.
        let other = match by_token.get(token) {
            Some(leader) => (leader.value != *value).then_some(leader),
            None => by_value.get(value).filter(|leader| leader.token < *token),
        };
        if let Some(leader) = other {
            findings.add(
                Kind::WrongLeader,
                |at| {
                    format!(
                        "worker {} saw at {} that {value} leads with token {token}, where worker {} led with {} and token {}",
                        record.worker,
                        at.at(record.returned),
                        leader.record.worker,
                        leader.value,
                        leader.token,
                    )
                },
                [leader.record, *record],
            );
        }
    }
    for (record, token, steps) in &election.worked_on {
        findings.add(
            Kind::WorkedOn,
            |at| {
                format!(
                    "the work of worker {} under token {token} went on {steps} times behind the end of its lease, until {}",
                    record.worker,
                    at.at(record.returned),
                )
            },
            [*record],
        );
    }
}
