//! Several locks that are held.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::future::select_all;
use sqlx::mysql::MySqlConnection;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::wait;
use crate::error::Error;
use crate::lock::{LeaseView, LockGuard};
use crate::mutant::{self, Mutant};
use crate::transaction::{release_all_in, verify_all_in};

/// Several locks that this task holds, until the guard is released or dropped.
///
/// Each of them has a lease and a fencing token of its own. If one is lost, the others are held on until the guard ends: what they protect
/// together is no longer safe, so stop the work, and release them.
///
/// Dropping it releases all of them in the background: the drop neither blocks nor needs an await, and release-on-drop is not immediate.
/// [`release`](Self::release) waits for it and says whether all were still held.
#[must_use = "if unused, the locks are released at once"]
pub struct LockAllGuard {
    /// In the order of their names.
    guards: Vec<LockGuard>,
    signal: OnceLock<Signal>,
}

/// Tells that a lease was lost, as long as the guard lives.
struct Signal {
    lost: CancellationToken,
    _watches: DropGuard,
}

impl LockAllGuard {
    pub(crate) fn new(guards: Vec<LockGuard>) -> Self {
        Self {
            guards,
            signal: OnceLock::new(),
        }
    }

    /// The locks' names, in their order (that of their bytes), each once.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.guards.iter().map(LockGuard::name)
    }

    /// The names with the fencing tokens of this hold: each rises with every hold of its name. See [`LockGuard::fencing_token`].
    ///
    /// ```no_run
    /// # async fn example(guard: tag_lock::LockAllGuard) {
    /// for (name, token) in guard.fencing_tokens() {
    ///     println!("{name} under fencing token {token}");
    /// }
    /// # }
    /// ```
    pub fn fencing_tokens(&self) -> impl ExactSizeIterator<Item = (&str, u64)> {
        let guards = self.guards.iter();
        guards.map(|guard| (guard.name(), guard.fencing_token()))
    }

    /// The fencing token of one of the locks; `None` if it is not one of them.
    pub fn fencing_token(&self, name: &str) -> Option<u64> {
        let mut guards = self.guards.iter();
        let guard = guards.find(|guard| guard.name() == name);
        guard.map(LockGuard::fencing_token)
    }

    /// Whether all leases are held, as far as this process can know: see [`LockGuard::is_held`]. False from
    /// [`release_in`](Self::release_in) on, until it is known that its transaction was rolled back.
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(LockGuard::is_held)
    }

    /// How long all leases can be trusted without a renewal. Zero when they are not all [held](Self::is_held).
    pub fn remaining(&self) -> Duration {
        let remaining = self.guards.iter().map(LockGuard::remaining);
        remaining.min().unwrap_or_default()
    }

    /// Resolves when one of the leases is lost: see [`LockGuard::lost`]. Never on a release.
    ///
    /// ```no_run
    /// # async fn work() {}
    /// # async fn example(guard: tag_lock::LockAllGuard) -> Result<(), tag_lock::Error> {
    /// tokio::select! {
    ///     () = guard.lost() => println!("stop: somebody else may hold one of the locks"),
    ///     () = work() => guard.release().await?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// It can be dropped and called again.
    pub async fn lost(&self) {
        any_lost(&self.views()).await;
    }

    /// A token that is cancelled when one of the leases is lost, for handing on to tasks that work under the locks. It is not cancelled by a
    /// release. Each call gives one of its own: whoever cancels it tells only those who have it.
    pub fn cancellation_token(&self) -> CancellationToken {
        let signal = self.signal.get_or_init(|| {
            let (lost, ended) = (CancellationToken::new(), CancellationToken::new());
            let (tells, views, over) = (lost.clone(), self.views(), ended.clone());
            let watch = async move {
                // A loss is told also when the guard goes in the same moment.
                tokio::select! {
                    biased;
                    () = any_lost(&views) => tells.cancel(),
                    () = over.cancelled() => {}
                }
            };
            let is_lost = |guard: &LockGuard| guard.cancellation_token().is_cancelled();
            if self.guards.iter().any(is_lost) {
                lost.cancel();
            }
            if let Some(guard) = self.guards.first() {
                guard.spawn(watch);
            }
            Signal {
                lost,
                _watches: ended.drop_guard(),
            }
        });
        signal.lost.child_token()
    }

    /// Verifies, in the caller's transaction, that all locks are still held, and keeps them so until that transaction ends: see
    /// [`LockGuard::verify_in`]. One round trip for some forty locks, in the order of their names.
    ///
    /// ```no_run
    /// # async fn example(guard: tag_lock::LockAllGuard, pool: sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// guard.verify_in(&mut tx).await?;
    /// // … the application's own statements …
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`LockGuard::verify_in`], with the name of the first lock of which it is so: roll back.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: see [dropped calls in a transaction](crate::LockClient#dropped-calls-in-a-transaction).
    pub async fn verify_in(&self, connection: &mut MySqlConnection) -> Result<(), Error> {
        let mut views = self.views();
        if mutant::on(Mutant::GroupVerifiedInPart) {
            views.truncate(1);
        }
        verify_all_in(&views, connection).await
    }

    /// Releases all locks when the caller's transaction commits, and none of them otherwise: see [`LockGuard::release_in`]. After a rollback
    /// the leases are held on and the guard can be used. One round trip for some forty locks, in the order of their names.
    ///
    /// Drop the guard after the commit.
    ///
    /// # Errors
    ///
    /// As [`verify_in`](Self::verify_in): roll back.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: see [dropped calls in a transaction](crate::LockClient#dropped-calls-in-a-transaction).
    pub async fn release_in(&self, connection: &mut MySqlConnection) -> Result<(), Error> {
        release_all_in(&self.views(), connection).await
    }

    /// Releases all locks and waits until that is certain. The releases leave together.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`], the first one in the order of the names: [`Error::LockLost`] if one of the locks was not ours any more.
    /// Each of the others is released all the same.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the release back, once it was polled.
    pub async fn release(self) -> Result<(), Error> {
        wait::release(self.guards).await
    }

    fn views(&self) -> Vec<LeaseView> {
        self.guards.iter().map(LockGuard::view).collect()
    }
}

/// Resolves when one of the leases is lost.
async fn any_lost(views: &[LeaseView]) {
    select_all(views.iter().map(|view| Box::pin(view.lost()))).await;
}

impl fmt::Debug for LockAllGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockAllGuard")
            .field("locks", &self.guards)
            .finish_non_exhaustive()
    }
}
