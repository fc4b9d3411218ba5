//! What is printed: tables for people, JSON for programs.

use std::io::Write;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use tag_lock::{LockInfo, LockState, Urgency, Wish};

use crate::exit::Failure;

/// A lock, for programs. The names of the fields stay as they are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Lock {
    pub(crate) name: String,
    /// `free`, `held`, `shared` or `kept`; of a slot of a job also `done`.
    pub(crate) state: &'static str,
    /// Whoever has it; if it is free, whoever had it last.
    pub(crate) held_by: String,
    pub(crate) description: String,
    /// When it is free if it is not renewed.
    pub(crate) deadline: String,
    pub(crate) remaining_seconds: f64,
    /// The highest that this grant may give out.
    pub(crate) highest_fencing_token: u64,
    pub(crate) depth: u64,
    /// When it was last taken, renewed or freed.
    pub(crate) modified: String,
    /// `waits`, `urgent` or `stands_by`; null if nobody is known to wait. So are the next two.
    pub(crate) wanted: Option<&'static str>,
    /// Until when that counts if it is not written again.
    pub(crate) wanted_until: Option<String>,
    pub(crate) wanted_remaining_seconds: Option<f64>,
}

impl From<&LockInfo> for Lock {
    fn from(info: &LockInfo) -> Self {
        Self {
            name: info.name.clone(),
            state: state(info.state),
            held_by: info.held_by.clone(),
            description: info.description.clone(),
            deadline: rfc3339(info.deadline),
            remaining_seconds: info.remaining.as_secs_f64(),
            highest_fencing_token: info.highest_fencing_token,
            depth: info.depth,
            modified: rfc3339(info.modified),
            wanted: info.wish.map(|wish| urgency(wish.urgency)),
            wanted_until: info.wish.map(|wish| rfc3339(wish.until)),
            wanted_remaining_seconds: info.wish.map(|wish| wish.remaining.as_secs_f64()),
        }
    }
}

pub(crate) fn state(state: LockState) -> &'static str {
    match state {
        LockState::Held => "held",
        LockState::Kept => "kept",
        LockState::Shared => "shared",
        LockState::Done => "done",
        _ => "free",
    }
}

fn urgency(urgency: Urgency) -> &'static str {
    match urgency {
        Urgency::Urgent => "urgent",
        Urgency::StandsBy => "stands_by",
        _ => "waits",
    }
}

/// Whether it is wanted, for people, in a column.
pub(crate) fn wanted(wish: Option<Wish>) -> &'static str {
    match wish.map(|wish| wish.urgency) {
        None => "",
        Some(Urgency::Urgent) => "urgently",
        Some(Urgency::StandsBy) => "for long",
        Some(_) => "yes",
    }
}

/// By whom it is wanted, for people.
pub(crate) fn wanted_by(wish: Option<Wish>) -> &'static str {
    match wish.map(|wish| wish.urgency) {
        None => "by nobody, as far as the table tells",
        Some(Urgency::Urgent) => "urgently, by somebody who waits",
        Some(Urgency::StandsBy) => "by somebody who has waited for 30 s or more",
        Some(_) => "by somebody who waits",
    }
}

pub(crate) fn rfc3339(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// A time for people, in UTC.
pub(crate) fn clock_time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// A duration for people: in its two largest units, or to a tenth of a second below ten.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 10 {
        return format!("{:.1}s", duration.as_secs_f64());
    }
    let units = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let first = units
        .iter()
        .position(|(count, _)| *count > 0)
        .unwrap_or_default();
    let shown = units
        .iter()
        .skip(first)
        .take(2)
        .filter(|(count, _)| *count > 0);
    let shown: Vec<String> = shown
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect();
    shown.join(" ")
}

/// Text from the table, without what would steer a terminal.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        let turns = matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if character.is_control() || turns {
            plain.extend(character.escape_default());
        } else {
            plain.push(character);
        }
    }
    plain
}

/// Prints a line. It may be that nobody reads it.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

/// Prints one JSON document in a line.
pub(crate) fn json(document: &impl Serialize) -> Result<(), Failure> {
    let text =
        serde_json::to_string(document).map_err(|error| Failure::Other(error.to_string()))?;
    line(&text)
}

/// Prints rows in columns, each as wide as it has to be.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count());
        cells.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len())
        .map(|column| width(column).max(head[column].chars().count()))
        .collect();
    let written = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (cell, width) in cells.zip(&widths) {
            text.push_str(&format!("{cell:<width$}  "));
        }
        text.trim_end().to_owned()
    };
    line(&written(&mut head.iter().copied()))?;
    for row in rows {
        line(&written(&mut row.iter().map(String::as_str)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (millis, text) in [
            (0, "0.0s"),
            (1_250, "1.2s"),
            (29_900, "29s"),
            (60_000, "1m"),
            (3_601_000, "1h"),
            (5_400_000, "1h 30m"),
            (2_592_000_000, "30d"),
            (315_360_000_000, "3650d"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_name_does_not_steer_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(plain("größe"), "größe");
    }
}
