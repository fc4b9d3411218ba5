//! Looks at the rows of all names that tasks of this client wait for: one query for all that are due.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Locks;
use crate::clock::Moment;
use crate::sql::row::RowKey;

/// Looks that are due this soon go with those that are due now.
const TOGETHER: Duration = Duration::from_micros(500);
/// After a look that failed.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs until the client is closed or gone.
pub(crate) async fn run(locks: Weak<Locks>, changed: Arc<Notify>, stopped: CancellationToken) {
    loop {
        let Some(strong) = locks.upgrade() else {
            return;
        };
        let (due, next) = strong.due(Moment::now().after(TOGETHER));
        if due.is_empty() {
            // Only a weak reference is held while it sleeps.
            drop(strong);
            let pause = next.map(Moment::left);
            tokio::select! {
                () = stopped.cancelled() => return,
                () = changed.notified() => {}
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
            continue;
        }
        let rows = due
            .iter()
            .map(|key| RowKey::lock(key.name.clone()))
            .collect();
        match strong.engine.look(rows).await {
            Ok(seen) => strong.looked(due, &seen),
            Err(error) => {
                tracing::debug!(%error, "cannot look at the locks that are waited for");
                tokio::select! {
                    () = stopped.cancelled() => return,
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
        }
    }
}
