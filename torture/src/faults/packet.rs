//! Faults of single packets: they wait in a worker's proxy for the next command that they fit.

use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

use super::{Failure, Fault, Lane, Rig};
use crate::proxy::{self, Command, CommandKind, Hold, Upstream};

/// A fault of a single packet.
pub(super) struct PacketFault {
    name: &'static str,
    weight: u32,
    fits: fn(&Command) -> bool,
    make: fn(&mut ChaCha8Rng) -> proxy::Fault,
}

/// The server has committed, and nobody is told.
pub(super) const LOST_COMMIT_REPLY: PacketFault = PacketFault {
    name: "lost-commit-reply",
    weight: 30,
    fits: Command::contains_commit,
    make: |_| proxy::Fault::CutAfter(Upstream::Replied),
};

/// The same, for any command.
pub(super) const LOST_REPLY: PacketFault = PacketFault {
    name: "lost-reply",
    weight: 5,
    fits: is_query,
    make: |_| proxy::Fault::CutAfter(Upstream::FirstByte),
};

/// The command never arrives.
pub(super) const LOST_PACKET: PacketFault = PacketFault {
    name: "lost-packet",
    weight: 8,
    fits: is_query,
    make: |_| proxy::Fault::CutBefore,
};

/// The server may find the connection closed while it works.
pub(super) const FORWARDED_AND_CUT: PacketFault = PacketFault {
    name: "forwarded-and-cut",
    weight: 10,
    fits: Command::contains_commit,
    make: |_| proxy::Fault::CutAfter(Upstream::Forwarded),
};

/// The connection is reset (RST).
pub(super) const RESET: PacketFault = PacketFault {
    name: "reset",
    weight: 8,
    fits: is_query,
    make: |_| proxy::Fault::Reset,
};

/// Half a packet arrives.
pub(super) const TRUNCATED: PacketFault = PacketFault {
    name: "truncated",
    weight: 5,
    fits: is_query,
    make: |_| proxy::Fault::Truncate,
};

/// Half a reply arrives.
pub(super) const TRUNCATED_REPLY: PacketFault = PacketFault {
    name: "truncated-reply",
    weight: 5,
    fits: is_query,
    make: |_| proxy::Fault::TruncateReply,
};

/// A packet that its client may have given up on still reaches the server: a ghost.
pub(super) const LATE_COMMAND: PacketFault = PacketFault {
    name: "late-packet",
    weight: 8,
    fits: Command::contains_commit,
    make: |random| {
        proxy::Fault::HoldCommand(Hold::For(Duration::from_millis(
            random.random_range(50..4_000),
        )))
    },
};

/// Bytes vanish and nobody closes.
pub(super) const HALF_OPEN: PacketFault = PacketFault {
    name: "half-open",
    weight: 3,
    fits: is_query,
    make: |_| proxy::Fault::HalfOpen,
};

fn is_query(command: &Command) -> bool {
    matches!(command.kind(), CommandKind::Query | CommandKind::Execute)
}

impl PacketFault {
    /// Lets it wait for a command of some worker.
    pub(super) fn arm(&self, rig: &Rig, random: &mut ChaCha8Rng) {
        let slot = rig.any_slot(random);
        slot.wire.arm(self.name, self.fits, (self.make)(random));
    }
}

impl Fault for PacketFault {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lane(&self) -> Lane {
        Lane::Wire
    }

    fn weight(&self) -> u32 {
        self.weight
    }

    fn strike<'a>(
        &'a self,
        rig: &'a Rig,
        random: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        self.arm(rig, random);
        // It counts itself when its command comes.
        Box::pin(async { Ok(false) })
    }
}
