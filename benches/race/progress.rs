//! What is under way, on standard error: one line that changes on a terminal, a line for each cell elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use crate::human::{duration, rate};
use crate::scenarios::Cell;
use crate::slice::{Slice, count};

/// The progress display.
pub struct Progress {
    began: Instant,
    total: u64,
    done: u64,
    terminal: bool,
    rounds: usize,
}

impl Progress {
    /// For so many slices in so many rounds.
    pub fn new(total: usize, rounds: usize) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self {
            began: Instant::now(),
            total: total as u64,
            done: 0,
            terminal,
            rounds,
        }
    }

    /// A slice begins.
    pub fn begin(&mut self, round: usize, cell: &Cell, contestant: &str) {
        if self.terminal {
            self.line(round, cell, &format!("{contestant} …"));
        }
    }

    /// A slice ended.
    pub fn end(
        &mut self,
        round: usize,
        cell: &Cell,
        contestant: &str,
        slice: Result<&Slice, &str>,
    ) {
        self.done += 1;
        let outcome = match slice {
            Ok(slice) if slice.errors > 0 => {
                format!("{}/s, {} errors", rate(slice.per_second), slice.errors)
            }
            Ok(slice) => format!("{}/s", rate(slice.per_second)),
            Err(reason) => format!("not run: {reason}"),
        };
        self.line(round, cell, &format!("{contestant} {outcome}"));
    }

    /// Nothing more comes.
    pub fn finish(&self) {
        if self.terminal {
            eprint!("\r\x1b[2K");
        }
        eprintln!(
            "{} measurements in {}",
            self.done,
            duration(self.began.elapsed().as_secs_f64() * 1e6)
        );
    }

    fn line(&self, round: usize, cell: &Cell, rest: &str) {
        let percent = self.done * 100 / self.total.max(1);
        let left = match self.done {
            0 => "?".to_owned(),
            done => duration(
                self.began.elapsed().as_secs_f64() * 1e6 / count(done) * count(self.total - done),
            ),
        };
        let text = format!(
            "{percent:3}% round {}/{}  {} left  {} {} {}×{}  {rest}",
            round + 1,
            self.rounds,
            left,
            cell.scenario,
            cell.variant,
            cell.processes,
            cell.tasks
        );
        if self.terminal {
            eprint!("\r\x1b[2K{text}");
            // A display that cannot be drawn is no reason to stop.
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{text}");
        }
    }
}
