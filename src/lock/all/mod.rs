//! Several locks at once: asking, waiting, holding.
//!
//! # Waiting
//!
//! At first a request holds nothing: it looks until all locks seem to be free, and then asks for all of them. Single requests may pass it
//! meanwhile, and those for one of the locks may do so for ever. So after [`PATIENCE`] it takes the locks in the order of their names, and
//! holds what it has: those that come before the first one that is held, at once; then that one, in its turn as any single request does; and
//! so on. All requests for several locks have that order, and what it holds comes before what it waits for: so no two of them wait for
//! each other.

mod guard;
mod names;
mod request;
mod wait;

use std::time::Duration;

pub use self::guard::LockAllGuard;
pub use self::request::LockAllRequest;

/// How long a request lets single ones pass.
const PATIENCE: Duration = Duration::from_secs(1);
