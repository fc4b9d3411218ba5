//! The torture rig: worker processes that use the library, a nemesis that breaks what they rest on, and an oracle that
//! judges what they saw.

pub mod history;
pub mod log;
pub mod oracle;
