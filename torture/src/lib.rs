//! The torture rig: worker processes that use the library, a nemesis that breaks what they rest on, and an oracle that
//! judges what they saw.
//!
//! Where what lives: `worker` is what the processes do, `history` and `log` what they write down; `fleet` starts and
//! ends them, each behind a `wire`; `nemesis` draws from `faults`; `run` holds it all together; `case` reads a history
//! and asks the oracle; `mutants` shows that the oracle can see.

pub mod bank;
pub mod canaries;
pub mod case;
pub mod cluster;
pub mod faults;
pub mod final_state;
pub mod fleet;
pub mod history;
pub mod instant;
pub mod log;
pub mod mutant_build;
pub mod mutants;
pub mod nemesis;
pub mod options;
pub mod oracle;
#[path = "../../tests/support/proxy/mod.rs"]
mod proxy;
pub mod report;
pub mod resource;
pub mod run;
pub mod server;
pub mod setup;
pub mod tallies;
#[allow(
    dead_code,
    unreachable_pub,
    reason = "written for tests, which use more of it"
)]
#[path = "../../tests/support/wall_clock.rs"]
mod wall_clock;
pub mod wire;
pub mod worker;
