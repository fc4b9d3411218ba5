//! The oracle: judges what the workers saw. It looks at nothing but the history, so a history that was kept can be judged
//! again, and none of its checks is more than O(n log n) but the windows that a linearizability checker searches.
//!
//! What is ambiguous stays ambiguous: an operation without a record (its worker was killed), or with an unknown
//! outcome, may have happened once at any time after it was invoked, or never. A finding says what no such choice explains.

mod bank;
mod counter;
mod election;
mod finding;
mod index;
mod jobs;
mod linear;
mod locks;
mod order;
mod overrunning;
mod overtaking;
mod permits;
mod sections;
mod shared;
mod subset;
#[cfg(test)]
mod tests;
mod together;
mod waiting;

pub use finding::{Finding, Kind, Verdict};

use std::collections::HashMap;

use finding::Findings;
use index::Histories;

use crate::history::{Booked, FinalState, Log, Unavailable};

/// What is judged.
#[derive(Debug, Clone, Copy)]
pub struct Case<'c> {
    /// The logs of all workers.
    pub logs: &'c [Log],
    /// What stood in the tables afterwards.
    pub last: &'c FinalState,
    /// When somebody could not be served, as far as the nemesis knows: that does not count as waiting. The death of a
    /// worker is such a span too, of no length: until then it may have renewed its leases.
    pub unavailable: &'c [Unavailable],
    /// Which checks hold for this run.
    pub rules: Rules,
}

/// Which checks hold for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Leases exclude each other while they are trusted. Not where the server's clock is stepped: there only fencing
    /// tokens and verification inside a transaction protect.
    pub leases_exclude: bool,
    /// Tokens rise with every grant. Not where a failover may lose commits and go back to an older clock.
    pub tokens_rise: bool,
    /// Counters lose and double nothing. Not where a failover may lose commits.
    pub counters_are_exact: bool,
    /// A lock that nobody holds is granted to one who waits for it within the ttl of its last holder and this; `None`: the
    /// worst wait is reported, and is no finding.
    pub served_within: Option<u64>,
    /// While a worker waits for a lock, the others have it at most so many times; `None`: the most is reported, and is no
    /// finding.
    pub passed_over: Option<u64>,
    /// Who asks so much later than another task of its client does not have the lock so much sooner; `None`: nobody looks.
    pub in_order_within: Option<u64>,
    /// A call takes so much longer than it said, at the most; `None`: the most is reported, and is no finding.
    pub ends_within: Option<u64>,
    /// The server may report no deadlock.
    pub no_deadlocks: bool,
    /// How many windows go to the linearizability checker.
    pub windows: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            leases_exclude: true,
            tokens_rise: true,
            counters_are_exact: true,
            served_within: None,
            passed_over: None,
            in_order_within: None,
            ends_within: None,
            no_deadlocks: true,
            windows: 200,
        }
    }
}

/// Judges a history.
pub fn judge(case: &Case<'_>) -> Verdict {
    let histories = Histories::of(case.logs);
    let context = Context::of(case, &histories);
    let mut findings = Findings::new(histories.begin);
    for (name, history) in &histories.names {
        let findings = findings.about(name);
        locks::check(history, case.rules, findings);
        sections::check(history, case.rules, findings);
        waiting::check(history, &context, findings);
        overtaking::check(history, &context, findings);
        order::check(history, &context, findings);
        counter::check(name, history, &context, findings);
        bank::check(history, findings);
        jobs::check(name, history, &context, findings);
        permits::check(name, history, &context, findings);
        election::check(history, findings);
        shared::check(name, history, &context, findings);
    }
    locks::check_end(&context, &mut findings);
    bank::check_ledger(&context, &mut findings);
    together::check(&context, &mut findings);
    overrunning::check(&context, &mut findings);
    linear::check(&context, &mut findings);
    findings.into_verdict()
}

/// What the checks look up.
struct Context<'c> {
    case: &'c Case<'c>,
    histories: &'c Histories<'c>,
    counters: HashMap<&'c str, i64>,
    accounts: HashMap<&'c str, [i64; 2]>,
    /// By slot.
    booked: HashMap<&'c str, Vec<&'c Booked>>,
    /// When nobody could be served.
    everybody: Vec<(u64, u64)>,
    /// When a worker could not, sorted.
    workers: HashMap<u32, Vec<(u64, u64)>>,
    /// When one of a worker's connections was silent.
    silences: HashMap<u32, Vec<(u64, u64)>>,
}

impl<'c> Context<'c> {
    fn of(case: &'c Case<'c>, histories: &'c Histories<'c>) -> Self {
        let mut everybody = Vec::new();
        let mut workers: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
        let mut silences: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
        for span in case.unavailable {
            match span.worker {
                Some(worker) if span.silent => silences
                    .entry(worker)
                    .or_default()
                    .push((span.from, span.to)),
                None => everybody.push((span.from, span.to)),
                Some(worker) => workers
                    .entry(worker)
                    .or_default()
                    .push((span.from, span.to)),
            }
        }
        for spans in workers.values_mut() {
            spans.sort_unstable();
        }
        let mut booked: HashMap<&str, Vec<&Booked>> = HashMap::new();
        for row in &case.last.booked {
            booked.entry(&row.name).or_default().push(row);
        }
        let counters = case.last.counters.iter();
        let accounts = case.last.accounts.iter();
        Self {
            case,
            histories,
            counters: counters.map(|(name, value)| (&**name, *value)).collect(),
            accounts: accounts.map(|(name, both)| (&**name, *both)).collect(),
            booked,
            everybody,
            workers,
            silences,
        }
    }

    fn spans_of(&self, worker: u32) -> &[(u64, u64)] {
        self.workers.get(&worker).map_or(&[], Vec::as_slice)
    }

    /// When the worker could not be served, while others may have been, in order: a server of a cluster that is away is not away for all.
    fn disturbed(&self, worker: u32) -> Vec<(u64, u64)> {
        let mut spans = [self.spans_of(worker), &self.everybody].concat();
        spans.sort_unstable();
        spans
    }

    /// The same, and when one of its connections was silent: over it go the questions of all who wait.
    fn unheard(&self, worker: u32) -> Vec<(u64, u64)> {
        let silences = self.silences.get(&worker).map_or(&[][..], Vec::as_slice);
        let mut spans = [&self.disturbed(worker), silences].concat();
        spans.sort_unstable();
        spans
    }

    /// When the worker's process stood still, in order.
    fn stops_of(&self, worker: u32) -> impl Iterator<Item = (u64, u64)> {
        let all = self.case.unavailable.iter();
        let its = all.filter(move |span| span.stopped && span.worker == Some(worker));
        its.map(|span| (span.from, span.to))
    }

    /// Whether the tasks of the worker have a client each.
    fn are_apart(&self, worker: u32) -> bool {
        let mut logs = self.case.logs.iter();
        logs.any(|log| log.worker == worker && log.apart)
    }

    /// The end of the last span in which the worker could not be served, its death for instance.
    fn died(&self, worker: u32) -> u64 {
        let ends = self.spans_of(worker).iter().map(|(_, to)| *to);
        ends.max().unwrap_or_default()
    }
}
