//! Critical sections: each reads an unprotected value, works, and writes its own. Only the lock keeps them apart.

use std::collections::HashMap;

use super::Rules;
use super::finding::{Findings, Kind};
use super::index::{History, Section};

/// A section that was trusted to its end finds what the one before it, by their tokens, has left. One that was not may
/// write at any instant until it ended (if it has an end on file), and what it wrote may be found instead.
pub(super) fn check(history: &History<'_>, rules: Rules, findings: &mut Findings) {
    if !rules.leases_exclude || history.sections.is_empty() {
        return;
    }
    let trust: HashMap<(u32, u64), u64> = history
        .holds
        .iter()
        .map(|hold| ((hold.worker(), hold.token), hold.trusted_until))
        .collect();
    let is_trusted = |section: &&Section<'_>| {
        let until = trust.get(&(section.worker, section.token));
        until.is_some_and(|until| section.returned <= *until)
    };
    let (mut trusted, stray): (Vec<&Section<'_>>, Vec<&Section<'_>>) =
        history.sections.iter().partition(is_trusted);
    trusted.sort_by_key(|section| (section.token, section.invoked));
    let stray: HashMap<u64, &Section<'_>> = stray
        .into_iter()
        .map(|section| (section.wrote, section))
        .collect();
    findings.checked("sections", trusted.len());
    let mut before: Option<&Section<'_>> = None;
    for section in trusted {
        let (left, since) = before.map_or((0, 0), |before| (before.wrote, before.invoked));
        let from_stray = stray
            .get(&section.read)
            .is_some_and(|stray| stray.invoked < section.returned && stray.returned > since);
        if section.read != left && !from_stray {
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
