//! A pool that adds nothing to what its user sends.
//!
//! sqlx's own pool pings a connection when it comes back, which would cost a contestant a round trip that its
//! author could have avoided. This one hands out connections and takes them back. A connection whose user did not
//! say [`Checkout::done`] is closed, since nobody knows what state its session is in.

#![allow(dead_code, reason = "the bench and the tests that include this file use different parts of it")]

use std::sync::{Mutex, PoisonError};

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::{Semaphore, SemaphorePermit};

/// A fixed number of connections, opened when first needed.
pub struct Connections {
    options: MySqlConnectOptions,
    /// Sent once on each new connection.
    session: &'static str,
    idle: Mutex<Vec<MySqlConnection>>,
    permits: Semaphore,
}

impl Connections {
    /// At most `limit` connections to the database at `url`; each runs `session` (settings) when it is opened.
    pub fn new(url: &str, limit: usize, session: &'static str) -> sqlx::Result<Self> {
        Ok(Self {
            options: url.parse()?,
            session,
            idle: Mutex::new(Vec::with_capacity(limit)),
            permits: Semaphore::new(limit),
        })
    }

    /// A connection of the caller's own, waiting for one when all are in use.
    pub async fn checkout(&self) -> sqlx::Result<Checkout<'_>> {
        let permit = self.permits.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.open().await?,
        };
        Ok(Checkout { home: self, connection: Some(connection), _permit: permit })
    }

    /// Opens a connection that is not counted and not kept.
    pub async fn open(&self) -> sqlx::Result<MySqlConnection> {
        let mut connection = self.options.connect().await?;
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
pub struct Checkout<'a> {
    home: &'a Connections,
    connection: Option<MySqlConnection>,
    _permit: SemaphorePermit<'a>,
}

impl Checkout<'_> {
    /// The connection.
    ///
    /// # Panics
    ///
    /// Never: only [`done`](Self::done), which consumes the checkout, takes it away.
    pub fn connection(&mut self) -> &mut MySqlConnection {
        self.connection.as_mut().expect("a checkout holds its connection until it is done")
    }

    /// Gives the connection back: its session is outside any transaction and holds nothing.
    pub fn done(mut self) {
        if let Some(connection) = self.connection.take() {
            self.home.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}
