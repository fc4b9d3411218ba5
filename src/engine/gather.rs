//! How long a lane waits for more requests before it sends a batch: no time at all, but others may run.

use super::serving::Serving;

/// The most rows of a batch: the reply stays below 64 KB.
pub(crate) const MAX_ROWS: usize = 1_024;
/// After a batch of fewer requests a lane lets others run once before its next.
const FEW: usize = 4;
/// After others: how often in a row it lets others run without a new request. Some microseconds each time.
const PATIENCE: u32 = 8;
/// How often in all, however many come: nobody waits for those who come without an end.
const MOST_PAUSES: u32 = 1_024;

/// How often in a row others may run without a new request before the next batch, after one of so many requests; `left` rows wait.
pub(super) fn patience(answered: usize, left: usize) -> u32 {
    match answered {
        // There is nobody to join, and to let others run wakes a thread.
        0 | 1 if left == 0 => 0,
        // With few of them, more pauses would cost more than they save.
        few if few < FEW => 1,
        _ => PATIENCE,
    }
}

/// Those who were answered may have more to ask: together they fill one batch, where the lane would otherwise
/// send one half after the other. Lets them run, for as long as they come.
pub(super) async fn gather(queues: &Serving, patience: u32) {
    let mut filling = queues.filling();
    let mut idle = 0;
    for _ in 0..MOST_PAUSES {
        if filling.rows >= MAX_ROWS || idle >= patience {
            return;
        }
        tokio::task::yield_now().await;
        let before = std::mem::replace(&mut filling, queues.filling());
        let came = filling.arrived > before.arrived;
        idle = if came { 0 } else { idle + 1 };
    }
}
