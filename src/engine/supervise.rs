//! Tasks that outlive a panic, in a writer of logs say: what runs in them is code of the application too.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;

use super::backoff::Backoff;
use crate::telemetry;

/// Runs a task's work. False if it panicked: then it is as the panic left it.
pub(crate) async fn survives(task: &'static str, work: impl Future<Output = ()>) -> bool {
    let result = AssertUnwindSafe(work).catch_unwind().await;
    if result.is_err() {
        telemetry::panicked(task);
    }
    result.is_ok()
}

/// Runs a task's work until it ends by itself: after a panic it begins anew.
pub(crate) async fn supervise<F: Future<Output = ()>>(
    task: &'static str,
    mut work: impl FnMut() -> F,
) {
    let mut pauses = Backoff::new(FIRST, LAST);
    while !survives(task, async { work().await }).await {
        tokio::time::sleep(pauses.delay()).await;
    }
}

/// The first and the longest pause after a panic.
const FIRST: Duration = Duration::from_millis(20);
const LAST: Duration = Duration::from_secs(1);
