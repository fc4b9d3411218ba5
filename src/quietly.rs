//! What takes in what the client tells is code of the application.

use std::panic::AssertUnwindSafe;

/// Tells something. A panic of whoever takes it in undoes nothing here.
pub(crate) fn quietly(tell: impl FnOnce()) {
    drop(std::panic::catch_unwind(AssertUnwindSafe(tell)));
}
