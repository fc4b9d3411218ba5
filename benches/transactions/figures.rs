//! What was measured.

use std::fmt::Write;
use std::path::Path;

use crate::Result;

/// Named figures, in the order in which they were measured.
#[derive(Default)]
pub struct Figures(Vec<(&'static str, f64)>);

impl Figures {
    /// Notes a figure and prints it.
    pub fn note(&mut self, name: &'static str, value: f64) {
        println!("{name:<40} {value:>12.2}");
        self.0.push((name, value));
    }

    /// Writes the JSON lines.
    pub fn write(&self, file: Option<&Path>) -> Result<()> {
        let Some(file) = file else { return Ok(()) };
        let mut text = String::new();
        for (name, value) in &self.0 {
            writeln!(text, "{{\"figure\": \"{name}\", \"value\": {value}}}")?;
        }
        Ok(std::fs::write(file, text)?)
    }
}

/// The middle one of the heats' figures.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
