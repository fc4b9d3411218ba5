//! Critical sections: each reads an unprotected value, works, and writes its own. Only the lock keeps them apart.

use std::collections::HashMap;

use super::Rules;
use super::finding::{Findings, Kind};
use super::index::{History, Section};

/// What sections wrote.
pub(super) struct Written<'c, 'h> {
    /// Those that were trusted to their ends, by their tokens.
    pub(super) trusted: Vec<&'c Section<'h>>,
    /// The others, by what they wrote.
    pub(super) stray: HashMap<u64, &'c Section<'h>>,
}

impl<'c, 'h> Written<'c, 'h> {
    pub(super) fn of(history: &'c History<'h>) -> Self {
        let trust: HashMap<(u32, u64), u64> = history
            .holds
            .iter()
            .map(|hold| ((hold.worker(), hold.token), hold.trusted_until))
            .collect();
        let is_trusted = |section: &&Section<'_>| {
            let until = trust.get(&(section.worker, section.token));
            until.is_some_and(|until| section.returned <= *until)
        };
        let (mut trusted, stray): (Vec<_>, Vec<&Section<'_>>) =
            history.sections.iter().partition(is_trusted);
        trusted.sort_by_key(|section| (section.token, section.invoked));
        let stray = stray.into_iter();
        Self {
            trusted,
            stray: stray.map(|section| (section.wrote, section)).collect(),
        }
    }
}

/// Whether somebody may have read this until then: the section before it left it, or a stray one since.
pub(super) fn explains(
    stray: &HashMap<u64, &Section<'_>>,
    before: Option<&Section<'_>>,
    read: u64,
    until: u64,
) -> bool {
    let (left, since) = before.map_or((0, 0), |before| (before.wrote, before.invoked));
    let from_stray = |stray: &&Section<'_>| stray.invoked < until && stray.returned > since;
    read == left || stray.get(&read).is_some_and(from_stray)
}

/// A section that was trusted to its end finds what the one before it, by their tokens, has left. One that was not may
/// write at any instant until it ended (if it has an end on file), and what it wrote may be found instead.
pub(super) fn check(history: &History<'_>, rules: Rules, findings: &mut Findings) {
    if !rules.leases_exclude || history.sections.is_empty() {
        return;
    }
    let Written { trusted, stray } = Written::of(history);
    findings.checked("sections", trusted.len());
    let mut before: Option<&Section<'_>> = None;
    for section in trusted {
        let left = before.map_or(0, |before| before.wrote);
        if !explains(&stray, before, section.read, section.returned) {
            findings.add(
                Kind::LostUpdate,
                |at| {
                    let whose = before.map_or(0, |before| before.token);
                    format!(
                        "worker {} with token {} read {} at {}, where the section before it, with token {whose}, had left {left}",
                        section.worker,
                        section.token,
                        section.read,
                        at.at(section.invoked),
                    )
                },
                [before.and_then(|before| before.record), section.record]
                    .into_iter()
                    .flatten(),
            );
        }
        before = Some(section);
    }
}
