//! A thread of a client's own, with a runtime that runs nothing but the client's tasks.

use std::sync::mpsc;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

use crate::error::Error;

/// How often it is looked whether the last task has ended, once the client has.
const PAUSE: Duration = Duration::from_millis(50);

/// Starts the thread. It ends when the client has `ended`, and the timers of leases that were kept.
pub(super) fn start(ended: CancellationToken) -> Result<Handle, Error> {
    let failed = |error: std::io::Error| Error::InvalidOption {
        option: "own_thread",
        reason: format!("the thread cannot be started: {error}"),
    };
    let (sender, receiver) = mpsc::channel();
    let work = move || {
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(sender.send(Err(error))),
        };
        let handle = runtime.handle().clone();
        drop(sender.send(Ok(handle.clone())));
        runtime.block_on(async {
            ended.cancelled().await;
            while handle.metrics().num_alive_tasks() > 0 {
                tokio::time::sleep(PAUSE).await;
            }
        });
    };
    let thread = std::thread::Builder::new().name("tag-lock".to_owned());
    thread.spawn(work).map_err(failed)?;
    let started = receiver
        .recv()
        .unwrap_or_else(|error| Err(std::io::Error::other(error)));
    started.map_err(failed)
}
