//! What a client, its clones, and all that is asked of them share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;
use tracing::Instrument;

use crate::clock::Moment;
use crate::engine::Engine;
use crate::engine::session::Session;
use crate::error::Error;
use crate::inspect::{LockInfo, LockState};
use crate::lock::LockGuard;
use crate::lock::registry::Locks;
use crate::lock::terms::{Terms, Wait};
use crate::metric;
use crate::name::Name;
use crate::sql::inspect;
use crate::sql::session::Commit;
use crate::telemetry;
use crate::touched::Touched;

/// How long a look at the holder may take when a wait has ended in vain.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) struct Inner {
    pub(crate) engine: Arc<Engine>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) connect: MySqlConnectOptions,
    pub(crate) default_ttl: Duration,
    pub(crate) packet_timeout: Duration,
    pub(crate) touched: Touched,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the connect options: they have the password.
        f.debug_struct("LockClient")
            .field("host", &self.connect.get_host())
            .field("database", &self.connect.get_database())
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// A connection of its own, for work that is not for the lanes.
    pub(crate) async fn open_session(&self, commit: Commit) -> Result<Session, Error> {
        Session::open(&self.connect, commit, self.packet_timeout)
            .await
            .map_err(Error::from_sqlx)
    }

    /// What stands in the table about a lock.
    pub(super) async fn inspect(&self, name: &Name) -> Result<Option<LockInfo>, Error> {
        let mut found = self.show(inspect::one(name.as_str())).await?;
        Ok(found.pop())
    }

    pub(super) async fn show(&self, sql: String) -> Result<Vec<LockInfo>, Error> {
        let rows = self.engine.query(sql).await?;
        rows.iter()
            .map(|row| LockInfo::from_row(row).map_err(Error::from_sqlx))
            .collect()
    }

    /// Acquires for a [`LockRequest`].
    pub(crate) async fn acquire(
        &self,
        name: Name,
        terms: Terms,
        wait: Wait,
    ) -> Result<Option<LockGuard>, Error> {
        let locks = &self.locks;
        let start = Moment::now();
        let waiting = metric::Waiting::begin();
        let acquiring = locks.acquire(name.clone(), terms, wait);
        let acquired = acquiring.instrument(telemetry::acquire(&name)).await?;
        drop(waiting);
        match acquired {
            Some(turn) => {
                turn.lease.hold.begin();
                telemetry::acquired(&name, turn.fence, Moment::now().since(start));
                Ok(Some(LockGuard::new(Arc::clone(locks), turn)))
            }
            None => {
                telemetry::refused(&name, Moment::now().since(start));
                match wait {
                    Wait::Not => Ok(None),
                    Wait::For(_) | Wait::Forever => Err(self.timed_out(&name).await),
                }
            }
        }
    }

    /// The error of a wait in vain: who is in the way is worth a look, but not an error of its own.
    pub(crate) async fn timed_out(&self, name: &Name) -> Error {
        let look = tokio::time::timeout(LOOK, self.inspect(name)).await;
        let info = look
            .ok()
            .and_then(Result::ok)
            .flatten()
            .filter(|info| info.state != LockState::Free);
        Error::Timeout {
            name: name.to_string(),
            holder: info.as_ref().map(LockInfo::holder),
            remaining: info.map(|info| info.remaining),
        }
    }
}
