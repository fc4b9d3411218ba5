//! Calls from another runtime than the one that runs the client's tasks: that one may be blocked, or nobody drives it.

use std::pin::Pin;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::error::Error;

/// A runtime that does not run a task that does nothing for so long is not driven.
const STILL: Duration = Duration::from_secs(1);

/// Awaits a call that tasks of `runtime` answer. After each `pause` without an answer it sees whether that runtime runs tasks at all.
///
/// On the runtime itself that shows by itself; and where there is no runtime, there is no timer.
///
/// # Errors
///
/// [`Error::NotDriven`] if it does not; otherwise as the call's.
pub(super) async fn driven<T>(
    runtime: &Handle,
    pause: Duration,
    call: Pin<&mut impl Future<Output = Result<T, Error>>>,
) -> Result<T, Error> {
    let elsewhere = Handle::try_current().is_ok_and(|current| current.id() != runtime.id());
    if elsewhere {
        // Boxed: it is rare, and every call's future would have room for it.
        Box::pin(driven_elsewhere(runtime, pause, call)).await
    } else {
        call.await
    }
}

/// The same from another runtime.
async fn driven_elsewhere<T>(
    runtime: &Handle,
    pause: Duration,
    mut call: Pin<&mut impl Future<Output = Result<T, Error>>>,
) -> Result<T, Error> {
    loop {
        if let Ok(result) = tokio::time::timeout(pause, call.as_mut()).await {
            return result;
        }
        let probe = runtime.spawn(async {});
        tokio::select! {
            biased;
            result = call.as_mut() => return result,
            result = tokio::time::timeout(STILL, probe) => {
                if !matches!(result, Ok(Ok(()))) {
                    return Err(Error::NotDriven);
                }
            }
        }
    }
}
