//! A pool that adds nothing to what its user sends.
//!
//! sqlx's own pool pings a connection when it comes back, which would cost a contestant a round trip that its
//! author could have avoided. This one hands out connections and takes them back. A connection whose user did not
//! say [`Checkout::done`] is closed, since nobody knows what state its session is in.

#![allow(
    dead_code,
    reason = "the bench and the tests that include this file use different parts of it"
)]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How many connections are opened at once.
const AT_ONCE: usize = 32;
/// How long a server may take to greet.
const GREETING: Duration = Duration::from_secs(30);

/// A fixed number of connections, opened when first needed.
pub struct Connections {
    options: MySqlConnectOptions,
    /// Sent once on each new connection.
    session: &'static str,
    idle: Mutex<Vec<MySqlConnection>>,
    permits: Arc<Semaphore>,
}

impl Connections {
    /// At most `limit` connections to the database at `url`; each runs `session` (settings) when it is opened.
    pub fn new(url: &str, limit: usize, session: &'static str) -> sqlx::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            options: url.parse()?,
            session,
            idle: Mutex::new(Vec::with_capacity(limit)),
            permits: Arc::new(Semaphore::new(limit)),
        }))
    }

    /// A connection of the caller's own, waiting for one when all are in use.
    pub async fn checkout(self: &Arc<Self>) -> sqlx::Result<Checkout> {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| sqlx::Error::PoolClosed)?;
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.open().await?,
        };
        Ok(Checkout {
            home: Arc::clone(self),
            connection: Some(connection),
            _permit: permit,
        })
    }

    /// Opens the connections that are still missing, so that no measurement pays for that.
    pub async fn fill(self: &Arc<Self>) -> sqlx::Result<()> {
        let mut missing = self.permits.available_permits();
        let mut opened = Vec::with_capacity(missing);
        while missing > 0 {
            // Not all at once: behind a full backlog a client believes itself connected, and waits for a greeting.
            let some = missing.min(AT_ONCE);
            missing -= some;
            let mut opening = JoinSet::new();
            for _ in 0..some {
                let home = Arc::clone(self);
                opening.spawn(async move { home.checkout().await });
            }
            for checkout in opening.join_all().await {
                opened.push(checkout?);
            }
        }
        opened.into_iter().for_each(Checkout::done);
        Ok(())
    }

    async fn open(&self) -> sqlx::Result<MySqlConnection> {
        let mut connection = timeout(GREETING, self.options.connect())
            .await
            .map_err(|_| sqlx::Error::PoolTimedOut)??;
        if !self.session.is_empty() {
            sqlx::raw_sql(self.session).execute(&mut connection).await?;
        }
        Ok(connection)
    }

    /// Closes the idle connections.
    pub async fn close(&self) {
        let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        for connection in idle {
            // The server notices a vanished client by itself.
            let _ = connection.close().await;
        }
    }
}

/// A borrowed connection; closed when dropped without [`done`](Self::done).
#[must_use = "the connection is closed when this is dropped"]
pub struct Checkout {
    home: Arc<Connections>,
    connection: Option<MySqlConnection>,
    _permit: OwnedSemaphorePermit,
}

impl Checkout {
    /// The connection.
    ///
    /// # Panics
    ///
    /// Never: only [`done`](Self::done), which consumes the checkout, takes it away.
    pub fn connection(&mut self) -> &mut MySqlConnection {
        self.connection
            .as_mut()
            .expect("a checkout holds its connection until it is done")
    }

    /// Gives the connection back: its session is outside any transaction and holds nothing.
    pub fn done(mut self) {
        if let Some(connection) = self.connection.take() {
            self.home
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(connection);
        }
    }
}
