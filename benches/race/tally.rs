//! What tasks did in a heat, counted.

use std::time::Duration;

use crate::samples::Samples;

/// Counts of one task, or of all together.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Halves of operations that ended within the window: taking a lock is one, releasing it another; an addition is
    /// two. Counted apart, since a slow contestant's pair may take longer than a window.
    pub halves: u64,
    /// Operations that ended well, warm-up included.
    pub acknowledged: u64,
    /// Operations that failed, and violations of what the contestant promises.
    pub errors: u64,
    /// The first failure.
    pub first_error: Option<String>,
    /// Latencies of the window: of the acquisition for pairs, of the addition for counters.
    pub samples: Samples,
    /// The longest that any operation took that reached into the window, ended or not.
    pub worst: Duration,
    /// Round trips within the window, where the contestant counts them.
    pub round_trips: Option<u64>,
    /// Each time that the lock was held; kept for handoffs only.
    pub holds: Vec<Hold>,
}

/// One time that a lock was held, in microseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    /// When it was asked for.
    pub requested: u64,
    /// When it was had.
    pub granted: u64,
    /// When its release was begun.
    pub released: u64,
}

impl Hold {
    fn encode(&self) -> String {
        format!("{}:{}:{}", self.requested, self.granted, self.released)
    }

    fn decode(word: &str) -> Option<Self> {
        let mut numbers = word.split(':').map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self {
            requested: next()?,
            granted: next()?,
            released: next()?,
        })
    }
}

impl Tally {
    /// Counts a failure.
    pub fn fail(&mut self, error: &dyn std::fmt::Display) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| error.to_string());
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: Self) {
        self.halves += other.halves;
        self.acknowledged += other.acknowledged;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.samples.append(other.samples);
        self.worst = self.worst.max(other.worst);
        self.round_trips = match (self.round_trips, other.round_trips) {
            (Some(mine), Some(other)) => Some(mine + other),
            (mine, other) => mine.or(other),
        };
        self.holds.extend(other.holds);
    }

    /// One line that [`decode`](Self::decode) reads.
    pub fn encode(&self) -> String {
        let error = self
            .first_error
            .as_deref()
            .unwrap_or("-")
            .replace(['\t', '\n'], " ");
        let round_trips = self
            .round_trips
            .map_or("-".to_owned(), |count| count.to_string());
        let holds: Vec<String> = self.holds.iter().map(Hold::encode).collect();
        format!(
            "{}\t{}\t{}\t{error}\t{}\t{}\t{round_trips}\t-,{}",
            self.halves,
            self.acknowledged,
            self.errors,
            self.samples.encode(),
            self.worst.as_micros(),
            holds.join(",")
        )
    }

    /// Reads the line of [`encode`](Self::encode).
    pub fn decode(line: &str) -> Option<Self> {
        let mut fields = line.trim_end().split('\t');
        Some(Self {
            halves: fields.next()?.parse().ok()?,
            acknowledged: fields.next()?.parse().ok()?,
            errors: fields.next()?.parse().ok()?,
            first_error: fields
                .next()
                .filter(|error| *error != "-")
                .map(str::to_owned),
            samples: Samples::decode(fields.next()?)?,
            worst: Duration::from_micros(fields.next()?.parse().ok()?),
            round_trips: fields.next()?.parse().ok(),
            holds: fields.next()?.split(',').filter_map(Hold::decode).collect(),
        })
    }
}
