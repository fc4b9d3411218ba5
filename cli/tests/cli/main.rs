//! The command `tag-lock`, run as a user runs it. It needs a server: `scripts/with-mysql cargo test --test cli`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod clusters;
mod counters;
mod doctor;
mod globals;
mod help;
mod kinds;
mod locks;
#[allow(dead_code, reason = "the library's tests use the rest")]
#[path = "../../../tests/clusters/nodes.rs"]
mod nodes;
mod processes;
mod report;
mod rig;
mod run;
mod run_ends;
mod run_kinds;
mod run_once;
mod run_signals;
#[cfg(target_os = "linux")]
mod screens;
mod secrets;
mod server;
#[path = "../../../tests/support/mod.rs"]
mod support;
mod tables;
#[cfg(target_os = "linux")]
mod terminal;
#[cfg(target_os = "linux")]
mod terminals;
#[cfg(target_os = "linux")]
mod tmux;
#[cfg(target_os = "linux")]
mod top;
mod unfit;
mod unfit_server;
