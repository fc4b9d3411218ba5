//! The table at the end.

use std::fmt::Write;
use std::time::Duration;

use crate::office::Books;
use crate::{PRIZES, Tally, Way};

pub(crate) fn table(rows: &[(Way, Tally, Duration, Books)]) -> String {
    let mut table = format!(
        "\n{:<20} {:>6} {:>6} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
        "", "stock", "drawn", "over", "winners", "refused", "draws/s", "locks/s", "stripes"
    );
    for (way, tally, elapsed, books) in rows {
        let rate = |number: u32| f64::from(number) / elapsed.as_secs_f64();
        // Writing to a string does not fail.
        let _ = writeln!(
            table,
            "{:<20} {:>6} {:>6} {:>6} {:>8} {:>8} {:>8.0} {:>8.0} {:>8}",
            way.name(),
            PRIZES,
            tally.drawn,
            i64::from(tally.drawn) - PRIZES,
            books.winners,
            tally.refused,
            rate(tally.answered()),
            rate(tally.locks),
            tally.stripes()
        );
    }
    table.push('\n');
    table
}
