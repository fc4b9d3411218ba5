//! Hooks for [`on_command`](super::Proxy::on_command): at random but repeatable, and at one chosen command.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::command::Command;
use super::fault::Fault;
use super::state::locked;

/// `fault` for the first command for which `chosen` holds, once; all others pass.
pub fn once(
    chosen: impl Fn(&Command) -> bool + Send + Sync + 'static,
    fault: Fault,
) -> impl Fn(&Command) -> Fault + Send + Sync + 'static {
    nth(1, chosen, fault)
}

/// `fault` for the `nth` command, counted from 1, for which `chosen` holds; all others pass.
pub fn nth(
    nth: u64,
    chosen: impl Fn(&Command) -> bool + Send + Sync + 'static,
    fault: Fault,
) -> impl Fn(&Command) -> Fault + Send + Sync + 'static {
    let seen = AtomicU64::new(0);
    move |command| {
        if chosen(command) && seen.fetch_add(1, Ordering::Relaxed) + 1 == nth {
            fault.clone()
        } else {
            Fault::Pass
        }
    }
}

/// Faults drawn from a seed. Each command costs one draw, so that the same seed and the same order of commands give
/// the same faults.
#[derive(Debug)]
pub struct RandomFaults {
    seed: u64,
    chances: Vec<(f64, Fault)>,
    chosen: fn(&Command) -> bool,
}

impl RandomFaults {
    /// No faults yet, for all commands.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            chances: Vec::new(),
            chosen: |_| true,
        }
    }

    /// Adds a fault and its probability for one command.
    ///
    /// # Panics
    ///
    /// If all probabilities together are not within 0 and 1.
    #[must_use]
    pub fn with(mut self, probability: f64, fault: Fault) -> Self {
        self.chances.push((probability, fault));
        let total: f64 = self.chances.iter().map(|(chance, _)| chance).sum();
        // Ten times 0.1 is a little more than 1.
        let valid = probability >= 0.0 && total <= 1.0 + 1e-9;
        assert!(valid, "probabilities sum up to {total}");
        self
    }

    /// Only commands for which `chosen` holds are drawn for; all others pass without a draw.
    #[must_use]
    pub fn only(mut self, chosen: fn(&Command) -> bool) -> Self {
        self.chosen = chosen;
        self
    }

    /// The hook.
    pub fn into_hook(self) -> impl Fn(&Command) -> Fault + Send + Sync + 'static {
        let random = Mutex::new(StdRng::seed_from_u64(self.seed));
        move |command| {
            if !(self.chosen)(command) {
                return Fault::Pass;
            }
            let mut left: f64 = locked(&random).random();
            for (probability, fault) in &self.chances {
                if left < *probability {
                    return fault.clone();
                }
                left -= probability;
            }
            Fault::Pass
        }
    }
}
