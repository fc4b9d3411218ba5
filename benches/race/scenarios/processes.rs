//! `processes`: the same work from several processes.

use crate::contestants::Result;
use crate::contestants::roster::Entry;
use crate::heat::Heat;
use crate::names::Names;
use crate::slice::Slice;
use crate::stage::{Stage, watch};
use crate::tally::Tally;
use crate::worker::Worker;

pub(super) async fn slice(
    stage: &mut Stage,
    entry: &Entry,
    names: Names,
    tasks: usize,
    processes: usize,
) -> Result<Slice> {
    let all = stage.heat(&entry.profile, super::PAIR, names, tasks * processes);
    let heat = Heat { tasks, ..all };
    let (tallies, status, heat) = run(stage, entry, heat, processes).await?;
    let mut total = Tally::default();
    tallies.into_iter().for_each(|tally| total.merge(tally));
    stage.settle().await?;
    Ok(Slice::new(
        &entry.profile,
        total,
        status,
        stage.idle,
        heat.end - heat.start,
    ))
}

/// Runs a heat in so many processes; each one's tally, what the server counted, and when it was.
pub(super) async fn run(
    stage: &mut Stage,
    entry: &Entry,
    heat: Heat,
    processes: usize,
) -> Result<(Vec<Tally>, crate::status::Status, Heat)> {
    let arena = stage.arena_for(processes);
    let mut workers = Vec::new();
    for process in 0..processes {
        let heat = Heat {
            process: u32::try_from(process)?,
            ..heat
        };
        workers.push(Worker::start(entry, &arena, &heat).await?);
    }
    let heat = heat.anew();
    for worker in &mut workers {
        worker.go(heat.start, heat.end).await?;
    }
    let status = watch(&mut stage.observer, heat.start, heat.end).await?;
    let mut tallies = Vec::new();
    for worker in &mut workers {
        tallies.push(worker.tally().await?);
    }
    Ok((tallies, status, heat))
}
