//! Looks at the rows of all names that tasks of this client wait for: one query for all that are due.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Locks;
use crate::clock::Moment;

/// Looks that are due this soon go with those that are due now.
const TOGETHER: Duration = Duration::from_micros(500);
/// After a look that failed.
const PAUSE: Duration = Duration::from_millis(100);

/// How far the server is: the shortest of the last looks, since one or another is late on a busy machine.
#[derive(Default)]
struct Distance(VecDeque<Duration>);

impl Distance {
    /// So many looks count.
    const LAST: usize = 8;

    fn note(&mut self, took: Duration) {
        self.0.truncate(Self::LAST - 1);
        self.0.push_front(took);
    }

    /// Zero before the second look: the first one may have opened a connection.
    fn get(&self) -> Duration {
        let shortest = self.0.iter().min().filter(|_| self.0.len() > 1);
        shortest.copied().unwrap_or_default()
    }
}

/// Runs until the client is closed or gone.
pub(crate) async fn run(locks: Weak<Locks>, changed: Arc<Notify>, stopped: CancellationToken) {
    let mut distance = Distance::default();
    loop {
        let Some(strong) = locks.upgrade() else {
            return;
        };
        let (due, next) = strong.due(Moment::now().after(TOGETHER), distance.get());
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
        let asked = Moment::now();
        match strong.look_at_locks(&due).await {
            Ok(seen) => {
                distance.note(Moment::now().since(asked));
                strong.looked(&due, &seen);
            }
            Err(error) => {
                if error.is_hopeless() {
                    strong.cannot_look(&due, &error);
                }
                tracing::debug!(%error, "cannot look at the locks that are waited for");
                tokio::select! {
                    () = stopped.cancelled() => return,
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
        }
    }
}
