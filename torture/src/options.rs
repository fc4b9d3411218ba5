//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::setup::Workload;

/// Breaks what locks and counters rest on, and judges what their users saw.
///
/// Needs a server that it may kill: `scripts/with-mysql cargo run --release -p tag-lock-torture`. The last line is
/// `violations: N, checked: N, faults: N`; the status is 1 when there are violations, and 2 when the run itself failed.
#[derive(Debug, Clone, Parser)]
#[command(name = "torture", args_conflicts_with_subcommands = true)]
pub struct Options {
    /// What else to do than a run.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The run.
    #[command(flatten)]
    pub run: RunOptions,
}

/// What else can be done.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Judge the history of a run again.
    Judge {
        /// The run's directory.
        directory: PathBuf,
    },
    /// Run each mutant until it is caught, and print a table; the status is 1 when one survives.
    Mutants {
        /// Only these; otherwise all.
        names: Vec<String>,
        /// How long each may live, in seconds.
        #[arg(long, default_value_t = 120)]
        limit: u64,
        /// Where everything random comes from.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// What a run starts its workers with.
    #[command(hide = true)]
    Worker {
        /// The run's directory.
        directory: PathBuf,
        /// The worker's number.
        worker: u32,
    },
}

/// The options of a run.
#[derive(Debug, Clone, Args)]
pub struct RunOptions {
    /// How long the load lasts. Defaults to 60, or to no limit if there is a target.
    #[arg(long, value_name = "S")]
    pub seconds: Option<u64>,
    /// Run until so many critical sections are done.
    #[arg(long, value_name = "N")]
    pub sections: Option<u64>,
    /// Run until so many increments are acknowledged.
    #[arg(long, value_name = "N")]
    pub increments: Option<u64>,
    /// Run until so many faults have struck.
    #[arg(long = "fault-count", value_name = "N")]
    pub fault_count: Option<u64>,
    /// Where everything random comes from; a fresh one by default.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// What the workers do.
    #[arg(long, value_enum, default_value_t = Workload::Mixed)]
    pub workload: Workload,
    /// `default`, `none`, or names with commas between; a wrong name lists them.
    #[arg(long, value_name = "LIST", default_value = "default")]
    pub faults: String,
    /// How many times as long as usual the time between two faults is: for runs that shall come to many operations.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub fault_gap: u32,
    /// Break the library on purpose; builds it once more. `torture mutants` tries all of them.
    #[arg(long, value_name = "M")]
    pub mutant: Option<String>,
    /// How many worker processes.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: u16,
    /// The `torture` of another version of the library: every second worker is one of its, as in a rollout.
    #[arg(long, value_name = "PROGRAM", conflicts_with = "mutant")]
    pub beside: Option<PathBuf>,
    /// How many names of locks each kind of work has.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub names: u32,
    /// How long a lease lasts, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1_500, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub ttl: u64,
    /// How long a released lease idles, in milliseconds. Defaults to a ttl in the workload `linger`, and to nothing in the others. Who
    /// does not wait may be refused a lock that only idles: with much more than a ttl that is reported.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=600_000))]
    pub linger: Option<u64>,
    /// The run's directory; must not exist. Defaults to one within target/torture/.
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Keep the history although nothing was found.
    #[arg(long)]
    pub keep: bool,
}

impl RunOptions {
    /// The longest time of the load.
    #[must_use]
    pub fn limit(&self) -> Option<Duration> {
        let targets = [self.sections, self.increments, self.fault_count];
        match self.seconds {
            Some(seconds) => Some(Duration::from_secs(seconds)),
            None if targets.iter().any(Option::is_some) => None,
            None => Some(Duration::from_secs(60)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_makes_sense() {
        use clap::CommandFactory;
        Options::command().debug_assert();
    }

    #[test]
    fn a_target_lifts_the_default_limit() {
        let limit = |text: &str| {
            let options = Options::try_parse_from(text.split(' '));
            options.map(|options| options.run.limit()).ok()
        };
        let seconds = |seconds| Some(Some(Duration::from_secs(seconds)));
        assert_eq!(limit("torture"), seconds(60));
        assert_eq!(limit("torture --sections 5"), Some(None));
        assert_eq!(limit("torture --sections 5 --seconds 7"), seconds(7));
    }
}
