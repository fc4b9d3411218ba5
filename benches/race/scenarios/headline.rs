//! `headline`: the article's own test, 50 waves of 100 changes of one counter at once (10 waves when quick).

use tokio::time::Instant;

use crate::contestants::Result;
use crate::contestants::roster::Entry;
use crate::slice::Slice;
use crate::stage::Stage;

const WIDTH: u32 = 100;

pub(super) async fn slice(stage: &mut Stage, entry: &Entry, waves: u32) -> Result<Slice> {
    let racer = entry.open(&stage.arena, 100).await?;
    let before = stage.observer.read().await?;
    let start = Instant::now();
    let mut tally = racer.waves(waves, WIDTH).await;
    let window = start.elapsed();
    let status = stage.observer.read().await?.since(before);
    tally.worst = window;
    racer.close().await;
    stage.settle().await?;
    Ok(Slice::new(
        &entry.profile,
        tally,
        status,
        stage.idle,
        window,
    ))
}
