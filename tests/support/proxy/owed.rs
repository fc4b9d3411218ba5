//! The replies that the server owes, and what is to happen to each.

use super::command::Command;
use super::gate::{Barrier, Hold};
use super::handshake::Capabilities;
use super::reply::Reply;

pub(super) struct Owed {
    pub(super) command: Command,
    pub(super) reply: Reply,
    pub(super) then: Then,
    /// Where the command was held, if it was.
    pub(super) held_at: Option<Barrier>,
    /// What was kept back of the reply so far.
    pub(super) withheld: Vec<u8>,
}

/// What happens to a reply.
pub(super) enum Then {
    Pass,
    Hold(Hold),
    Truncate,
    Cut { at_first_byte: bool },
}

impl Owed {
    pub(super) fn new(
        command: Command,
        capabilities: Capabilities,
        then: Then,
        held_at: Option<Barrier>,
    ) -> Self {
        let reply = Reply::to(command.kind(), capabilities);
        Self {
            command,
            reply,
            then,
            held_at,
            withheld: Vec::new(),
        }
    }

    pub(super) fn cuts_at_first_byte(&self) -> bool {
        matches!(
            self.then,
            Then::Cut {
                at_first_byte: true
            }
        )
    }

    /// Whether the server's side stays open for this reply, though the client has closed: its command was promised to
    /// arrive.
    pub(super) fn keeps_server(&self) -> bool {
        self.held_at.is_some() || matches!(self.then, Then::Cut { .. })
    }
}
