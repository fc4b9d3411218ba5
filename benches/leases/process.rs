//! What processes use: their processor time and memory, as `/proc` tells.

use std::fs;
use std::path::Path;

use crate::Result;
use crate::figures::float;

/// Linux counts processor time in hundredths of a second, whatever its kernel's own tick.
const TICKS_A_SECOND: f64 = 100.0;
const PAGE: u64 = 4_096;

/// The server's process id, if `scripts/with-mysql` started the server.
pub(crate) fn server() -> Option<String> {
    let directory = std::env::var_os("TAG_LOCK_SERVER_DIR")?;
    let pid = fs::read_to_string(Path::new(&directory).join("server.pid")).ok()?;
    Some(pid.trim().to_owned())
}

/// Seconds of processor time of a process so far, `self` or a number.
pub(crate) fn cpu_seconds(pid: &str) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may have spaces in it.
    let (_, fields) = stat
        .rsplit_once(')')
        .ok_or("an unknown form of /proc/PID/stat")?;
    let ticks: u64 = fields
        .split_ascii_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum();
    Ok(float(ticks) / TICKS_A_SECOND)
}

/// Bytes of memory that this process has resident.
pub(crate) fn resident() -> Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm
        .split_ascii_whitespace()
        .nth(1)
        .ok_or("an unknown form of /proc/self/statm")?
        .parse()?;
    Ok(pages * PAGE)
}
