//! `growth`: the table gets long, or many leases are held, while 64 tasks take and release.

use super::Growth;
use crate::contestants::Result;
use crate::contestants::roster::Entry;
use crate::names::Names;
use crate::slice::Slice;
use crate::stage::Stage;

/// Names that stay in use while the table grows.
const HOT_SET: u64 = 1_000;

pub(super) async fn slice(
    stage: &mut Stage,
    entry: &Entry,
    growth: Growth,
    rows: u64,
    tasks: usize,
) -> Result<Slice> {
    let racer = entry.open(&stage.arena, tasks).await?;
    // Leases that the contestant renews live as long as this.
    let leases = racer.fill(rows, growth == Growth::Held).await?;
    let names = match growth {
        Growth::HotSet => Names::Filled(HOT_SET),
        Growth::Uniform => Names::Filled(rows),
        Growth::Held => Names::Own,
    };
    let heat = stage.heat(&entry.profile, super::PAIR, names, tasks);
    let slice = stage.watch_heat(entry, &*racer, heat).await;
    drop(leases);
    racer.close().await;
    stage.settle().await?;
    slice
}
