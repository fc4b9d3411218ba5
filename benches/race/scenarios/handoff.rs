//! `handoff`: two processes want one lock; each holds it for 5 ms, then rests for 3. The latency is the time from the
//! start of a release in one process to the grant in the other, which was already waiting. Nothing else is counted.

use std::time::Duration;

use super::processes;
use crate::contestants::Result;
use crate::contestants::roster::Entry;
use crate::heat::{Heat, Work};
use crate::names::Names;
use crate::samples::Samples;
use crate::slice::Slice;
use crate::stage::Stage;
use crate::tally::{Hold, Tally};

const HOLD: Duration = Duration::from_millis(5);
/// Shorter than the hold, so that the other waits at the release; long enough that one who asks now and then gets it.
const REST: Duration = Duration::from_millis(3);

pub(super) async fn slice(stage: &mut Stage, entry: &Entry) -> Result<Slice> {
    let work = Work::Pair {
        hold: HOLD,
        rest: REST,
    };
    // Half a second at least: a contestant that asks again after pauses hands over a few dozen times in it.
    let window = stage.pace.window.max(Duration::from_millis(500));
    let heat = Heat::new(work, Names::One, 1, stage.pace.warm_up, window);
    let (tallies, status, heat) = processes::run(stage, entry, heat, 2).await?;
    stage.settle().await?;
    Ok(Slice::new(
        &entry.profile,
        handoffs(tallies),
        status,
        stage.idle,
        heat.end - heat.start,
    ))
}

/// The changes of holder in the holds of several processes.
fn handoffs(mut tallies: Vec<Tally>) -> Tally {
    let mut holds: Vec<(Hold, usize)> = Vec::new();
    for (process, tally) in tallies.iter_mut().enumerate() {
        holds.extend(tally.holds.drain(..).map(|hold| (hold, process)));
    }
    holds.sort_unstable_by_key(|(hold, _)| hold.granted);
    let mut total = Tally::default();
    tallies.into_iter().for_each(|tally| total.merge(tally));
    total.halves = 0;
    total.samples = Samples::default();
    for pair in holds.windows(2) {
        let ((before, holder), (after, next)) = (pair[0], pair[1]);
        if after.granted < before.released {
            total.fail(&"two holders at once");
        } else if holder != next && after.requested < before.released {
            total.halves += 2;
            total
                .samples
                .push(Duration::from_micros(after.granted - before.released));
        }
    }
    total
}
