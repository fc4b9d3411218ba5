//! What can go wrong, and what to do about it.

use std::sync::Arc;
use std::time::Duration;

use crate::sql::TABLE;
use crate::sql::server_error::{self, Meaning, code_of};

/// An error of a lock, a counter, or the client.
///
/// That a lock is held is no error for [`try_acquire`](crate::LockRequest::try_acquire), nor is it
/// one for [`add_within`](crate::Counter::add_within) that the result would leave the range: those
/// answer with a value.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name cannot be stored as itself. Nothing was sent.
    #[error("invalid name {name:?}: {reason}")]
    InvalidName {
        /// The name, at most its first 256 characters.
        name: String,
        /// What is wrong with it, and what to do.
        reason: &'static str,
    },
    /// An option makes no sense, alone or with the others. Nothing was sent.
    #[error("invalid {option}: {reason}")]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// The lock was not free within the time that the caller gave.
    #[error("timed out waiting for lock {name:?}{}", in_the_way(holder.as_deref(), *remaining))]
    Timeout {
        /// The lock's name.
        name: String,
        /// Who holds it, and its description, if they could be read.
        holder: Option<String>,
        /// How much of the holder's lease was left; it may renew it.
        remaining: Option<Duration>,
    },
    /// The lease is no longer this guard's: it ended, was taken over, or was released by force.
    #[error("the lease of lock {name:?} was lost: stop what it protected, and acquire it again")]
    LockLost {
        /// The lock's name.
        name: String,
    },
    /// The sum does not fit into 64 bits. Nothing was changed.
    #[error("adding {delta} to counter {name:?}, which is {value}, leaves the 64-bit range")]
    Overflow {
        /// The counter's name.
        name: String,
        /// Its value.
        value: i64,
        /// What was to be added.
        delta: i64,
    },
    /// A transaction holds the row for longer than the request's time limit, or, where a request does not wait for it, at each of its
    /// attempts.
    #[error(
        "{name:?} is held by an open transaction: commit or roll that back first (is it your own?)"
    )]
    Busy {
        /// The name of the lock or counter.
        name: String,
    },
    /// The client had more requests than the server carried out within the request's time limit. Nothing was changed.
    #[error(
        "the request on {name:?} was not sent in time, since too many others came before it: ask for less at once, or give \
         requests more time (request_timeout)"
    )]
    Overloaded {
        /// The name of the lock or counter.
        name: String,
    },
    /// Somebody keeps one of the library's tables locked, or rows in it, for longer than the request's time limit.
    #[error("{}", locked(table, *whole))]
    Locked {
        /// The table's name.
        table: &'static str,
        /// The table is locked as a whole, as `LOCK TABLES` does; otherwise it is rows that an open transaction has locked.
        whole: bool,
    },
    /// The database has no table for locks, or one of another version.
    #[error("the table t_tag_lock is missing or outdated: call LockClient::migrate() once")]
    NotMigrated {
        /// What the server said.
        #[source]
        source: Arc<sqlx::Error>,
    },
    /// The database that the URL names does not exist.
    #[error("the database does not exist: create it, or correct the URL: {source}")]
    NoDatabase {
        /// What the server said.
        #[source]
        source: Arc<sqlx::Error>,
    },
    /// The migration failed.
    #[error("the migration failed: {source}")]
    Migrate {
        /// Why.
        #[source]
        source: Arc<sqlx::migrate::MigrateError>,
    },
    /// The server takes no writes: it is a replica, or was made read-only.
    #[error("the server is read-only: connect to the primary, or wait for the failover to end")]
    ReadOnly {
        /// What the server said.
        #[source]
        source: Arc<sqlx::Error>,
    },
    /// The account may not do this.
    #[error(
        "access denied: check user and password, and grant SELECT, INSERT, UPDATE on t_tag_lock and \
         t_tag_lock_lane (DELETE to purge, CREATE to migrate): {source}"
    )]
    AccessDenied {
        /// What the server said.
        #[source]
        source: Arc<sqlx::Error>,
    },
    /// The server cannot be reached, or did not answer in time.
    #[error("the server cannot be reached: check the address and whether it runs: {source}")]
    Unreachable {
        /// What happened.
        #[source]
        source: Arc<sqlx::Error>,
    },
    /// The server gives this account no connection, or no further one: a client needs at least one.
    #[error(
        "too many connections: raise max_user_connections of the account or max_connections of the server, or close \
         others: {source}"
    )]
    TooManyConnections {
        /// What the server said.
        #[source]
        source: Arc<sqlx::Error>,
    },
    /// The connection broke while the server worked on the request, and whether it was carried out
    /// could not be found out within the time limit. It is found out in the background.
    #[error(
        "the outcome of the request on {name:?} is unknown: read the value before you repeat it"
    )]
    OutcomeUnknown {
        /// The name of the lock or counter.
        name: String,
    },
    /// The server undid a statement in a transaction of the caller's: `KILL QUERY` stopped it, or a limit such as
    /// MariaDB's `max_statement_time`. Or somebody deleted the row meanwhile. It says nothing about the lock or the counter.
    #[error(
        "the server undid the statement on {name:?} (KILL QUERY, or a limit such as max_statement_time), or its row was \
         deleted: roll back, and run the transaction again"
    )]
    Interrupted {
        /// The name of the lock or counter.
        name: String,
        /// What the server said; `None` where it acknowledged the statement all the same.
        #[source]
        source: Option<Arc<sqlx::Error>>,
    },
    /// MariaDB with `innodb_snapshot_isolation` (on by default from 11.6.2): the row changed after the transaction's
    /// first read, and the server has rolled the transaction back.
    ///
    /// Under REPEATABLE READ, unless the call is the first in the transaction; that may wait for as long as it likes. Under
    /// SERIALIZABLE only where the server is older, or the level was set for one transaction and not for the session: there
    /// a first call fails, too, if it waited. Never under READ COMMITTED.
    #[error(
        "{name:?} changed after the transaction's first read: call this first in the transaction, or \
         use READ COMMITTED (if you need SERIALIZABLE, set it for the session), and run the transaction again"
    )]
    StaleSnapshot {
        /// The name of the lock or counter.
        name: String,
        /// What the server said.
        #[source]
        source: Arc<sqlx::Error>,
    },
    /// The operation's id was used with another counter, delta or range. Nothing was changed.
    #[error("the operation id {id:?} stands for another operation: use a fresh one")]
    OperationMismatch {
        /// The id.
        id: String,
    },
    /// The client was closed.
    #[error("the lock client is closed")]
    Closed,
    /// The call came from another runtime than the one that connected the client, which runs the client's tasks: that one did not run
    /// any for longer than the request's time limit. What was asked for may happen when it runs again.
    #[error(
        "the runtime that connected the lock client does not run its tasks: it is blocked, has ended, or nobody drives it; let it \
         run, or connect with own_thread(true)"
    )]
    NotDriven,
    /// The server refused for a reason of its own.
    #[error("the server refused: {source}")]
    Database {
        /// What the server said.
        #[source]
        source: Arc<sqlx::Error>,
    },
}

impl Error {
    /// What an error of the driver means to a user of this library.
    pub(crate) fn from_sqlx(error: sqlx::Error) -> Self {
        let code = code_of(&error);
        let source = Arc::new(error);
        match code {
            None if matches!(*source, sqlx::Error::PoolTimedOut) => {
                Self::TooManyConnections { source }
            }
            None if is_connection(&source) => Self::Unreachable { source },
            None => Self::Database { source },
            Some(server_error::NO_SUCH_TABLE | server_error::BAD_FIELD) => {
                Self::NotMigrated { source }
            }
            // Where rows are waited for, the caller looks which: see [`crate::sql::obstacle`].
            Some(server_error::LOCK_WAIT_TIMEOUT) => Self::Locked {
                table: TABLE,
                whole: true,
            },
            Some(server_error::BAD_DATABASE) => Self::NoDatabase { source },
            Some(code) if server_error::DENIED.contains(&code) => Self::AccessDenied { source },
            Some(code) if server_error::TOO_MANY_CONNECTIONS.contains(&code) => {
                Self::TooManyConnections { source }
            }
            Some(code) => match Meaning::of(code) {
                Meaning::ReadOnly => Self::ReadOnly { source },
                Meaning::Gone => Self::Unreachable { source },
                _ => Self::Database { source },
            },
        }
    }

    /// Whether trying again cannot help.
    pub(crate) fn is_hopeless(&self) -> bool {
        match self {
            Self::NotMigrated { .. } | Self::AccessDenied { .. } | Self::NoDatabase { .. } => true,
            Self::Database { source } => {
                code_of(source).is_some_and(|code| Meaning::of(code) == Meaning::Hopeless)
            }
            _ => false,
        }
    }
}

fn in_the_way(holder: Option<&str>, remaining: Option<Duration>) -> String {
    match (holder, remaining) {
        (Some(holder), Some(left)) => format!(": held by {holder}, whose lease has {left:?} left"),
        (Some(holder), None) => format!(": held by {holder}"),
        (None, _) => String::new(),
    }
}

fn locked(table: &str, whole: bool) -> String {
    if whole {
        format!(
            "the table {table} is locked as a whole: find who holds it by LOCK TABLES, FLUSH TABLES WITH READ LOCK or \
             ALTER TABLE (SHOW FULL PROCESSLIST), and end that"
        )
    } else {
        format!(
            "an open transaction has locked rows of the table {table}, which only this library writes: find it \
             (information_schema.INNODB_TRX), and end it"
        )
    }
}

fn is_connection(error: &sqlx::Error) -> bool {
    matches!(
        error,
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_)
    )
}
