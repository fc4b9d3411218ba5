//! What a scenario needs to measure a contestant.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::arena::Arena;
use crate::contestants::roster::Entry;
use crate::contestants::{Profile, Result};
use crate::heat::{Heat, Work};
use crate::names::Names;
use crate::racer::Racer;
use crate::slice::Slice;
use crate::status::{Observer, Status};

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Before each window.
    pub warm_up: Duration,
    /// What is measured.
    pub window: Duration,
    /// How long the stalled client is stopped.
    pub stall: Duration,
}

/// How long the server may take to notice that connections were closed, and to purge.
const SETTLE: Duration = Duration::from_secs(3);
/// A server purges in batches of some hundred transactions, and need not come to an end.
const PURGED: u64 = 1_000;

/// What a slow contestant needs for one statement's transaction.
const TURN: Duration = Duration::from_micros(600);

/// The servers, an observer, and the pace.
pub struct Stage {
    /// Where the contestants connect.
    pub arena: Arc<Arena>,
    /// Reads the server's counters.
    pub observer: Observer,
    /// How long things take.
    pub pace: Pace,
    /// The server's connections while no contestant is there.
    pub idle: u64,
}

impl Stage {
    /// The stage's arena for one of `processes` processes.
    pub fn arena_for(&self, processes: usize) -> Arc<Arena> {
        let mut arena = Arena::clone(&self.arena);
        arena.most_connections = (arena.most_connections / processes).max(1);
        Arc::new(arena)
    }

    /// Runs a heat of an opened contestant and closes it.
    pub async fn measure(
        &mut self,
        entry: &Entry,
        racer: Box<dyn Racer>,
        heat: Heat,
    ) -> Result<Slice> {
        let slice = self.watch_heat(entry, &*racer, heat).await;
        racer.close().await;
        self.settle().await?;
        slice
    }

    /// Runs a heat of an opened contestant.
    pub async fn watch_heat(
        &mut self,
        entry: &Entry,
        racer: &dyn Racer,
        heat: Heat,
    ) -> Result<Slice> {
        let (tally, status) = tokio::join!(
            racer.heat(heat),
            watch(&mut self.observer, heat.start, heat.end)
        );
        Ok(Slice::new(
            &entry.profile,
            tally,
            status?,
            self.idle,
            heat.end - heat.start,
        ))
    }

    /// A heat at the stage's pace. A contestant whose many tasks queue for a few connections gets a longer one, so that
    /// each task has had its turn before the window opens.
    pub fn heat(&self, profile: &Profile, work: Work, names: Names, tasks: usize) -> Heat {
        let turns = match (profile.mysql, u32::try_from(tasks)) {
            (true, Ok(tasks)) => TURN * tasks,
            _ => Duration::ZERO,
        };
        Heat::new(
            work,
            names,
            tasks,
            self.pace.warm_up.max(turns),
            self.pace.window.max(turns),
        )
    }

    /// Waits until the server has no connections but those that were there before, and has purged what was changed:
    /// the next contestant starts alone.
    pub async fn settle(&mut self) -> Result<()> {
        let patience = Instant::now() + SETTLE;
        while Instant::now() < patience && !self.is_settled().await? {
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    async fn is_settled(&mut self) -> Result<bool> {
        Ok(self.observer.read().await?.connections <= self.idle
            && self
                .observer
                .unpurged()
                .await
                .is_none_or(|count| count < PURGED))
    }
}

/// What the server counts between two times.
pub async fn watch(observer: &mut Observer, start: Instant, end: Instant) -> Result<Status> {
    sleep_until(start).await;
    let before = observer.read().await?;
    sleep_until(end).await;
    Ok(observer.read().await?.since(before))
}
