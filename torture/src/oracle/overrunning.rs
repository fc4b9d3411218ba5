//! A call ends when it said it would, whatever the network and the server do.
//!
//! Workers write down what took notably longer. While a worker's process stands still, its calls cannot end: that time does not count.

use super::Context;
use super::finding::{Findings, Kind, Seconds};
use super::waiting::without;
use crate::history::{Event, Record};

/// Calls that overran, and those that ended too late.
pub(super) fn check(context: &Context<'_>, findings: &mut Findings) {
    let most = context.case.rules.ends_within;
    for log in context.case.logs {
        let stops: Vec<_> = context.stops_of(log.worker).collect();
        for record in &log.records {
            let Event::Overran { limit } = record.event else {
                continue;
            };
            let ran = without((record.invoked, record.returned), &stops);
            let ran: u64 = ran.iter().map(|(from, to)| to - from).sum();
            let over = ran.saturating_sub(limit);
            findings.overran(over);
            if most.is_some_and(|most| over > most) {
                ended_late(record, limit, over, findings);
            }
        }
    }
}

fn ended_late(record: &Record, limit: u64, over: u64, findings: &mut Findings) {
    findings.about(&record.name).add(
        Kind::EndedLate,
        |at| {
            format!(
                "a call of worker {} task {} that began at {} was to take {} at the most, and took {} longer",
                record.worker,
                record.task,
                at.at(record.invoked),
                Seconds(limit),
                Seconds(over),
            )
        },
        [record],
    );
}
