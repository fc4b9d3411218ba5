//! What a worker has done so far, and how it tells: a line of text on its standard output.

use crate::{Error, Result};

const STRIPES: u32 = 100;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) drawn: u32,
    pub(crate) refused: u32,
    pub(crate) locks: u32,
    /// A bit for each stripe.
    stripes: u128,
}

impl Tally {
    /// Clicks that were answered.
    pub(crate) fn answered(&self) -> u32 {
        self.drawn + self.refused
    }

    /// Counts one click.
    pub(crate) fn count(&mut self, won: bool) {
        if won {
            self.drawn += 1;
        } else {
            self.refused += 1;
        }
    }

    /// Counts a lock. The stripe is tag-lock's formula.
    pub(crate) fn count_lock(&mut self, name: &str) {
        self.locks += 1;
        self.stripes |= 1 << (crc32fast::hash(name.as_bytes()) % STRIPES);
    }

    pub(crate) fn stripes(&self) -> u32 {
        self.stripes.count_ones()
    }

    pub(crate) fn sum(tallies: &[Self]) -> Self {
        tallies.iter().fold(Self::default(), |sum, one| Self {
            drawn: sum.drawn + one.drawn,
            refused: sum.refused + one.refused,
            locks: sum.locks + one.locks,
            stripes: sum.stripes | one.stripes,
        })
    }

    pub(crate) fn to_line(self) -> String {
        format!(
            "{} {} {} {}",
            self.drawn, self.refused, self.locks, self.stripes
        )
    }

    pub(crate) fn from_line(line: &str) -> Result<Self> {
        let numbers: Vec<u128> = line
            .split(' ')
            .map(str::parse)
            .collect::<std::result::Result<_, _>>()?;
        let [drawn, refused, locks, stripes] = numbers[..] else {
            return Err(Error::from(format!("a worker said {line:?}")));
        };
        Ok(Self {
            drawn: drawn.try_into()?,
            refused: refused.try_into()?,
            locks: locks.try_into()?,
            stripes,
        })
    }
}
