//! The mark of one holder.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

static NEXT: AtomicU64 = AtomicU64::new(1);
static PROCESS: OnceLock<u64> = OnceLock::new();

/// Sixteen bytes that no other acquisition of any process in this race has.
#[derive(Clone, Copy)]
pub struct Token([u8; 16]);

impl Token {
    /// A new one.
    pub fn new() -> Self {
        let process = PROCESS.get_or_init(|| {
            let started = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            (started.as_secs() << 32 | u64::from(started.subsec_nanos()))
                ^ u64::from(std::process::id()).rotate_left(20)
        });
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&process.to_be_bytes());
        bytes[8..].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        Self(bytes)
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}
