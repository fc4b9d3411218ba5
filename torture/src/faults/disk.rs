//! The server's disk is full for a while: a bystander fills it, and frees it again.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::rngs::ChaCha8Rng;
use rustix::fs::statvfs;

use super::{Failure, Fault, Lane, Rig};
use crate::instant::now;

pub(super) struct DiskFull;

/// A larger disk is not one that was made for this.
const LARGEST: u64 = 4 << 30;

impl Fault for DiskFull {
    fn name(&self) -> &'static str {
        "disk-full"
    }

    fn lane(&self) -> Lane {
        Lane::Server
    }

    fn weight(&self) -> u32 {
        10
    }

    fn is_default(&self) -> bool {
        false
    }

    /// Only a small disk of the server's own is filled: start the server with TMPDIR on a size-limited tmpfs.
    fn is_possible(&self, rig: &Rig) -> bool {
        rig.servers.nodes.iter().all(|node| {
            let directory = node.directory.as_deref();
            directory.is_some_and(|directory| size(directory).is_some_and(|size| size <= LARGEST))
        })
    }

    fn strike<'a>(
        &'a self,
        rig: &'a Rig,
        random: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        Box::pin(async move {
            let from = now();
            let path = rig.any_writer(random).directory()?.join("bystander");
            let filled = path.clone();
            let full = tokio::task::spawn_blocking(move || fill(&filled)).await?;
            rig.pause(Duration::from_secs(2)).await;
            fs::remove_file(&path)?;
            rig.note_outage(None, from);
            Ok(full)
        })
    }
}

/// How large the disk is that holds a directory.
fn size(directory: &Path) -> Option<u64> {
    let disk = statvfs(directory).ok()?;
    Some(disk.f_blocks * disk.f_frsize)
}

/// Writes until nothing more fits. Whether that came.
fn fill(path: &Path) -> bool {
    let Ok(mut file) = File::create(path) else {
        return false;
    };
    for block in [1 << 20, 4 << 10, 1] {
        let bytes = vec![0; block];
        for _ in 0..LARGEST / (1 << 20) + 512 {
            if file.write_all(&bytes).is_err() {
                break;
            }
        }
    }
    file.write_all(&[0]).is_err()
}
