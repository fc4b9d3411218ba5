//! What a run tells at its end.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::setup::Workload;

/// The report, also as JSON in the run's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Repeats the schedule.
    pub seed: u64,
    /// What the workers did.
    pub workload: Workload,
    /// Which server, and how many.
    pub server: String,
    /// The library's deliberate breakage, if there was one.
    pub mutant: Option<String>,
    /// How long the load lasted, in seconds.
    pub seconds: u64,
    /// Worker processes, those that replaced killed ones included.
    pub workers: u32,
    /// Operations that ended.
    pub operations: u64,
    /// Critical sections.
    pub sections: u64,
    /// Increments that were acknowledged.
    pub increments: u64,
    /// Operations whose worker was killed.
    pub open: u64,
    /// Faults that struck, by their kinds.
    pub faults: BTreeMap<String, u64>,
    /// Deadlocks that the servers counted.
    pub deadlocks: u64,
    /// Statements that the servers ended because they took too long.
    pub timeouts: u64,
    /// Conflicts between the nodes of a cluster: the library runs such a packet again.
    pub conflicts: Option<u64>,
    /// The longest time from a server being whole again to the first acknowledged change, in milliseconds.
    pub worst_recovery: u64,
    /// The longest time for which somebody waited for a lock that nobody held, in milliseconds.
    pub worst_wait: u64,
    /// How often others had a lock while a worker waited for it, at the most.
    pub most_passed_over: u64,
    /// The longest time by which a call took longer than it had said it would, in milliseconds.
    #[serde(default)]
    pub most_overrun: u64,
    /// The longest time after which others were still let in to read, while somebody waited to write, in milliseconds.
    #[serde(default)]
    pub readers_let_in: u64,
    /// What the oracle looked at.
    pub checked: BTreeMap<String, u64>,
    /// How often something was that must not be.
    pub violations: u64,
    /// What it was, the first ones of each kind.
    pub findings: Vec<String>,
    /// What the rig itself could not do. It says nothing about the library.
    pub problems: Vec<String>,
}

/// The most findings that are printed; the file has all.
const PRINTED: usize = 20;

impl Report {
    /// Writes it into the run's directory.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        fs::write(
            directory.join("report.json"),
            serde_json::to_vec_pretty(self)?,
        )
    }

    /// Reads it.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let text = fs::read(directory.join("report.json"))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// The last line of a run.
    #[must_use]
    pub fn last_line(&self) -> String {
        format!(
            "violations: {}, checked: {}, faults: {}",
            self.violations,
            self.checked.values().sum::<u64>(),
            self.faults.values().sum::<u64>()
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, value: &dyn fmt::Display| writeln!(f, "{name:<28}{value}");
        line("server", &self.server)?;
        line("workload", &format!("{:?}", self.workload).to_lowercase())?;
        line("seed", &self.seed)?;
        if let Some(mutant) = &self.mutant {
            line("mutant", mutant)?;
        }
        line("seconds", &self.seconds)?;
        line("workers", &self.workers)?;
        line("operations", &self.operations)?;
        line("critical sections", &self.sections)?;
        line("increments", &self.increments)?;
        line("open at a kill", &self.open)?;
        line("server deadlocks", &self.deadlocks)?;
        line("statements timed out", &self.timeouts)?;
        if let Some(conflicts) = &self.conflicts {
            line("conflicts retried", conflicts)?;
        }
        line("worst recovery", &format!("{} ms", self.worst_recovery))?;
        line("worst wait", &format!("{} ms", self.worst_wait))?;
        line("most often passed over", &self.most_passed_over)?;
        line("longest overrun", &format!("{} ms", self.most_overrun))?;
        if self.workload == Workload::Shared {
            let let_in = format!("{} ms", self.readers_let_in);
            line("readers before a writer", &let_in)?;
        }
        for (title, all) in [("checked", &self.checked), ("faults", &self.faults)] {
            line(title, &all.values().sum::<u64>())?;
            for (name, count) in all {
                line(&format!("  {name} "), count)?;
            }
        }
        for (title, all) in [("violation", &self.findings), ("problem", &self.problems)] {
            for one in all.iter().take(PRINTED) {
                writeln!(f, "{title}: {one}")?;
            }
            if all.len() > PRINTED {
                writeln!(f, "… and {} more, in report.json", all.len() - PRINTED)?;
            }
        }
        Ok(())
    }
}
