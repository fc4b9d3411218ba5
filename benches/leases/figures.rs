//! The figures: shown as they come, in a table at the end, and in a file for programs.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::Result;

pub(crate) struct Figures {
    all: Vec<(String, f64, &'static str)>,
    file: Option<File>,
}

impl Figures {
    pub(crate) fn new(file: Option<&Path>) -> Result<Self> {
        Ok(Self {
            all: Vec::new(),
            file: file.map(File::create).transpose()?,
        })
    }

    /// Takes in a figure, with what it means.
    pub(crate) fn add(&mut self, name: &str, value: f64, meaning: &'static str) -> Result<()> {
        eprintln!("  {name} = {}", shown(value));
        if let Some(file) = &mut self.file {
            writeln!(file, "{{\"figure\": \"{name}\", \"value\": {value}}}")?;
            file.flush()?;
        }
        self.all.push((name.to_owned(), value, meaning));
        Ok(())
    }

    pub(crate) fn print(&self) {
        println!();
        for (name, value, meaning) in &self.all {
            println!("{name:<36} {:>14}  {meaning}", shown(*value));
        }
    }
}

fn shown(value: f64) -> String {
    if value.abs() >= 1_000.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

/// The value below which `share` of the samples lie. Sorts them.
pub(crate) fn percentile(samples: &mut [f64], share: f64) -> Result<f64> {
    samples.sort_by(f64::total_cmp);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a position within the samples"
    )]
    let position = (samples.len().saturating_sub(1) as f64 * share).round() as usize;
    Ok(*samples.get(position).ok_or("no samples")?)
}

/// A count as a figure.
pub(crate) fn float(count: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    let float = count as f64;
    float
}
