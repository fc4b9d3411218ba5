//! The fault proxy itself: what it reads of the protocol, and that each fault does to a real server and client what
//! its name says.

#[path = "../support/proxy/mod.rs"]
mod proxy;

mod faults;
mod protocol;
mod rig;
mod switches;
