//! Latencies, each kept, so that percentiles are exact.

use std::fmt::Write;
use std::time::Duration;

/// Latencies in tenths of a microsecond.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<u32>);

impl Samples {
    /// Adds one.
    pub fn push(&mut self, latency: Duration) {
        self.0
            .push(u32::try_from(latency.as_nanos() / 100).unwrap_or(u32::MAX));
    }

    /// Adds all of another's.
    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// The latency in microseconds that `percent` of all do not exceed.
    pub fn percentile(&mut self, percent: usize) -> Option<f64> {
        if self.0.is_empty() {
            return None;
        }
        let index = (self.0.len() * percent / 100).min(self.0.len() - 1);
        let (_, value, _) = self.0.select_nth_unstable(index);
        Some(f64::from(*value) / 10.0)
    }

    /// One word of a line: `latency:count` with commas, latencies rounded to three digits.
    pub fn encode(&self) -> String {
        let mut rounded: Vec<u32> = self.0.iter().map(|value| round(*value)).collect();
        rounded.sort_unstable();
        let mut word = String::from("-");
        for run in rounded.chunk_by(|a, b| a == b) {
            // Writing to a String cannot fail.
            let _ = write!(word, ",{}:{}", run[0], run.len());
        }
        word
    }

    /// Reads the word of [`encode`](Self::encode).
    pub fn decode(word: &str) -> Option<Self> {
        let mut samples = Vec::new();
        for run in word.split(',').skip(1) {
            let (value, count) = run.split_once(':')?;
            samples.extend(std::iter::repeat_n(
                value.parse::<u32>().ok()?,
                count.parse().ok()?,
            ));
        }
        Some(Self(samples))
    }
}

/// The three leading digits of a number.
fn round(value: u32) -> u32 {
    let mut unit = 1;
    while value / unit >= 1_000 {
        unit *= 10;
    }
    value / unit * unit
}
