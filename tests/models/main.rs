//! Tests that need no server: of models, documents and scripts.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(unreachable_pub, reason = "a test has no users")]

mod documents;
mod shared_model;
mod with_mysql;
