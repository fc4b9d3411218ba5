//! What client and server say to each other, and what the faults make of it. No sockets here: bytes come in as they
//! were read, and leave through two [`Pipe`]s.

use std::collections::{HashMap, VecDeque};
use std::mem::take;
use std::sync::Arc;

use super::command::{Command, CommandKind};
use super::fault::{Fault, Upstream};
use super::gate::Barrier;
use super::handshake::{Capabilities, Login};
use super::owed::{Owed, Then};
use super::packet::{Framing, Packet};
use super::pipe::{Direction, Pipe};
use super::reply::{Progress, login_verdict, statement_id};
use super::state::Shared;

/// While a packet is withheld, this much is still read after it, to learn that the sender has closed.
const READ_AHEAD: usize = 256 * 1024;

/// The acknowledgement of a statement in a transaction: no row, no insert id, no warning.
const NOTHING_CHANGED: [u8; 11] = [7, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0];

pub(super) struct Dialogue {
    shared: Arc<Shared>,
    number: u64,
    pub(super) to_server: Pipe,
    pub(super) to_client: Pipe,
    from_client: Framing,
    from_server: Framing,
    phase: Phase,
    capabilities: Capabilities,
    prepared: HashMap<u32, Arc<[u8]>>,
    owed: VecDeque<Owed>,
    pub(super) held_command: Option<HeldCommand>,
    pub(super) held_reply: Option<HeldReply>,
    /// The client has closed, and the server's side is kept for a command that was promised to it.
    client_gone: bool,
    pub(super) standing: Standing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Greeting,
    Login,
    Authentication,
    Commands,
    /// TLS or the like: bytes pass, and nothing is known about them.
    Unreadable,
}

/// What the sockets are to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Open,
    /// Read nothing more; what is under way still arrives, then close both.
    Draining,
    /// Neither read nor write, nor close.
    Frozen,
    /// Close both now.
    Cut,
    /// Close both now, the client's with RST.
    Reset,
}

pub(super) struct HeldCommand {
    packet: Packet,
    command: Command,
    pub(super) barrier: Barrier,
}

pub(super) struct HeldReply {
    bytes: Vec<u8>,
    pub(super) barrier: Barrier,
}

impl Dialogue {
    pub(super) fn new(shared: &Arc<Shared>, number: u64) -> Self {
        // Two seeds a connection, so that the directions' jitter differs but repeats.
        let pipe = |direction, seed| Pipe::new(Arc::clone(shared), direction, seed);
        Self {
            shared: Arc::clone(shared),
            number,
            to_server: pipe(Direction::ToServer, 2 * number),
            to_client: pipe(Direction::ToClient, 2 * number + 1),
            from_client: Framing::default(),
            from_server: Framing::default(),
            phase: Phase::Greeting,
            capabilities: Capabilities::default(),
            prepared: HashMap::new(),
            owed: VecDeque::new(),
            held_command: None,
            held_reply: None,
            client_gone: false,
            standing: Standing::Open,
        }
    }

    pub(super) fn hears_client(&self) -> bool {
        self.standing == Standing::Open
            && !self.client_gone
            && !self.to_server.is_congested()
            && (self.held_command.is_none() || self.from_client.buffered() < READ_AHEAD)
    }

    pub(super) fn hears_server(&self) -> bool {
        self.standing == Standing::Open
            && self.held_reply.is_none()
            && !self.to_client.is_congested()
    }

    pub(super) fn client_sent(&mut self, bytes: &[u8]) {
        if self.phase == Phase::Unreadable {
            self.to_server.push(bytes.to_vec());
        } else {
            self.from_client.feed(bytes);
            self.read_client();
        }
    }

    pub(super) fn server_sent(&mut self, bytes: &[u8]) {
        if self.owed.front().is_some_and(Owed::cuts_at_first_byte) {
            self.standing = Standing::Cut;
        } else if self.phase == Phase::Unreadable {
            self.to_client.push(bytes.to_vec());
        } else {
            self.from_server.feed(bytes);
            self.read_server();
        }
    }

    pub(super) fn client_closed(&mut self) {
        self.client_gone = true;
        self.to_client.clear();
        self.close_unless_promised();
    }

    pub(super) fn server_closed(&mut self) {
        self.drain_to_client();
    }

    pub(super) fn release_command(&mut self) {
        if let Some(held) = self.held_command.take() {
            self.forward(held.packet, held.command, Then::Pass, Some(held.barrier));
            self.read_client();
            self.close_unless_promised();
        }
    }

    pub(super) fn release_reply(&mut self) {
        if let Some(held) = self.held_reply.take() {
            self.to_client.push(held.bytes);
            self.read_server();
        }
    }

    fn read_client(&mut self) {
        while self.standing == Standing::Open
            && self.held_command.is_none()
            && let Some(packet) = self.from_client.next_packet()
        {
            match self.phase {
                Phase::Commands => self.command(packet),
                Phase::Login => {
                    let login = Login::of(&packet, self.capabilities);
                    self.to_server.push(packet.into_wire());
                    match login {
                        Login::Plain(agreed) => {
                            self.capabilities = agreed;
                            self.phase = Phase::Authentication;
                        }
                        Login::Unreadable => self.stop_reading(),
                    }
                }
                _ => self.to_server.push(packet.into_wire()),
            }
        }
    }

    fn command(&mut self, packet: Packet) {
        let prepared = |id| self.prepared.get(&id).cloned();
        let command = Command::parse(self.number, &packet.payload(), prepared);
        match self.shared.decide(&command) {
            Fault::Pass => self.forward(packet, command, Then::Pass, None),
            Fault::CutBefore => self.standing = Standing::Cut,
            Fault::Reset => self.standing = Standing::Reset,
            Fault::HalfOpen => self.standing = Standing::Frozen,
            Fault::Truncate => {
                self.to_server.push(first_half(packet.wire()));
                self.drain_to_server();
            }
            Fault::CutAfter(upstream)
                if upstream == Upstream::Forwarded || !command.kind().has_reply() =>
            {
                self.forward(packet, command, Then::Pass, None);
                self.drain_to_server();
            }
            Fault::CutAfter(upstream) => {
                let at_first_byte = upstream == Upstream::FirstByte;
                self.forward(packet, command, Then::Cut { at_first_byte }, None);
            }
            Fault::Undone => self.to_client.push(NOTHING_CHANGED.to_vec()),
            Fault::HoldReply(hold) => self.forward(packet, command, Then::Hold(hold), None),
            Fault::TruncateReply => self.forward(packet, command, Then::Truncate, None),
            Fault::HoldCommand(hold) => {
                let barrier = Barrier::begin(hold);
                self.held_command = Some(HeldCommand {
                    packet,
                    command,
                    barrier,
                });
            }
        }
    }

    fn forward(&mut self, packet: Packet, command: Command, then: Then, held_at: Option<Barrier>) {
        self.shared.forwarded(&command);
        self.to_server.push(packet.into_wire());
        if command.kind() == CommandKind::ChangeUser {
            self.phase = Phase::Authentication;
        } else if command.kind().has_reply() {
            self.owed
                .push_back(Owed::new(command, self.capabilities, then, held_at));
        }
    }

    fn read_server(&mut self) {
        while self.standing == Standing::Open
            && self.held_reply.is_none()
            && let Some(packet) = self.from_server.next_packet()
        {
            match self.phase {
                Phase::Commands => self.reply(packet),
                Phase::Greeting => {
                    let greeting = Capabilities::of_greeting(&packet);
                    self.to_client.push(packet.into_wire());
                    if let Some(capabilities) = greeting {
                        self.capabilities = capabilities;
                        self.phase = Phase::Login;
                    }
                }
                Phase::Authentication => {
                    if login_verdict(&packet) == Some(true) {
                        self.phase = Phase::Commands;
                    }
                    self.to_client.push(packet.into_wire());
                }
                Phase::Login | Phase::Unreadable => self.to_client.push(packet.into_wire()),
            }
        }
    }

    fn reply(&mut self, packet: Packet) {
        let Some(owed) = self.owed.front_mut() else {
            self.shared.count(|counters| counters.unasked += 1);
            self.to_client.push(packet.into_wire());
            return;
        };
        if owed.reply.awaits_statement()
            && let (Some(id), Some(sql)) = (statement_id(&packet), owed.command.shared_sql())
        {
            self.prepared.insert(id, sql);
        }
        let progress = owed.reply.accept(&packet);
        match owed.then {
            Then::Pass if !self.client_gone => self.to_client.push(packet.into_wire()),
            Then::Pass | Then::Cut { .. } => {}
            Then::Hold(_) | Then::Truncate => owed.withheld.extend_from_slice(packet.wire()),
        }
        match progress {
            Progress::More => {}
            Progress::Ended => self.reply_ended(),
            Progress::Unreadable => {
                let withheld = take(&mut owed.withheld);
                self.to_client.push(withheld);
                self.stop_reading();
            }
        }
    }

    fn reply_ended(&mut self) {
        let Some(owed) = self.owed.pop_front() else {
            return;
        };
        if let Some(barrier) = owed.held_at {
            barrier.answered();
        }
        match owed.then {
            Then::Pass => {}
            Then::Cut { .. } => self.standing = Standing::Cut,
            Then::Truncate => {
                self.to_client.push(first_half(&owed.withheld));
                self.drain_to_client();
            }
            Then::Hold(hold) => {
                let barrier = Barrier::begin(hold);
                self.held_reply = Some(HeldReply {
                    bytes: owed.withheld,
                    barrier,
                });
            }
        }
        self.close_unless_promised();
    }

    /// Closes behind a client that is gone, unless a command of its own still has to run.
    fn close_unless_promised(&mut self) {
        let promised = self.held_command.is_some() || self.owed.iter().any(Owed::keeps_server);
        if self.client_gone && !promised && self.standing == Standing::Open {
            self.drain_to_server();
        }
    }

    fn drain_to_server(&mut self) {
        self.to_client.clear();
        self.to_server.end();
        self.standing = Standing::Draining;
    }

    fn drain_to_client(&mut self) {
        self.to_server.clear();
        self.to_client.end();
        self.standing = Standing::Draining;
    }

    fn stop_reading(&mut self) {
        self.phase = Phase::Unreadable;
        self.shared.count(|counters| counters.unreadable += 1);
        self.to_server.push(self.from_client.take_rest());
        self.to_client.push(self.from_server.take_rest());
    }
}

fn first_half(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.len() / 2].to_vec()
}
