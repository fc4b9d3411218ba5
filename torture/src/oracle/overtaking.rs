//! Nobody starves: while a worker waits for a lock, the others have so many turns and no more.
//!
//! A turn is one lease, however many of its worker's tasks that passes it on to: their tokens follow each other. How long a turn is, is of
//! no account here: a machine that is slow delays all alike. What the nemesis does to one worker does not, nor to one server of a cluster:
//! who cannot be served is not passed over.

use super::Context;
use super::finding::{Findings, Kind};
use super::index::History;
use super::waiting::without;
use crate::history::Record;

/// One worker has the lock.
pub(super) struct Turn {
    worker: u32,
    began: u64,
}

pub(super) fn turns(history: &History<'_>) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    let mut last_token = 0;
    for hold in &history.holds {
        let (worker, began) = (hold.worker(), hold.grant.returned);
        let passed_on = last_token + 1 == hold.token;
        if !passed_on || turns.last().is_none_or(|last| last.worker != worker) {
            turns.push(Turn { worker, began });
        }
        last_token = hold.token;
    }
    turns
}

/// How many turns began in a time.
pub(super) fn begun(turns: &[Turn], (from, to): (u64, u64)) -> u64 {
    let first = turns.partition_point(|turn| turn.began <= from);
    let last = turns.partition_point(|turn| turn.began < to);
    last.saturating_sub(first) as u64
}

/// The most turns that others had, one after the other, while the worker waited.
fn passed_over(turns: &[Turn], worker: u32, (from, to): (u64, u64)) -> u64 {
    let first = turns.partition_point(|turn| turn.began <= from);
    let last = turns.partition_point(|turn| turn.began < to);
    let stretches = turns[first..last].split(|turn| turn.worker == worker);
    let longest = stretches.map(<[Turn]>::len).max();
    longest.unwrap_or_default() as u64
}

pub(super) fn check(history: &History<'_>, context: &Context<'_>, findings: &mut Findings) {
    // Any slot of a semaphore will do for who waits.
    if history.is_slot || !history.permits.is_empty() {
        return;
    }
    let turns = turns(history);
    let mut count = 0;
    for wait in history.waits() {
        let unheard = context.unheard(wait.worker);
        for span in without((wait.invoked, wait.returned), &unheard) {
            count += 1;
            let passed = passed_over(&turns, wait.worker, span);
            findings.passed_over(passed);
            if context
                .case
                .rules
                .passed_over
                .is_some_and(|most| passed > most)
            {
                starved(wait, passed, findings);
            }
        }
    }
    findings.checked("undisturbed waits", count);
}

pub(super) fn starved(wait: &Record, passed: u64, findings: &mut Findings) {
    findings.add(
        Kind::Overtaken,
        |at| {
            format!(
                "worker {} task {} waited from {} to {}, and meanwhile others had {passed} turns",
                wait.worker,
                wait.task,
                at.at(wait.invoked),
                at.at(wait.returned),
            )
        },
        [wait],
    );
}
