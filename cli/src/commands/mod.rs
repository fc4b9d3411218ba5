//! The commands that ask the server something and print what it says.

mod counter;
mod generated;
mod locks;
mod tables;
mod watch;

pub(crate) use self::counter::counter;
pub(crate) use self::generated::{completions, man};
pub(crate) use self::locks::{inspect, list, release, taken};
pub(crate) use self::tables::{migrate, purge};
pub(crate) use self::watch::watch;
