//! Waiting between attempts at something that is busy.

use std::time::Duration;

use crate::dice::Dice;

/// The longest mean pause of most. Short enough that a free lock is found soon, long enough that hundreds of tasks that
/// ask for one lock do not keep the server from answering its holder.
pub const LONGEST: Duration = Duration::from_millis(64);

/// Pauses that double from 1 ms to a longest, each shortened or lengthened by up to a half.
pub struct Pause {
    mean_us: u64,
    longest_us: u64,
    dice: Dice,
}

impl Pause {
    /// Begins at 1 ms, ends at [`LONGEST`].
    pub fn new() -> Self {
        Self::up_to(LONGEST)
    }

    /// Begins at 1 ms, ends at `longest`.
    pub fn up_to(longest: Duration) -> Self {
        Self {
            mean_us: 1_000,
            longest_us: u64::try_from(longest.as_micros()).unwrap_or(u64::MAX),
            dice: Dice::new(),
        }
    }

    /// Waits, the next time longer.
    pub async fn wait(&mut self) {
        let pause = self.mean_us / 2 + self.dice.below(self.mean_us);
        self.mean_us = (self.mean_us * 2).min(self.longest_us);
        tokio::time::sleep(Duration::from_micros(pause)).await;
    }
}
