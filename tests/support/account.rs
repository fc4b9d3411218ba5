//! Accounts of a test's own.

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

use sqlx::mysql::MySqlConnectOptions;
use tag_lock::{LockClient, LockClientBuilder};

use crate::support::{TestDatabase, connect, run, server_url};

pub fn options(url: &str) -> MySqlConnectOptions {
    url.parse().unwrap()
}

pub fn random(prefix: &str) -> String {
    format!("{prefix}{:016x}", rand::random::<u64>())
}

/// An account with a password of its own.
pub struct Account {
    pub name: String,
    pub password: String,
}

impl Account {
    /// `with`: how the server is to check the password, if not as usual.
    pub async fn new(with: &str) -> Self {
        Self::create(with, "").await
    }

    /// One that may have so many connections at a time.
    pub async fn limited(connections: u32) -> Self {
        Self::create("", &format!("WITH MAX_USER_CONNECTIONS {connections}")).await
    }

    async fn create(with: &str, limits: &str) -> Self {
        let (name, password) = (random("u"), random("secret"));
        let mut connection = connect(&server_url()).await;
        let sql = format!("CREATE USER '{name}'@'%' IDENTIFIED {with} BY '{password}' {limits}");
        run(&mut connection, &sql).await;
        Self { name, password }
    }

    pub async fn grant(&self, privileges: &str, database: &TestDatabase) {
        let mut connection = connect(&server_url()).await;
        let sql = format!(
            "GRANT {privileges} ON {}.* TO '{}'@'%'",
            database.name, self.name
        );
        run(&mut connection, &sql).await;
    }

    pub fn options(&self, database: &TestDatabase) -> MySqlConnectOptions {
        options(&database.url)
            .username(&self.name)
            .password(&self.password)
    }

    pub fn builder(&self, database: &TestDatabase) -> LockClientBuilder {
        LockClient::builder(self.options(database))
    }

    pub async fn remove(self) {
        let mut connection = connect(&server_url()).await;
        run(&mut connection, &format!("DROP USER '{}'@'%'", self.name)).await;
    }
}
