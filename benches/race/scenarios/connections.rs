//! `connections`: many clients with few tasks each, and so as many connections that are busy at once; with names of their own, or each pair
//! with a new one.

use tokio::task::JoinSet;

use crate::contestants::Result;
use crate::contestants::roster::Entry;
use crate::heat::Heat;
use crate::names::Names;
use crate::slice::Slice;
use crate::stage::{Stage, watch};
use crate::tally::Tally;

/// In usual warm-ups: all connect and create their rows in the same moment; what is measured comes after that.
const WARM_UPS: u32 = 5;
/// In usual windows: long enough for the waits of the slowest.
const WINDOWS: u32 = 2;

pub(super) async fn slice(
    stage: &mut Stage,
    entry: &Entry,
    clients: usize,
    names: Names,
    tasks: usize,
) -> Result<Slice> {
    let arena = stage.arena_for(clients);
    let mut racers = Vec::new();
    for _ in 0..clients {
        racers.push(entry.open(&arena, tasks / clients).await?);
    }
    let pace = stage.heat(&entry.profile, super::PAIR, names, tasks);
    let all = Heat::new(
        super::PAIR,
        names,
        tasks,
        pace.warm_up.max(WARM_UPS * stage.pace.warm_up),
        (pace.end - pace.start).max(WINDOWS * stage.pace.window),
    );
    let mut heats = JoinSet::new();
    for (racer, client) in racers.iter().zip(0..) {
        heats.spawn(racer.heat(Heat {
            tasks: tasks / clients,
            process: client,
            ..all
        }));
    }
    let (tallies, status) = tokio::join!(
        heats.join_all(),
        watch(&mut stage.observer, all.start, all.end)
    );
    let mut total = Tally::default();
    tallies.into_iter().for_each(|tally| total.merge(tally));
    let closing: JoinSet<()> = racers.into_iter().map(|racer| racer.close()).collect();
    closing.join_all().await;
    stage.settle().await?;
    Ok(Slice::new(
        &entry.profile,
        total,
        status?,
        stage.idle,
        all.end - all.start,
    ))
}
