//! The calls inside a transaction, each so that it is granted.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "written for several tests; each uses a part of it"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use tag_lock::{Error, LockClient, LockGuard};

use crate::support::TestDatabase;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Verify,
    Release,
    Lock,
    TryLock,
    Add,
    AddWithin,
    Get,
}

pub const CALLS: [Call; 7] = [
    Call::Verify,
    Call::Release,
    Call::Lock,
    Call::TryLock,
    Call::Add,
    Call::AddWithin,
    Call::Get,
];

/// A lease, a lock that nobody holds, and a counter that may rise by any number.
pub struct Stage {
    pub database: TestDatabase,
    pub client: LockClient,
    pub lease: LockGuard,
}

impl Stage {
    pub async fn new() -> Self {
        let database = TestDatabase::new().await;
        let client = database.client().await;
        let lease = client.lock("held").ttl(Duration::from_secs(3_600));
        Self {
            lease: lease.auto_renew(false).acquire().await.expect("acquires"),
            client,
            database,
        }
    }

    /// Calls what would be granted. The counter's value, if it is known then.
    pub async fn call(
        &self,
        call: Call,
        connection: &mut MySqlConnection,
    ) -> Result<Option<i64>, Error> {
        let counter = self.client.counter("c");
        match call {
            Call::Verify => self.lease.verify_in(connection).await.map(|()| None),
            Call::Release => self.lease.release_in(connection).await.map(|()| None),
            Call::Lock => self.client.lock_in(connection, "free").await.map(|_| None),
            Call::TryLock => {
                let lock = self.client.try_lock_in(connection, "free").await?;
                lock.expect("a lock that nobody holds is free");
                Ok(None)
            }
            Call::Add => counter.add_in(connection, 1).await.map(Some),
            Call::AddWithin => {
                let value = counter.add_within_in(connection, 1, 0..).await?;
                Ok(Some(value.expect("the sum is within the range")))
            }
            Call::Get => counter.get_in(connection).await.map(Some),
        }
    }
}
