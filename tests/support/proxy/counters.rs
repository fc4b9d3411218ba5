//! What passed through the proxy.

use std::collections::BTreeMap;

use super::command::{Command, CommandKind};
use super::fault::FaultKind;

/// What passed since the proxy was started. A command counts when it is on its way to the server, whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that reached the server.
    pub connections: u64,
    /// Those among them that cannot be read, because of TLS, for instance: no hook sees their commands.
    pub unreadable: u64,
    /// Commands after the handshake.
    pub commands: u64,
    /// Commands that have a reply.
    pub round_trips: u64,
    /// Commands that contain `COMMIT`.
    pub commits: u64,
    /// Packets from the server that no command asked for, such as the error before it closes an idle connection.
    pub unasked: u64,
    /// Bytes written to the server, handshakes included.
    pub bytes_to_server: u64,
    /// Bytes written to clients, handshakes included.
    pub bytes_to_client: u64,
    /// Faults that the hook asked for.
    pub faults: BTreeMap<FaultKind, u64>,
}

/// A command that was recorded on its way to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Its connection's number.
    pub connection: u64,
    /// Its kind.
    pub kind: CommandKind,
    /// Its text, if it has one; bytes that are not UTF-8 are replaced.
    pub sql: Option<String>,
}

impl Counters {
    /// The faults of one kind.
    pub fn faults(&self, kind: FaultKind) -> u64 {
        self.faults.get(&kind).copied().unwrap_or(0)
    }

    /// The faults of all kinds.
    pub fn all_faults(&self) -> u64 {
        self.faults.values().sum()
    }

    /// What was added since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            connections: self.connections - earlier.connections,
            unreadable: self.unreadable - earlier.unreadable,
            commands: self.commands - earlier.commands,
            round_trips: self.round_trips - earlier.round_trips,
            commits: self.commits - earlier.commits,
            unasked: self.unasked - earlier.unasked,
            bytes_to_server: self.bytes_to_server - earlier.bytes_to_server,
            bytes_to_client: self.bytes_to_client - earlier.bytes_to_client,
            faults: self
                .faults
                .iter()
                .map(|(kind, count)| (*kind, count - earlier.faults(*kind)))
                .collect(),
        }
    }

    pub(super) fn count_command(&mut self, command: &Command) {
        self.commands += 1;
        self.round_trips += u64::from(command.kind().has_reply());
        self.commits += u64::from(command.contains_commit());
    }
}

impl From<&Command> for Recorded {
    fn from(command: &Command) -> Self {
        Self {
            connection: command.connection(),
            kind: command.kind(),
            sql: command
                .sql()
                .map(|sql| String::from_utf8_lossy(sql).into_owned()),
        }
    }
}
