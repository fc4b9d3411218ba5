// Not for the tests of the documentation: they go by the name of the first file.
#![cfg_attr(not(doctest), doc = include_str!("docs/links.md"))]
#![cfg_attr(not(doctest), doc = include_str!("docs/race.md"))]
#![doc = include_str!("../README.md")]

mod address;
mod cause;
mod client;
mod clock;
#[cfg(test)]
mod cost;
mod counter;
#[cfg(doc)]
pub mod docs;
mod election;
mod engine;
mod error;
mod inspect;
mod job;
mod lock;
mod metric;
mod mutant;
mod name;
mod permit;
mod purge;
mod quietly;
mod range;
mod schema;
mod sql;
mod stripe;
mod telemetry;
mod timing;
mod token;
mod touched;
mod transaction;
mod watch;

pub use self::cause::Cause;
pub use self::client::{AtClose, LockClient, LockClientBuilder, Stripes};
pub use self::counter::{Counter, CounterInfo};
pub use self::election::{Election, Leader, Leaders, Leadership};
pub use self::error::Error;
pub use self::inspect::{LockInfo, LockState, Urgency, Wish};
pub use self::job::{Job, JobLease, JobSlot, RunOnce};
pub use self::lock::{
    LeaseView, LockAllGuard, LockAllRequest, LockGuard, LockRequest, SharedGuard, SharedRequest,
    WorkOutput,
};
#[cfg(tag_lock_mutants)]
#[doc(hidden)]
pub use self::mutant::MUTANTS;
pub use self::permit::{Permit, Permits, Semaphore};
pub use self::purge::Purged;
pub use self::schema::{MIGRATIONS, migrate_with};
pub use self::transaction::TransactionLock;
pub use self::watch::{Holder, LockWatch};
