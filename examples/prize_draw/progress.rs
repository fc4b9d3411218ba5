//! Progress on standard error: a line that is written over on a terminal, a line a second elsewhere.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use crate::{PARTICIPANTS, Tally, Way};

const LINE_EVERY: Duration = Duration::from_secs(1);

pub(crate) struct Progress {
    way: Way,
    terminal: bool,
    next_line: Instant,
}

impl Progress {
    pub(crate) fn new(way: Way) -> Self {
        Self {
            way,
            terminal: stderr().is_terminal(),
            next_line: Instant::now(),
        }
    }

    pub(crate) fn show(&mut self, tally: &Tally) {
        if self.terminal {
            eprint!("\r{}", self.line(tally));
        } else if Instant::now() >= self.next_line {
            self.next_line += LINE_EVERY;
            eprintln!("{}", self.line(tally));
        }
    }

    pub(crate) fn finish(&self, tally: &Tally) {
        let start = if self.terminal { "\r" } else { "" };
        eprintln!("{start}{}", self.line(tally));
    }

    fn line(&self, tally: &Tally) -> String {
        format!(
            "{:<20} {:>5} of {} clicks answered, {:>5} prizes drawn",
            self.way.name(),
            tally.answered(),
            2 * PARTICIPANTS,
            tally.drawn
        )
    }
}
