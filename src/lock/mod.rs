//! Locks: asking, waiting, holding, renewing, passing on.

mod all;
mod guard;
pub(crate) mod registry;
mod request;
mod shared;
pub(crate) mod terms;
mod work;

pub use self::all::{LockAllGuard, LockAllRequest};
pub use self::guard::{LeaseView, LockGuard};
pub use self::request::LockRequest;
pub(crate) use self::request::{MAX_DESCRIPTION, MIN_TTL};
pub use self::shared::{SharedGuard, SharedRequest};
pub use self::work::WorkOutput;
