//! Looks at all watched locks of a client, one query for all, as long as somebody watches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::holder::{Holder, Known};
use crate::engine::Engine;
use crate::error::Error;
use crate::inspect::{self, For, LockInfo};
use crate::name::Name;
use crate::sql::inspect as query;
use crate::sql::row::Kind;
use crate::timing::LOOK;

/// What a look has seen.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The number of the look; looks are numbered from 1.
    pub(super) look: u64,
    pub(super) known: Known,
}

/// The watched locks of a client.
pub(crate) struct Watches {
    engine: Arc<Engine>,
    stopped: CancellationToken,
    names: Mutex<Names>,
    /// A name has come.
    more: Arc<Notify>,
}

#[derive(Default)]
struct Names {
    map: HashMap<Name, watch::Sender<Seen>>,
    /// The look that was begun last.
    look: u64,
    /// There is a task that looks.
    started: bool,
}

impl Watches {
    pub(crate) fn new(engine: Arc<Engine>, stopped: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            engine,
            stopped,
            names: Mutex::default(),
            more: Arc::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a lock as long as the receiver is there. What counts is what looks with a number above the given one have seen: those that
    /// began later than this.
    pub(super) fn watch(self: &Arc<Self>, name: Name) -> (watch::Receiver<Seen>, u64) {
        let nothing = || {
            let (look, known) = (0, Ok(None));
            watch::Sender::new(Seen { look, known })
        };
        let mut names = self.lock();
        let receiver = names.map.entry(name).or_insert_with(nothing).subscribe();
        let (look, starts) = (names.look, !std::mem::replace(&mut names.started, true));
        drop(names);
        if starts {
            let (weak, more) = (Arc::downgrade(self), Arc::clone(&self.more));
            let stopped = self.stopped.clone();
            let looks = move || run(weak.clone(), Arc::clone(&more), stopped.clone());
            self.engine.keep_running("the watch of locks", looks);
        }
        self.more.notify_one();
        (receiver, look)
    }

    /// Begins a look at those that somebody watches.
    fn begin(&self) -> (u64, Vec<Name>) {
        let mut names = self.lock();
        names.map.retain(|_, told| told.receiver_count() > 0);
        names.look += 1;
        (names.look, names.map.keys().cloned().collect())
    }

    async fn look(&self, names: &[Name]) -> Result<HashMap<String, LockInfo>, Error> {
        let mut seen = HashMap::new();
        let mut rest = names;
        while !rest.is_empty() {
            let (names, behind) = rest.split_at(query::fitting(rest.iter().map(Name::as_str)));
            rest = behind;
            let sql = query::many(Kind::Lock, names.iter().map(Name::as_str));
            for info in inspect::read(&self.engine, sql, For::Watches).await? {
                seen.insert(info.name.clone(), info);
            }
        }
        Ok(seen)
    }

    /// Tells what a look has seen. An outage is no news: it is ridden out.
    fn tell(&self, look: u64, names: &[Name], seen: Result<HashMap<String, LockInfo>, Error>) {
        let mut seen = match seen {
            Ok(seen) => Ok(seen),
            Err(error) if error.is_hopeless() || !error.is_retryable() => Err(error),
            Err(error) => {
                tracing::debug!(%error, "cannot look at the locks that are watched");
                return;
            }
        };
        let told = self.lock();
        for name in names {
            let Some(told) = told.map.get(name) else {
                continue;
            };
            let known = match &mut seen {
                Ok(seen) => Ok(seen.remove(name.as_str()).and_then(Holder::of)),
                Err(error) => Err(error.clone()),
            };
            told.send_replace(Seen { look, known });
        }
    }
}

/// Looks until the client is closed or gone, and sleeps while nobody watches.
async fn run(watches: Weak<Watches>, more: Arc<Notify>, stopped: CancellationToken) {
    loop {
        let Some(strong) = watches.upgrade() else {
            return;
        };
        let (look, names) = strong.begin();
        let rests = names.is_empty();
        if !rests {
            let seen = stopped.run_until_cancelled(strong.look(&names)).await;
            if let Some(seen) = seen {
                strong.tell(look, &names, seen);
            }
        }
        if stopped.is_cancelled() {
            return;
        }
        // Only a weak reference is held while it sleeps.
        drop(strong);
        tokio::select! {
            () = stopped.cancelled() => {}
            () = more.notified() => {}
            () = tokio::time::sleep(LOOK), if !rests => {}
        }
    }
}
