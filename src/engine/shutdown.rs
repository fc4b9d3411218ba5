//! The end of a client: one shutdown, whoever asks for it first, and however often.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::DropGuard;

use super::EngineOptions;
use super::shared::Shared;
use crate::clock::Moment;
use crate::telemetry;
use crate::timing::LOCK_WAIT;

/// How long those may take that are under way: for the packets in flight, which may wait for locks; then for a settlement: to connect,
/// to settle, to read; and then for a release that follows.
fn longest(options: &EngineOptions) -> Duration {
    let settled = options.request_limit.max(3 * options.packet_limit);
    2 * options.packet_limit + LOCK_WAIT + settled
}

/// Takes no more requests. When those that came before have ended, or after [`longest`], nothing of the engine runs any more.
pub(super) fn begin(shared: &Arc<Shared>) {
    if shared.ending.swap(true, Ordering::AcqRel) {
        return;
    }
    shared.closing.cancel();
    shared.close();
    // Also if the runtime drops the task: then nothing runs either.
    let ended = shared.ended.clone().drop_guard();
    shared.runtime.spawn(run(Arc::clone(shared), ended));
}

async fn run(shared: Arc<Shared>, ended: DropGuard) {
    let end = Moment::now().after(longest(&shared.options));
    join(&shared, &shared.tasks, end).await;
    shared.closed.cancel();
    let end = Moment::now().after(shared.options.packet_limit);
    join(&shared, &shared.helpers, end).await;
    drop(ended);
}

/// Waits for tasks to end, until `end`.
async fn join(shared: &Shared, tasks: &Mutex<Vec<JoinHandle<()>>>, end: Moment) {
    let take = || tasks.lock().unwrap_or_else(PoisonError::into_inner).pop();
    while let Some(mut task) = take() {
        if tokio::time::timeout(end.left(), &mut task).await.is_err() {
            shared.gave_up.store(true, Ordering::Release);
            telemetry::aborted();
            task.abort();
        }
    }
}
