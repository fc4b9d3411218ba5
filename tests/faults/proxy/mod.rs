//! The fault proxy itself: what it reads of the protocol, and that each fault does to a real server and client what
//! its name says.

mod faults;
mod protocol;
mod rig;
mod switches;
