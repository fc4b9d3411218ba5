//! The table at the end.

use crate::human::{duration, or_dash, rate};
use crate::record::{Figures, Record};
use crate::scenarios::Cell;

/// The columns' heads and widths; the first is aligned to the left.
const COLUMNS: [(&str, usize); 11] = [
    ("", 24),
    ("a second", 11),
    ("spread", 22),
    ("p50", 9),
    ("p99", 9),
    ("worst", 9),
    ("errors", 7),
    ("deadlocks", 10),
    ("conn.", 6),
    ("trips/op", 9),
    ("commits/op", 11),
];

/// Prints a group of lines for each cell.
pub fn print(cells: &[Cell], records: &[Vec<Record>]) {
    for (cell, records) in cells.iter().zip(records) {
        if records.is_empty() {
            continue;
        }
        println!("\n{}", title(cell));
        println!("{}", row(&COLUMNS.map(|(head, _)| head.to_owned())));
        for record in records {
            match &record.figures {
                Ok(figures) => println!("{}", row(&fields(record.contestant, figures))),
                Err(reason) => println!("{:<24}  not run: {reason}", record.contestant),
            }
        }
    }
    let errors = records.iter().flatten().filter_map(|record| {
        let error = record.figures.as_ref().ok()?.first_error.as_ref()?;
        Some(format!(
            "{} in {}: {error}",
            record.contestant, record.scenario
        ))
    });
    for (index, error) in errors.enumerate() {
        if index == 0 {
            println!("\nFirst errors:");
        }
        println!("  {error}");
    }
}

/// A cell in words.
pub fn title(cell: &Cell) -> String {
    let mut title = cell.scenario.to_owned();
    if !cell.variant.is_empty() {
        title = format!("{title}, {}", cell.variant);
    }
    let tasks = if cell.tasks == 1 {
        "1 task".to_owned()
    } else {
        format!("{} tasks", cell.tasks)
    };
    match cell.processes {
        1 => format!("{title}, {tasks}"),
        processes => format!("{title}, {processes} processes × {tasks}"),
    }
}

fn fields(contestant: &str, figures: &Figures) -> [String; 11] {
    let [median, smallest, largest] = figures.per_second;
    [
        contestant.to_owned(),
        rate(median),
        format!("{}–{}", rate(smallest), rate(largest)),
        or_dash(figures.p50_us, duration),
        or_dash(figures.p99_us, duration),
        duration(figures.worst_us),
        figures.errors.to_string(),
        or_dash(figures.deadlocks, |count| count.to_string()),
        or_dash(figures.connections, |count| count.to_string()),
        or_dash(figures.round_trips, |count| format!("{count:.2}")),
        or_dash(figures.commits, |count| format!("{count:.3}")),
    ]
}

fn row(fields: &[String; 11]) -> String {
    let mut line = String::new();
    for (index, (field, (_, width))) in fields.iter().zip(COLUMNS).enumerate() {
        if index == 0 {
            line.push_str(&format!("{field:<width$}"));
        } else {
            line.push_str(&format!("{field:>width$}"));
        }
    }
    line.trim_end().to_owned()
}
