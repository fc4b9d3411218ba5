//! One line of the table: a contestant's median in a cell.

use std::fmt::Write;

use crate::slice::{Slice, count};

/// The figures of a contestant in a cell, over all rounds.
#[derive(Clone, Debug)]
pub struct Record {
    /// The scenario's name.
    pub scenario: &'static str,
    /// What tells the cell from others of the scenario.
    pub variant: String,
    /// The contestant's name.
    pub contestant: &'static str,
    /// The server's name and version.
    pub server: String,
    /// Tasks in each process.
    pub tasks: usize,
    /// Processes.
    pub processes: usize,
    /// The figures, or why there are none.
    pub figures: Result<Figures, String>,
}

/// Medians, with the smallest and largest of the speed; errors and deadlocks are sums; the worst is the worst.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Rounds measured.
    pub rounds: usize,
    /// Operations a second: median, smallest, largest.
    pub per_second: [f64; 3],
    /// Median latency in microseconds.
    pub p50_us: Option<f64>,
    /// The latency that one in a hundred exceeds.
    pub p99_us: Option<f64>,
    /// The longest operation of all rounds.
    pub worst_us: f64,
    /// Failed operations of all rounds.
    pub errors: u64,
    /// The first failure's text.
    pub first_error: Option<String>,
    /// Deadlocks that the server found in all rounds.
    pub deadlocks: Option<u64>,
    /// Connections in use.
    pub connections: Option<u64>,
    /// Round trips for each operation.
    pub round_trips: Option<f64>,
    /// Durable commits for each operation.
    pub commits: Option<f64>,
}

impl Figures {
    /// Over all rounds; `None` without any.
    pub fn of(slices: &[Slice]) -> Option<Self> {
        let speeds = sorted(slices.iter().map(|slice| slice.per_second));
        Some(Self {
            rounds: slices.len(),
            per_second: [
                median(slices.iter().map(|slice| slice.per_second))?,
                *speeds.first()?,
                *speeds.last()?,
            ],
            p50_us: median(slices.iter().filter_map(|slice| slice.p50_us)),
            p99_us: median(slices.iter().filter_map(|slice| slice.p99_us)),
            worst_us: slices
                .iter()
                .map(|slice| slice.worst_us)
                .fold(0.0, f64::max),
            errors: slices.iter().map(|slice| slice.errors).sum(),
            first_error: slices.iter().find_map(|slice| slice.first_error.clone()),
            deadlocks: slices.iter().map(|slice| slice.deadlocks).sum(),
            connections: slices.iter().filter_map(|slice| slice.connections).max(),
            round_trips: median(slices.iter().filter_map(|slice| slice.round_trips)),
            commits: median(slices.iter().filter_map(|slice| slice.commits)),
        })
    }
}

impl Record {
    /// One JSON object in one line.
    pub fn json(&self) -> String {
        let mut line = format!(
            r#"{{"scenario":{},"variant":{},"contestant":{},"server":{},"tasks":{},"processes":{}"#,
            quote(self.scenario),
            quote(&self.variant),
            quote(self.contestant),
            quote(&self.server),
            self.tasks,
            self.processes
        );
        // Writing to a String cannot fail.
        let _ = match &self.figures {
            Err(reason) => write!(line, r#","not_run":{}"#, quote(reason)),
            Ok(figures) => {
                let [median, smallest, largest] = figures.per_second;
                let whole = |value: Option<u64>| number(value.map(count));
                write!(
                    line,
                    concat!(
                        r#","per_second":{},"per_second_min":{},"per_second_max":{},"rounds":{},"#,
                        r#""p50_us":{},"p99_us":{},"worst_us":{},"errors":{},"first_error":{},"#,
                        r#""server_deadlocks":{},"connections":{},"round_trips_per_op":{},"commits_per_op":{}"#
                    ),
                    number(Some(median)),
                    number(Some(smallest)),
                    number(Some(largest)),
                    figures.rounds,
                    number(figures.p50_us),
                    number(figures.p99_us),
                    number(Some(figures.worst_us)),
                    figures.errors,
                    figures
                        .first_error
                        .as_deref()
                        .map_or("null".to_owned(), quote),
                    whole(figures.deadlocks),
                    whole(figures.connections),
                    number(figures.round_trips),
                    number(figures.commits)
                )
            }
        };
        line.push('}');
        line
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values = sorted(values);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// A JSON number with at most three decimals.
fn number(value: Option<f64>) -> String {
    value.map_or("null".to_owned(), |value| {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    })
}

fn quote(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            control if control.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
