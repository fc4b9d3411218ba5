//! Random numbers that cost nothing: xorshift.

use std::sync::atomic::{AtomicU64, Ordering};

static SEED: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);

/// A generator of one task's own.
pub struct Dice(u64);

impl Dice {
    /// Seeded differently each time.
    pub fn new() -> Self {
        let seed = SEED.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        Self((seed ^ u64::from(std::process::id()).rotate_left(32)) | 1)
    }

    /// A number from 0 up to `limit`, excluded (0 for a limit of 0).
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.checked_rem(limit).unwrap_or(0)
    }
}
