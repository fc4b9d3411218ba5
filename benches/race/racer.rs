//! A contestant whose type is forgotten, so that scenarios are compiled once. The loops inside are not: an operation
//! costs no allocation and no dynamic call of the harness's.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::contestants::{Contestant, Result};
use crate::heat::{self, Heat};
use crate::tally::Tally;

/// A future whose type is forgotten.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// An opened contestant.
pub trait Racer: Send + Sync {
    /// Runs a heat.
    fn heat(&self, heat: Heat) -> Boxed<Tally>;

    /// Adds 1 to one counter `width` times at once, and again when all have ended, `waves` times.
    fn waves(&self, waves: u32, width: u32) -> Boxed<Tally>;

    /// [`Contestant::fill`]; what it returns is to be kept for as long as the leases shall be held.
    fn fill(&self, names: u64, held: bool) -> Boxed<Result<Box<dyn Any + Send>>>;

    /// Closes the connections.
    fn close(self: Box<Self>) -> Boxed<()>;
}

impl<C: Contestant> Racer for C {
    fn heat(&self, heat: Heat) -> Boxed<Tally> {
        let contestant = self.clone();
        Box::pin(async move { heat::run(&contestant, heat).await })
    }

    fn waves(&self, waves: u32, width: u32) -> Boxed<Tally> {
        let contestant = self.clone();
        Box::pin(async move {
            let mut tally = Tally::default();
            let before = contestant.round_trips();
            for _ in 0..waves {
                let mut wave = JoinSet::new();
                for _ in 0..width {
                    let contestant = contestant.clone();
                    wave.spawn(async move {
                        let began = Instant::now();
                        (contestant.add("headline", 1).await, began.elapsed())
                    });
                }
                for (added, latency) in wave.join_all().await {
                    match added {
                        Ok(_) => {
                            tally.halves += 2;
                            tally.samples.push(latency);
                        }
                        Err(error) => tally.fail(&error),
                    }
                }
            }
            tally.round_trips = before
                .zip(contestant.round_trips())
                .map(|(before, after)| after - before);
            match contestant.add("headline", 0).await {
                Ok(sum) if sum == i64::from(waves * width) || C::PROFILE.floor => {}
                Ok(sum) => tally.fail(&format!(
                    "the counter is {sum} instead of {}",
                    waves * width
                )),
                Err(error) => tally.fail(&error),
            }
            tally
        })
    }

    fn fill(&self, names: u64, held: bool) -> Boxed<Result<Box<dyn Any + Send>>> {
        let contestant = self.clone();
        Box::pin(
            async move { Ok(Box::new(contestant.fill(names, held).await?) as Box<dyn Any + Send>) },
        )
    }

    fn close(self: Box<Self>) -> Boxed<()> {
        Box::pin(async move { (*self).close().await })
    }
}
