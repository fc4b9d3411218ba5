//! What can go wrong, and what to do about it.

use std::fmt;
use std::time::Duration;

use crate::cause::Cause;
use crate::sql::TABLE;
use crate::sql::server_error::{self, Meaning, code_of};

/// An error of a lock, a counter, or the client.
///
/// That a lock is held is no error for [`try_acquire`](crate::LockRequest::try_acquire), nor is it
/// one for [`add_within`](crate::Counter::add_within) that the result would leave the range: those
/// answer with a value.
///
/// An error shows its own part only; its [`source`](std::error::Error::source) is what the server or the driver said. Print both.
///
/// # Errors that any call may return
///
/// Any call that asks the server may end with one of these. *Done*: whether what was asked for may have happened. *Retry*: whether the same call
/// may succeed without anybody mending anything, which [`is_retryable`](Self::is_retryable) tells.
///
/// | error | done | retry | typical cause |
/// |---|---|---|---|
/// | [`Unreachable`](Self::Unreachable) | no | yes | the server is down, restarts, or fails over; the network |
/// | [`OutcomeUnknown`](Self::OutcomeUnknown) | not known | no | the connection broke during the request, and the server stayed away |
/// | [`TooManyConnections`](Self::TooManyConnections) | no | yes | `max_user_connections` or `max_connections` is reached |
/// | [`ReadOnly`](Self::ReadOnly) | no | yes | a failover is under way, or the address is a replica's |
/// | [`Locked`](Self::Locked) | no | yes | `LOCK TABLES`, a backup, `ALTER TABLE`, or a transaction on the library's tables |
/// | [`Overloaded`](Self::Overloaded) | no | yes | more requests at once than the server carries out in time |
/// | [`AccessDenied`](Self::AccessDenied) | no | no | a wrong password, or a privilege is missing |
/// | [`NoDatabase`](Self::NoDatabase) | no | no | the database that the URL names was never created, or the name is wrong |
/// | [`NotMigrated`](Self::NotMigrated) | no | no | [`migrate`](crate::LockClient::migrate) was not called |
/// | [`NotDriven`](Self::NotDriven) | may happen later | no | the runtime that connected the client is blocked, or has ended |
/// | [`Closed`](Self::Closed) | no | no | the client was closed |
/// | [`Database`](Self::Database) | no | of a conflict only | an error of the server's that has no variant here |
///
/// What a call returns besides stands in its own section. Calls inside of a transaction return
/// [`NoTransaction`](Self::NoTransaction) and [`OtherDatabase`](Self::OtherDatabase) (nothing done, no retry), and [`Interrupted`](Self::Interrupted), [`RolledBack`](Self::RolledBack) and
/// [`StaleSnapshot`](Self::StaleSnapshot): roll back, and run the transaction again.
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
    ///
    /// - Of an addition to a counter, or another change: nothing was changed.
    /// - Of [`lock_in`](crate::LockClient::lock_in) and the other calls inside of a transaction: another transaction has held the row for longer
    ///   than the connection's `innodb_lock_wait_timeout`. Roll back.
    /// - Of [`LockGuard::release`](crate::LockGuard::release), at once: a transaction in which the lease was verified is open. The lock is released
    ///   when that has ended.
    /// - Of [`LockGuard::extend`](crate::LockGuard::extend): the lease is as it was, or another renewal has made it longer, but not by so much.
    /// - Of [`LockGuard::downgrade`](crate::LockGuard::downgrade): the lock is released.
    /// - Of [`force_release`](crate::LockClient::force_release), and of the same for permits and slots: it was not freed.
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
        source: Cause<sqlx::Error>,
    },
    /// The database that the URL names does not exist.
    #[error("the database does not exist: create it, or correct the URL")]
    NoDatabase {
        /// What the server said.
        #[source]
        source: Cause<sqlx::Error>,
    },
    /// The migration failed.
    #[error("the migration failed")]
    Migrate {
        /// Why.
        #[source]
        source: Cause<sqlx::migrate::MigrateError>,
    },
    /// The server takes no writes: it is a replica, or was made read-only.
    #[error("the server is read-only: connect to the primary, or wait for the failover to end")]
    ReadOnly {
        /// What the server said.
        #[source]
        source: Cause<sqlx::Error>,
    },
    /// The account may not do this.
    #[error(
        "access denied: check user and password, and grant SELECT, INSERT, UPDATE on t_tag_lock and \
         t_tag_lock_lane (DELETE to purge, CREATE to migrate)"
    )]
    AccessDenied {
        /// What the server said.
        #[source]
        source: Cause<sqlx::Error>,
    },
    /// The server cannot be reached, or did not answer in time.
    #[error("the server cannot be reached: check the address and whether it runs")]
    Unreachable {
        /// What happened.
        #[source]
        source: Cause<sqlx::Error>,
    },
    /// The server gives this account no connection, or no further one: a client needs at least one.
    #[error(
        "too many connections: raise max_user_connections of the account or max_connections of the server, or close \
         others"
    )]
    TooManyConnections {
        /// What the server said.
        #[source]
        source: Cause<sqlx::Error>,
    },
    /// The connection broke while the server worked on the request, and whether it was carried out
    /// could not be found out within the time limit. The client goes on finding it out in the background; the caller is not told.
    ///
    /// - Of an addition: use [`add_once`](crate::Counter::add_once) where a repeat must be safe. The value alone does not tell if others add, too.
    /// - Of a release: the lock is free at the latest when its lease ends. What it protected may have been touched by somebody else.
    /// - Of [`try_acquire`](crate::LockRequest::try_acquire): a grant that comes late is given back. Ask again.
    #[error(
        "it is not known whether the request on {name:?} was carried out: do not repeat an addition blindly (add_once may be \
         repeated); a lock is free at the latest when its lease ends"
    )]
    OutcomeUnknown {
        /// The name of the lock or counter.
        name: String,
    },
    /// The connection of a `…_in` call is in no transaction: what it is to hold until the transaction ends, it would not hold. It
    /// has changed nothing.
    #[error(
        "{name:?} can only be used inside of a transaction here, and the connection is in none: begin one first, and call this \
         before it ends (the server ends it with some errors, and with statements such as ALTER TABLE)"
    )]
    NoTransaction {
        /// The name of the lock or counter.
        name: String,
    },
    /// The current database of the connection of a `…_in` call is not the client's, so that it would be about other locks and counters, or
    /// none. It has changed nothing; roll back, since it may have locked a row of that name there.
    #[error(
        "{name:?} is in the database {database:?}, and the connection of the transaction is in another one: roll back, and give \
         this a connection whose current database is the client's"
    )]
    OtherDatabase {
        /// The name of the lock or counter.
        name: String,
        /// The client's database.
        database: String,
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
        source: Option<Cause<sqlx::Error>>,
    },
    /// The server rolled back the caller's transaction, all of it: it was in the way of another one (a deadlock), or another
    /// node of a cluster was faster. It says nothing about the lock or the counter.
    #[error(
        "the server rolled back the transaction that used {name:?} (a deadlock, or a conflict in a cluster): run the transaction \
         again"
    )]
    RolledBack {
        /// The name of the lock or counter.
        name: String,
        /// What the server said.
        #[source]
        source: Cause<sqlx::Error>,
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
        source: Cause<sqlx::Error>,
    },
    /// The operation's id was used with another counter, delta or range. Nothing was changed.
    #[error("the operation id {id:?} stands for another operation: use a fresh one")]
    OperationMismatch {
        /// The id.
        id: String,
    },
    /// The work on a job's slot has called [`finish_in`](crate::JobLease::finish_in) and succeeded, but the transaction was not committed.
    /// The slot is not done, and is free again.
    #[error(
        "slot {name:?} is not done: the transaction in which it was finished was not committed; commit it before the work ends"
    )]
    NotFinished {
        /// The slot, as `job@slot`.
        name: String,
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
    #[error("the server refused")]
    Database {
        /// What the server said.
        #[source]
        source: Cause<sqlx::Error>,
    },
}

impl Error {
    /// The server was silent for as long as the caller had time.
    pub(crate) fn no_answer() -> Self {
        let source = std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            "the server did not answer before the wait was over",
        );
        Self::Unreachable {
            source: sqlx::Error::Io(source).into(),
        }
    }

    /// Whether the same call may succeed when it is made again, without anybody mending anything; and nothing was done by the
    /// first one. Inside of a transaction: when that is rolled back, and run again as a whole.
    ///
    /// Two kinds of call are not made again as they were. [`release`](crate::LockGuard::release) and others that take the guard say
    /// [`Busy`](Self::Busy) when the client goes on releasing by itself: there is nothing left to call. And
    /// [`run_once`](crate::JobSlot::run_once) may return such an error when the work has run already: calling it again runs the work
    /// again, unless the slot was recorded meanwhile, which it then says.
    ///
    /// Not [`LockLost`](Self::LockLost), since what the lock protected may need to be looked at, and not
    /// [`OutcomeUnknown`](Self::OutcomeUnknown), since the first call may have been carried out.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// let ticket = loop {
    ///     match locks.counter("ticket").add(1).await {
    ///         Err(error) if error.is_retryable() => tokio::time::sleep(std::time::Duration::from_secs(1)).await,
    ///         answer => break answer?,
    ///     }
    /// };
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Timeout { .. }
            | Self::Busy { .. }
            | Self::Overloaded { .. }
            | Self::Locked { .. }
            | Self::ReadOnly { .. }
            | Self::Unreachable { .. }
            | Self::TooManyConnections { .. }
            | Self::Interrupted { .. }
            | Self::RolledBack { .. }
            | Self::StaleSnapshot { .. } => true,
            Self::Database { source } => {
                code_of(source).is_some_and(|code| Meaning::of(code) == Meaning::Conflict)
            }
            Self::InvalidName { .. }
            | Self::InvalidOption { .. }
            | Self::LockLost { .. }
            | Self::Overflow { .. }
            | Self::NotMigrated { .. }
            | Self::NoDatabase { .. }
            | Self::Migrate { .. }
            | Self::AccessDenied { .. }
            | Self::OutcomeUnknown { .. }
            | Self::NoTransaction { .. }
            | Self::OtherDatabase { .. }
            | Self::NotFinished { .. }
            | Self::OperationMismatch { .. }
            | Self::NotDriven
            | Self::Closed => false,
        }
    }

    /// Whether a lease was lost: [`LockLost`](Self::LockLost).
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::LockLost { .. })
    }

    /// The name of the lock or counter that it is about, if it is about one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::InvalidName { name, .. }
            | Self::Timeout { name, .. }
            | Self::LockLost { name }
            | Self::Overflow { name, .. }
            | Self::Busy { name }
            | Self::Overloaded { name }
            | Self::OutcomeUnknown { name }
            | Self::NoTransaction { name }
            | Self::OtherDatabase { name, .. }
            | Self::NotFinished { name }
            | Self::Interrupted { name, .. }
            | Self::RolledBack { name, .. }
            | Self::StaleSnapshot { name, .. } => Some(name),
            Self::InvalidOption { .. }
            | Self::Locked { .. }
            | Self::NotMigrated { .. }
            | Self::NoDatabase { .. }
            | Self::Migrate { .. }
            | Self::ReadOnly { .. }
            | Self::AccessDenied { .. }
            | Self::Unreachable { .. }
            | Self::TooManyConnections { .. }
            | Self::OperationMismatch { .. }
            | Self::NotDriven
            | Self::Closed
            | Self::Database { .. } => None,
        }
    }

    /// Itself and its source in one line, for a log.
    pub(crate) fn in_full(&self) -> InFull<'_> {
        InFull(self)
    }

    /// What an error of the driver means to a user of this library.
    pub(crate) fn from_sqlx(error: sqlx::Error) -> Self {
        let code = code_of(&error);
        let source = Cause::from(error);
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

pub(crate) struct InFull<'e>(&'e Error);

impl fmt::Display for InFull<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        match std::error::Error::source(self.0) {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
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

#[cfg(test)]
mod tests;
