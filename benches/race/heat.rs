//! One measurement of one contestant in one process: tasks that do the same thing over and over.
//!
//! The tasks start at once; what ends before the window opens is warm-up. What ends within the window is counted.
//! An operation that is still under way some time after its end is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::contestants::{Contestant, Result};
use crate::names::Names;
use crate::tally::{Hold, Tally};

/// How long operations may go on after the window.
const GRACE: Duration = Duration::from_millis(300);

/// Longer than any heat.
pub const TTL: Duration = Duration::from_secs(30);

/// What each task does over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Takes a lock, holds it for so long, releases it, and rests for so long.
    Pair { hold: Duration, rest: Duration },
    /// Adds 1 to a counter.
    Add,
}

/// What is done, by how many, and when it counts.
#[derive(Clone, Copy, Debug)]
pub struct Heat {
    /// What each task does.
    pub work: Work,
    /// Which names it uses.
    pub names: Names,
    /// How many tasks.
    pub tasks: usize,
    /// Which process this is, to keep names apart.
    pub process: u32,
    /// How long the tasks run before the window opens.
    pub warm_up: Duration,
    /// When the window opens.
    pub start: Instant,
    /// When it closes.
    pub end: Instant,
}

impl Heat {
    /// A heat whose window opens after `warm_up`.
    pub fn new(
        work: Work,
        names: Names,
        tasks: usize,
        warm_up: Duration,
        window: Duration,
    ) -> Self {
        let start = Instant::now() + warm_up;
        Self {
            work,
            names,
            tasks,
            process: 0,
            warm_up,
            start,
            end: start + window,
        }
    }

    /// The same heat, to begin now.
    pub fn anew(self) -> Self {
        let start = Instant::now() + self.warm_up;
        Self {
            start,
            end: start + (self.end - self.start),
            ..self
        }
    }
}

/// Runs all tasks of a heat.
pub async fn run<C: Contestant>(contestant: &C, heat: Heat) -> Tally {
    let heat = Heat {
        tasks: heat.tasks.min(C::PROFILE.most_tasks),
        ..heat
    };
    let inside = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for task in 0..heat.tasks {
        let (contestant, inside) = (contestant.clone(), Arc::clone(&inside));
        tasks.spawn(async move {
            let mut lapper = Lapper {
                heat,
                inside,
                tally: Tally::default(),
                began: None,
            };
            let in_time = timeout_at(heat.end + GRACE, lapper.laps(&contestant, task))
                .await
                .is_ok();
            if let (false, Some(began)) = (in_time, lapper.began) {
                lapper.tally.worst = lapper
                    .tally
                    .worst
                    .max(heat.end.saturating_duration_since(began));
            }
            lapper.tally
        });
    }
    sleep_until(heat.start).await;
    let before = contestant.round_trips();
    sleep_until(heat.end).await;
    let after = contestant.round_trips();

    let mut total = Tally::default();
    while let Some(finished) = tasks.join_next().await {
        match finished {
            Ok(tally) => total.merge(tally),
            Err(panic) => total.fail(&panic),
        }
    }
    total.round_trips = before.zip(after).map(|(before, after)| after - before);
    if heat.work == Work::Add && heat.names == Names::One && heat.process == 0 {
        check_sum(contestant, heat, &mut total).await;
    }
    total
}

/// A counter must not hold less than what was acknowledged. (It may hold more: answers can be cut off.)
async fn check_sum<C: Contestant>(contestant: &C, heat: Heat, total: &mut Tally) {
    let mut names = heat.names.of(heat.process, 0, heat.tasks);
    match contestant.add(names.next(), 0).await {
        Ok(sum) if sum >= total.acknowledged.cast_signed() => {}
        Ok(sum) => total.fail(&format!(
            "lost additions: {} acknowledged, {sum} counted",
            total.acknowledged
        )),
        Err(error) => total.fail(&error),
    }
}

/// One task.
struct Lapper {
    heat: Heat,
    /// Whether a task is inside the one lock.
    inside: Arc<AtomicBool>,
    tally: Tally,
    /// When the operation under way began.
    began: Option<Instant>,
}

impl Lapper {
    async fn laps<C: Contestant>(&mut self, contestant: &C, task: usize) {
        let mut names = self.heat.names.of(self.heat.process, task, self.heat.tasks);
        loop {
            let began = Instant::now();
            if began >= self.heat.end {
                return;
            }
            self.began = Some(began);
            let name = names.next();
            let lap = match self.heat.work {
                Work::Add => contestant.add(name, 1).await.map(|_| {
                    self.count(2, Some(began));
                    true
                }),
                Work::Pair { hold, rest } => self.pair(contestant, name, hold, rest).await,
            };
            match lap {
                Ok(true) => self.finish(began),
                Ok(false) => return,
                Err(error) => {
                    self.tally.fail(&error);
                    // A contestant that fails at once must not spin.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
    }

    /// Takes and releases a lock; `false` when it did not come free before the end.
    async fn pair<C: Contestant>(
        &mut self,
        contestant: &C,
        name: &str,
        hold: Duration,
        rest: Duration,
    ) -> Result<bool> {
        let (began, requested) = (Instant::now(), unix_us());
        let Some(held) = contestant.lock(name, TTL, self.heat.end).await? else {
            return Ok(false);
        };
        self.count(C::PROFILE.pairs_per_call, Some(began));
        let exclusive = self.heat.names == Names::One;
        if exclusive && self.inside.swap(true, Ordering::SeqCst) {
            self.tally.fail(&"two holders at once");
        }
        let granted = unix_us();
        if !hold.is_zero() {
            tokio::time::sleep(hold).await;
            if Instant::now() >= self.heat.start {
                self.tally.holds.push(Hold {
                    requested,
                    granted,
                    released: unix_us(),
                });
            }
        }
        if exclusive {
            self.inside.store(false, Ordering::SeqCst);
        }
        contestant.unlock(held).await?;
        self.count(C::PROFILE.pairs_per_call, None);
        if !rest.is_zero() {
            tokio::time::sleep(rest).await;
        }
        Ok(true)
    }

    /// Counts halves that ended now, with the latency of what began at `began`.
    fn count(&mut self, halves: u32, began: Option<Instant>) {
        let now = Instant::now();
        if (self.heat.start..=self.heat.end).contains(&now) {
            self.tally.halves += u64::from(halves);
            if let Some(began) = began {
                self.tally.samples.push(now - began);
            }
        }
    }

    fn finish(&mut self, began: Instant) {
        self.began = None;
        self.tally.acknowledged += 1;
        if Instant::now() >= self.heat.start {
            self.tally.worst = self.tally.worst.max(began.elapsed());
        }
    }
}

/// Microseconds since 1970: the clock that processes of one machine share.
pub fn unix_us() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}
