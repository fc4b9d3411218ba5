//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use crate::scenarios::SCENARIOS;
use crate::stage::Pace;
use crate::summary;

/// What `--help` prints.
pub const USAGE: &str = "\
Locks and counters on MySQL and MariaDB, raced against each other.

    DATABASE_URL=mysql://… cargo bench -p race -- [OPTIONS]

The account needs a database of its own, in which tables are dropped and created.

    --quick             two minutes in total
    --scenario NAME     only this scenario (may be repeated, or a list with commas)
    --contestant NAME   only this contestant (likewise)
    --rounds N          how often each contestant is measured in each cell
    --seconds S         how long one measurement takes
    --json FILE         one JSON object for each line of the table
    --plot FILE.svg     a picture of the table
    --summary FILE.svg  a picture of four cells; without --plot, --scenario and --contestant only they are raced
    --list              the scenarios and contestants

Contestants: tag-lock (this library), tag-lock-every-stripe (the same, where each request takes its stripe as in the
original design), article-v1 to -v3 (that design as it was published), unique-insert, for-update, optimistic (other
tables), get-lock, distributed-lock-mysql (GET_LOCK), redis, redis-fsync, redlock, and floor-… (no locks: what the server
can do).

Cargo runs a benchmark in its package's directory: give absolute paths.";

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Two minutes in total.
    pub quick: bool,
    /// The scenarios to run.
    pub scenarios: Vec<&'static str>,
    /// The contestants to run; all when empty.
    pub contestants: Vec<String>,
    /// Measurements of each contestant in each cell.
    pub rounds: usize,
    /// How long things take.
    pub pace: Pace,
    /// Where the JSON lines go.
    pub json: Option<PathBuf>,
    /// Where the picture goes.
    pub plot: Option<PathBuf>,
    /// Where the picture of four cells goes.
    pub summary: Option<PathBuf>,
    /// Only the cells of that are raced.
    pub only_summary: bool,
}

/// What to do.
#[derive(Clone, Debug)]
pub enum Command {
    /// Race.
    Race(Options),
    /// Print the usage.
    Help,
    /// Print the names.
    List,
    /// Nothing: `cargo test` runs benchmarks without arguments, to see that they start.
    Nothing,
}

/// Reads the arguments. `known` are the names of the contestants.
///
/// # Errors
///
/// A sentence that says which argument is wrong.
pub fn parse(arguments: impl Iterator<Item = String>, known: &[&str]) -> Result<Command, String> {
    let mut arguments = arguments.peekable();
    if arguments.peek().is_none() {
        return Ok(Command::Nothing);
    }
    let (mut quick, mut rounds, mut seconds) = (false, None, None);
    let (mut scenarios, mut contestants) = (Vec::new(), Vec::new());
    let (mut json, mut plot, mut summary) = (None, None, None);
    while let Some(argument) = arguments.next() {
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (argument, None),
        };
        let mut value = || {
            inline
                .clone()
                .or_else(|| arguments.next())
                .ok_or(format!("{name} needs a value"))
        };
        match name.as_str() {
            // Cargo adds this.
            "--bench" => {}
            "--quick" => quick = true,
            "--help" | "-h" => return Ok(Command::Help),
            "--list" => return Ok(Command::List),
            "--scenario" => scenarios.extend(pick(&value()?, &SCENARIOS)?),
            "--contestant" => {
                contestants.extend(pick(&value()?, known)?.into_iter().map(str::to_owned))
            }
            "--rounds" => rounds = Some(positive(&name, &value()?)?),
            "--seconds" => seconds = Some(positive(&name, &value()?)?),
            "--json" => json = Some(PathBuf::from(value()?)),
            "--plot" => plot = Some(PathBuf::from(value()?)),
            "--summary" => summary = Some(PathBuf::from(value()?)),
            _ => return Err(format!("unknown argument {name}; --help lists them")),
        }
    }
    let seconds = seconds.unwrap_or(if quick { 0.25 } else { 1.0 });
    let rounds = rounds.unwrap_or(if quick { 2 } else { 5 });
    let window =
        Duration::try_from_secs_f64(seconds).map_err(|error| format!("--seconds: {error}"))?;
    let only_summary =
        summary.is_some() && plot.is_none() && scenarios.is_empty() && contestants.is_empty();
    if only_summary {
        contestants = summary::contestants().map(str::to_owned).collect();
    }
    if scenarios.is_empty() {
        scenarios = SCENARIOS.to_vec();
    }
    Ok(Command::Race(Options {
        quick,
        scenarios,
        contestants,
        rounds,
        pace: Pace {
            warm_up: if quick {
                Duration::from_millis(120)
            } else {
                Duration::from_millis(500).min(window)
            },
            window,
            stall: if quick {
                Duration::from_millis(1_500)
            } else {
                Duration::from_secs(4)
            },
        },
        json,
        plot,
        summary,
        only_summary,
    }))
}

/// The names in a list with commas, if all are known.
fn pick<'a>(list: &str, known: &[&'a str]) -> Result<Vec<&'a str>, String> {
    list.split(',')
        .map(|name| {
            let found = known.iter().find(|known| **known == name).copied();
            found.ok_or_else(|| format!("no {name}; there are: {}", known.join(", ")))
        })
        .collect()
}

fn positive<T: std::str::FromStr + PartialOrd + Default>(
    name: &str,
    text: &str,
) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| *number > T::default());
    number.ok_or_else(|| format!("{name} needs a number above 0, not {text}"))
}
