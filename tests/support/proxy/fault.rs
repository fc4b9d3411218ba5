//! What can happen to a command and to its reply.

use super::gate::Hold;

/// What the proxy does with one command.
#[derive(Debug, Clone, Default)]
pub enum Fault {
    /// Nothing: the command and its reply pass.
    #[default]
    Pass,
    /// Closes both sides; the server never sees the command.
    CutBefore,
    /// Hands the whole command to the server, and closes the client's side without a byte of reply.
    CutAfter(Upstream),
    /// Withholds the reply, all of it.
    HoldReply(Hold),
    /// Withholds the command, like a packet delayed in the network. When its client goes away meanwhile, the server
    /// still gets it later, on the connection that it was meant for.
    HoldCommand(Hold),
    /// From this command on nothing passes in either direction, nor does the end of either side: both sockets stay
    /// open until [`cut_all`](super::Proxy::cut_all).
    HalfOpen,
    /// Resets the client's connection (RST, not FIN); the server never sees the command.
    Reset,
    /// Hands half of the command's bytes to the server, and closes both sides.
    Truncate,
    /// Lets the server run the command, hands half of the reply's bytes to the client, and closes both sides.
    TruncateReply,
    /// The server never sees the command; the client is told that it was carried out, and changed no row. So MariaDB
    /// may acknowledge a statement that it undid.
    Undone,
}

/// How long [`Fault::CutAfter`] keeps the server's side open. The client's side closes at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Upstream {
    /// Until the kernel has the command: the server may find the connection closed while it works.
    Forwarded,
    /// Until the first byte of the reply.
    FirstByte,
    /// Until the last byte of the reply: the server is done with the command, so what it committed is committed.
    Replied,
}

/// The kind of a fault, to count them by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is the fault of the same name")]
pub enum FaultKind {
    CutBefore,
    CutAfter,
    HoldReply,
    HoldCommand,
    HalfOpen,
    Reset,
    Truncate,
    TruncateReply,
    Undone,
}

impl Fault {
    /// Its kind; `None` for [`Fault::Pass`].
    pub fn kind(&self) -> Option<FaultKind> {
        Some(match self {
            Self::Pass => return None,
            Self::CutBefore => FaultKind::CutBefore,
            Self::CutAfter(_) => FaultKind::CutAfter,
            Self::HoldReply(_) => FaultKind::HoldReply,
            Self::HoldCommand(_) => FaultKind::HoldCommand,
            Self::HalfOpen => FaultKind::HalfOpen,
            Self::Reset => FaultKind::Reset,
            Self::Truncate => FaultKind::Truncate,
            Self::TruncateReply => FaultKind::TruncateReply,
            Self::Undone => FaultKind::Undone,
        })
    }
}
