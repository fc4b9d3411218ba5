//! The tasks of one client have a lock in the order in which they asked for it.
//!
//! A task writes down that it asks before it does, and that it has the lock after it has it, whenever it is scheduled: so the order is judged
//! by times that are clearly apart.

use std::collections::BTreeMap;

use super::Context;
use super::finding::{Findings, Kind, Seconds};
use super::index::History;
use crate::history::Record;

/// The grants of one worker.
struct Grants<'h> {
    /// By the instant at which they were asked for.
    asked: Vec<&'h Record>,
    /// Of each and all that were asked for later: the one that came first.
    first_since: Vec<&'h Record>,
}

impl<'h> Grants<'h> {
    fn of(mut asked: Vec<&'h Record>) -> Self {
        asked.sort_unstable_by_key(|grant| grant.invoked);
        let mut first_since = asked.clone();
        for position in (1..first_since.len()).rev() {
            if first_since[position].returned < first_since[position - 1].returned {
                first_since[position - 1] = first_since[position];
            }
        }
        Self { asked, first_since }
    }

    /// Who asked later than the wait by more than `apart`, and had the lock sooner by more than that.
    fn before(&self, wait: &Record, apart: u64) -> Option<&'h Record> {
        let later = wait.invoked.saturating_add(apart);
        let position = self.asked.partition_point(|grant| grant.invoked <= later);
        let first = self.first_since.get(position)?;
        (first.returned.saturating_add(apart) < wait.returned).then_some(first)
    }
}

pub(super) fn check(history: &History<'_>, context: &Context<'_>, findings: &mut Findings) {
    let Some(apart) = context.case.rules.in_order_within else {
        return;
    };
    // Any slot of a semaphore will do for who waits; who reads and who writes stand in two queues.
    if history.is_slot || !history.permits.is_empty() || !history.sharing.is_empty() {
        return;
    }
    // A candidate that failed asks again, and its candidacy is the same one.
    if !history.election.leaders.is_empty() {
        return;
    }
    let mut workers: BTreeMap<u32, Vec<&Record>> = BTreeMap::new();
    for hold in history.holds.iter().filter(|hold| !hold.together) {
        workers.entry(hold.worker()).or_default().push(hold.grant);
    }
    workers.retain(|worker, _| !context.are_apart(*worker));
    let workers: BTreeMap<u32, Grants<'_>> = workers
        .into_iter()
        .map(|(worker, grants)| (worker, Grants::of(grants)))
        .collect();
    let mut count = 0;
    for wait in history.waits() {
        let Some(grants) = workers.get(&wait.worker) else {
            continue;
        };
        let least = apart.saturating_mul(2);
        if wait.returned - wait.invoked <= least || stood_still(wait, context) {
            continue;
        }
        count += 1;
        if let Some(before) = grants.before(wait, apart) {
            out_of_turn(wait, before, findings);
        }
    }
    findings.checked("waits in order", count);
}

/// Whether the worker's process stood still meanwhile: then what a task wrote says little about when it was.
fn stood_still(wait: &Record, context: &Context<'_>) -> bool {
    let mut stops = context.stops_of(wait.worker);
    stops.any(|(from, to)| from < wait.returned && wait.invoked < to)
}

fn out_of_turn(wait: &Record, before: &Record, findings: &mut Findings) {
    findings.add(
        Kind::OutOfTurn,
        |at| {
            format!(
                "worker {} task {} waited from {} to {}, and task {}, which asked {} later, had the lock {} sooner",
                wait.worker,
                wait.task,
                at.at(wait.invoked),
                at.at(wait.returned),
                before.task,
                Seconds(before.invoked - wait.invoked),
                Seconds(wait.returned - before.returned),
            )
        },
        [wait, before],
    );
}
