//! `uncontended`, `pairs`, `fresh`, `hot_lock`, `hot_counter`: tasks of one process.

use crate::contestants::Result;
use crate::contestants::roster::Entry;
use crate::heat::Work;
use crate::names::Names;
use crate::slice::Slice;
use crate::stage::Stage;

pub(super) async fn slice(
    stage: &mut Stage,
    entry: &Entry,
    work: Work,
    names: Names,
    tasks: usize,
) -> Result<Slice> {
    let racer = entry.open(&stage.arena, tasks).await?;
    let heat = stage.heat(&entry.profile, work, names, tasks);
    stage.measure(entry, racer, heat).await
}
