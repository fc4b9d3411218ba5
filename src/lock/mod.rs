//! Locks: asking, waiting, holding, renewing, passing on.

#[cfg(test)]
mod cost;
mod guard;
mod keeper;
mod lease;
mod pace;
mod place;
pub(crate) mod registry;
mod request;
mod rotation;
mod turn;
mod watcher;

pub use self::guard::{LeaseView, LockGuard};
pub use self::request::LockRequest;
pub(crate) use self::request::Terms;
