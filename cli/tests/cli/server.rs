//! The server, which all tests use. Most of them run side by side, each in a database of its own. A test that changes the settings
//! of the whole server runs alone.

use std::ops::Deref;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::support;

static SERVER: RwLock<()> = RwLock::const_new(());

/// A database of a test's own. While it exists, no test changes the settings of the server. A test makes one at a time: `SERVER`
/// is fair, so a second one would wait for a test that waits to run alone, and that test waits for the first one.
pub(crate) struct TestDatabase {
    database: support::TestDatabase,
    _side_by_side: Option<RwLockReadGuard<'static, ()>>,
}

impl TestDatabase {
    /// Creates a database and migrates it.
    pub(crate) async fn new() -> Self {
        let guard = SERVER.read().await;
        Self {
            database: support::TestDatabase::new().await,
            _side_by_side: Some(guard),
        }
    }

    /// Creates an empty database.
    pub(crate) async fn empty() -> Self {
        let guard = SERVER.read().await;
        Self {
            database: support::TestDatabase::empty().await,
            _side_by_side: Some(guard),
        }
    }

    /// Drops the database. Not called when a test fails, so that one can look.
    pub(crate) async fn remove(self) {
        self.database.remove().await;
    }
}

impl Deref for TestDatabase {
    type Target = support::TestDatabase;

    fn deref(&self) -> &Self::Target {
        &self.database
    }
}

/// No other test has a database while this exists.
pub(crate) struct Alone {
    _guard: RwLockWriteGuard<'static, ()>,
}

impl Alone {
    /// Waits until the tests that have a database have removed it.
    pub(crate) async fn on_the_server() -> Self {
        Self {
            _guard: SERVER.write().await,
        }
    }

    /// Creates a database and migrates it, for the test that runs alone.
    pub(crate) async fn database(&self) -> TestDatabase {
        TestDatabase {
            database: support::TestDatabase::new().await,
            _side_by_side: None,
        }
    }
}
