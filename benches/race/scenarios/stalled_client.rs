//! `stalled_client`: a client process with as many tasks is stopped (`SIGSTOP`) in the middle of its work. Measured is
//! what the others do meanwhile, on names of their own: their longest operation is the gap that they saw.

use std::process::Command;
use std::time::Duration;

use tokio::time::Instant;

use crate::contestants::Result;
use crate::contestants::roster::Entry;
use crate::dice::Dice;
use crate::heat::Heat;
use crate::names::Names;
use crate::slice::Slice;
use crate::stage::Stage;
use crate::worker::Worker;

pub(super) async fn slice(stage: &mut Stage, entry: &Entry, tasks: usize) -> Result<Slice> {
    let arena = stage.arena_for(2);
    // Both get connected and warm; then the window begins with the stop, at a moment that differs each time.
    let warm_up = stage.pace.warm_up + Duration::from_micros(Dice::new().below(20_000));
    let heat = Heat::new(super::PAIR, Names::Own, tasks, warm_up, stage.pace.stall);
    let mut victim = Worker::start(entry, &arena, &Heat { process: 1, ..heat }).await?;
    let racer = entry.open(&arena, tasks).await?;
    let heat = heat.anew();
    victim.go(heat.start, heat.end + stage.pace.stall).await?;
    let pid = victim.id().ok_or("the client ended early")?;
    let (slice, stopped) = tokio::join!(
        stage.watch_heat(entry, &*racer, heat),
        stop(pid, heat.start)
    );
    stopped?;
    victim.kill().await?;
    racer.close().await;
    stage.settle().await?;
    slice
}

async fn stop(pid: u32, at: Instant) -> Result<()> {
    tokio::time::sleep_until(at).await;
    let status = Command::new("kill")
        .args(["-STOP", &pid.to_string()])
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err("the client could not be stopped".into())
    }
}
