//! Breaks things while the load runs: one task for each lane of faults, each with a schedule drawn from the seed.

use std::sync::Arc;
use std::time::Instant;

use rand::RngExt;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use tokio::task::JoinSet;

use crate::faults::{self, Fault, Lane, Rig};

/// Chosen by `--faults` beside the names of faults.
pub const NONE: &str = "none";
const DEFAULT: &str = "default";

/// The running nemesis.
#[derive(Debug)]
pub struct Nemesis {
    lanes: JoinSet<Vec<String>>,
}

/// Picks faults by their names: `default`, `none`, or names with commas between.
///
/// # Errors
///
/// A sentence that says which name is none.
pub fn choose(names: &str) -> Result<Vec<Box<dyn Fault>>, String> {
    let mut chosen: Vec<Box<dyn Fault>> = Vec::new();
    let is_known = |name: &str| faults::all().iter().any(|fault| fault.name() == name);
    for name in names.split(',').map(str::trim) {
        if name != NONE && name != DEFAULT && !is_known(name) {
            let all: Vec<_> = faults::all().iter().map(|fault| fault.name()).collect();
            return Err(format!(
                "there is no fault {name:?}; use {DEFAULT}, {NONE}, or some of {}",
                all.join(", ")
            ));
        }
        for fault in faults::all() {
            let wanted = fault.name() == name || (name == DEFAULT && fault.is_default());
            if wanted && chosen.iter().all(|other| other.name() != fault.name()) {
                chosen.push(fault);
            }
        }
    }
    Ok(chosen)
}

impl Nemesis {
    /// Begins to break things, `gap` times as seldom as usual. Faults that cannot be done here are left out, and named.
    ///
    /// # Errors
    ///
    /// A sentence about a fault that was asked for by name and cannot be done.
    pub fn start(rig: &Arc<Rig>, chosen: Vec<Box<dyn Fault>>, gap: u32) -> Result<Self, String> {
        let mut lanes = JoinSet::new();
        let (possible, impossible): (Vec<_>, Vec<_>) =
            chosen.into_iter().partition(|fault| fault.is_possible(rig));
        for fault in impossible {
            if !fault.is_default() {
                return Err(format!("{} cannot be done here", fault.name()));
            }
            eprintln!("torture: {} cannot be done here, left out", fault.name());
        }
        let mut rest = possible;
        for (number, lane) in (0_u64..).zip(Lane::ALL) {
            let (mine, others) = rest.into_iter().partition(|fault| fault.lane() == lane);
            rest = others;
            let mut random = ChaCha8Rng::seed_from_u64(rig.setup.seed);
            // The workers' streams begin at 1 << 32.
            random.set_stream(number);
            let rig = Arc::clone(rig);
            lanes.spawn(async move { work(&rig, lane, mine, gap, random).await });
        }
        Ok(Self { lanes })
    }

    /// Waits until all lanes have mended what they broke, after the rig was told that the load ends. What could not be
    /// done or mended is returned.
    pub async fn finish(mut self) -> Vec<String> {
        let mut problems = Vec::new();
        while let Some(lane) = self.lanes.join_next().await {
            match lane {
                Ok(more) => problems.extend(more),
                Err(error) => problems.push(format!("a lane of faults ended: {error}")),
            }
        }
        problems
    }
}

async fn work(
    rig: &Rig,
    lane: Lane,
    faults: Vec<Box<dyn Fault>>,
    gap: u32,
    mut random: ChaCha8Rng,
) -> Vec<String> {
    let mut problems = Vec::new();
    let total: u32 = faults.iter().map(|fault| fault.weight()).sum();
    if total == 0 {
        return problems;
    }
    let mut last = Instant::now();
    loop {
        // From one fault's beginning to the next one's: a server that is slow to come back is not killed all the time.
        let pause = (lane.longest_gap() * gap).mul_f64(random.random());
        let left = pause.saturating_sub(last.elapsed());
        if !rig.pause(left.max(lane.shortest_rest())).await {
            return problems;
        }
        last = Instant::now();
        let mut drawn = random.random_range(0..total);
        let Some(fault) = faults.iter().find(|fault| {
            let found = drawn < fault.weight();
            drawn = drawn.saturating_sub(fault.weight());
            found
        }) else {
            continue;
        };
        // What a strike draws must not depend on how far the last one came.
        let mut its_own = ChaCha8Rng::seed_from_u64(random.random());
        match fault.strike(rig, &mut its_own).await {
            Ok(true) => rig.count(fault.name()),
            Ok(false) => {}
            Err(error) => problems.push(format!("{}: {error}", fault.name())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<&'static str> {
        let chosen = choose(text).unwrap_or_default();
        chosen.iter().map(|fault| fault.name()).collect()
    }

    #[test]
    fn faults_are_chosen_by_name() {
        assert_eq!(names("none"), Vec::<&str>::new());
        assert_eq!(names("cut,kill,cut"), ["cut", "kill"]);
        assert!(names("default").contains(&"server-kill"));
        assert!(!names("default").contains(&"server-clock"));
        assert!(names("default,server-clock").contains(&"server-clock"));
        assert!(choose("cuts").is_err());
    }
}
