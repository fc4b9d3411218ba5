//! A history as it stands in a run's directory: what is judged, at once or again.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::history::{Event, FinalState, Log, Names, Outcome, Unavailable};
use crate::log;
use crate::oracle::{self, Case, Verdict};
use crate::setup::Setup;

/// What a run adds to the logs of its workers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aftermath {
    /// How many workers there were.
    pub workers: u32,
    /// What was left in the tables.
    pub last: FinalState,
    /// Who could not be served, and when.
    pub unavailable: Vec<Unavailable>,
    /// What the run itself saw that must not be, such as a worker that panicked.
    pub findings: Vec<String>,
}

/// What came out of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judgement {
    /// What the oracle said.
    pub verdict: Verdict,
    /// What the run itself saw that must not be.
    pub findings: Vec<String>,
    /// The longest time from an outage's end to the first acknowledged change, in nanoseconds.
    pub worst_recovery: u64,
    /// Operations that ended.
    pub operations: u64,
    /// Operations whose worker was killed.
    pub open: u64,
}

impl Judgement {
    /// How many things must not be.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.verdict.violations() + self.findings.len() as u64
    }

    /// The violations, one line each; of a kind that came very often, the first ones.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let said = self.verdict.findings.iter().map(ToString::to_string);
        self.findings.iter().cloned().chain(said).collect()
    }

    /// Writes the violations into the run's directory, each with its records.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(directory.join("violations.txt"))?);
        for finding in &self.findings {
            writeln!(file, "{finding}")?;
        }
        for finding in &self.verdict.findings {
            writeln!(file, "{finding}")?;
            for record in &finding.records {
                writeln!(file, "    worker {}: {record}", record.worker)?;
            }
        }
        file.flush()
    }
}

const FILE: &str = "aftermath.json";

impl Aftermath {
    /// Writes it into the run's directory.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let file = BufWriter::new(File::create(directory.join(FILE))?);
        Ok(serde_json::to_writer(file, self)?)
    }

    fn read(directory: &Path) -> io::Result<Self> {
        let path = directory.join(FILE);
        let file = File::open(&path).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!(
                    "{} cannot be read; did the run end? {error}",
                    path.display()
                ),
            )
        })?;
        Ok(serde_json::from_reader(BufReader::new(file))?)
    }
}

/// Judges the history in a run's directory.
///
/// # Errors
///
/// If it cannot be read.
pub fn judge(directory: &Path) -> io::Result<Judgement> {
    let setup = Setup::read(directory)?;
    let aftermath = Aftermath::read(directory)?;
    let mut names = Names::default();
    let mut logs = Vec::new();
    for worker in 1..=aftermath.workers {
        match log::read(directory, worker, &mut names) {
            Ok(log) => logs.push(log),
            // Killed before it began.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let verdict = oracle::judge(&Case {
        logs: &logs,
        last: &aftermath.last,
        unavailable: &aftermath.unavailable,
        rules: setup.rules(),
    });
    Ok(Judgement {
        worst_recovery: worst_recovery(&logs, &aftermath.unavailable),
        operations: logs.iter().map(|log| log.records.len() as u64).sum(),
        open: logs.iter().map(|log| log.open.len() as u64).sum(),
        verdict,
        findings: aftermath.findings,
    })
}

/// How long it took, at worst, until a change was acknowledged after the servers were whole again.
fn worst_recovery(logs: &[Log], unavailable: &[Unavailable]) -> u64 {
    let mut changes: Vec<u64> = logs
        .iter()
        .flat_map(|log| &log.records)
        .filter(|record| {
            matches!(
                record.event,
                Event::Granted { .. }
                    | Event::Added {
                        outcome: Outcome::Done,
                        ..
                    }
            )
        })
        .map(|record| record.returned)
        .collect();
    changes.sort_unstable();
    let outages = unavailable.iter().filter(|span| span.worker.is_none());
    outages
        .filter_map(|outage| {
            let first = changes.partition_point(|change| *change < outage.to);
            changes.get(first).map(|change| change - outage.to)
        })
        .max()
        .unwrap_or(0)
}
