//! Where the server's reply to a command ends.

use super::command::CommandKind;
use super::handshake::Capabilities;
use super::packet::Packet;

const SERVER_MORE_RESULTS_EXISTS: u16 = 0x0008;
/// The rows stay on the server until they are fetched: the columns are all of the reply.
const SERVER_STATUS_CURSOR_EXISTS: u16 = 0x0040;

const OK: u8 = 0x00;
const LOCAL_INFILE: u8 = 0xFB;
const EOF: u8 = 0xFE;
const ERR: u8 = 0xFF;
/// A longer packet that begins like an EOF packet is a row with a very long first column.
const EOF_MAX_LENGTH: usize = 8;

/// What one more packet meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The reply goes on.
    More,
    /// That was its last packet.
    Ended,
    /// The server asks for a file (`LOAD DATA LOCAL`), which this proxy does not follow.
    Unreadable,
}

/// A reply that is being read.
#[derive(Debug)]
pub struct Reply {
    state: State,
    deprecate_eof: bool,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// OK, an error, or the number of columns: the start of each result of a query.
    Result,
    /// Definitions of columns, then, with EOF packets, one such.
    Columns {
        left: u64,
    },
    Rows,
    /// A statement was prepared, or an error.
    Prepared,
    /// Definitions that follow a prepared statement: parameters, then columns, and EOF packets between.
    Definitions {
        left: u64,
    },
    /// Definitions up to an EOF packet (`COM_FIELD_LIST`).
    Fields,
    /// One packet, whatever it says.
    Single,
}

impl Reply {
    /// The reply to a command of this kind.
    pub fn to(kind: CommandKind, capabilities: Capabilities) -> Self {
        let state = match kind {
            CommandKind::Query | CommandKind::Execute => State::Result,
            CommandKind::Prepare => State::Prepared,
            CommandKind::Fetch => State::Rows,
            CommandKind::FieldList => State::Fields,
            _ => State::Single,
        };
        Self {
            state,
            deprecate_eof: capabilities.deprecates_eof(),
        }
    }

    /// Whether the next packet tells the id of a statement that was prepared.
    pub fn awaits_statement(&self) -> bool {
        matches!(self.state, State::Prepared)
    }

    /// Takes the next packet of the reply.
    pub fn accept(&mut self, packet: &Packet) -> Progress {
        let payload = packet.head();
        let first = payload.first().copied().unwrap_or(OK);
        match self.state {
            State::Single => Progress::Ended,
            // Wherever it comes, an error is the last packet; a row or a definition never begins like one.
            _ if first == ERR => Progress::Ended,
            State::Result => self.result(first, payload),
            State::Columns { left: 0 } => self.end_of_columns(payload),
            State::Columns { left } => {
                self.state = match left - 1 {
                    0 if self.deprecate_eof => State::Rows,
                    left => State::Columns { left },
                };
                Progress::More
            }
            State::Rows => self.row(first, packet),
            State::Prepared => self.prepared(payload),
            State::Definitions { left } => self.definitions(left - 1),
            State::Fields if first == EOF && !packet.is_continued() => Progress::Ended,
            State::Fields => Progress::More,
        }
    }

    fn result(&mut self, first: u8, payload: &[u8]) -> Progress {
        match first {
            OK => self.after_result(ok_status(payload)),
            LOCAL_INFILE => Progress::Unreadable,
            _ => {
                let columns = length_encoded(payload).map_or(0, |(columns, _)| columns);
                self.state = State::Columns { left: columns };
                Progress::More
            }
        }
    }

    fn end_of_columns(&mut self, payload: &[u8]) -> Progress {
        if eof_status(payload) & SERVER_STATUS_CURSOR_EXISTS != 0 {
            return Progress::Ended;
        }
        self.state = State::Rows;
        Progress::More
    }

    fn row(&mut self, first: u8, packet: &Packet) -> Progress {
        let payload = packet.head();
        if first != EOF {
            Progress::More
        } else if self.deprecate_eof && !packet.is_continued() {
            self.after_result(ok_status(payload))
        } else if !self.deprecate_eof && payload.len() <= EOF_MAX_LENGTH {
            self.after_result(eof_status(payload))
        } else {
            Progress::More
        }
    }

    fn after_result(&mut self, status: u16) -> Progress {
        if status & SERVER_MORE_RESULTS_EXISTS == 0 {
            return Progress::Ended;
        }
        self.state = State::Result;
        Progress::More
    }

    fn prepared(&mut self, payload: &[u8]) -> Progress {
        // Status (1), statement id (4), columns (2), parameters (2).
        let [_, _, _, _, _, c0, c1, p0, p1, ..] = *payload else {
            return Progress::Ended;
        };
        let counts = [u16::from_le_bytes([c0, c1]), u16::from_le_bytes([p0, p1])];
        let eofs = if self.deprecate_eof {
            0
        } else {
            counts.iter().filter(|count| **count > 0).count()
        };
        let definitions = counts.iter().map(|count| u64::from(*count)).sum::<u64>();
        self.definitions(definitions + u64::try_from(eofs).unwrap_or(0))
    }

    fn definitions(&mut self, left: u64) -> Progress {
        if left == 0 {
            return Progress::Ended;
        }
        self.state = State::Definitions { left };
        Progress::More
    }
}

/// The id of the statement that a reply to `COM_STMT_PREPARE` begins with.
pub fn statement_id(packet: &Packet) -> Option<u32> {
    match *packet.head() {
        [OK, a, b, c, d, ..] => Some(u32::from_le_bytes([a, b, c, d])),
        _ => None,
    }
}

/// What the server's packet means while a client logs in: whether it is in (`Some(true)`), refused, or not yet known.
pub fn login_verdict(packet: &Packet) -> Option<bool> {
    match packet.head().first() {
        Some(&OK) => Some(true),
        Some(&ERR) => Some(false),
        _ => None,
    }
}

/// The status of an OK packet: behind the numbers of affected rows and of the last inserted row.
fn ok_status(payload: &[u8]) -> u16 {
    payload
        .get(1..)
        .and_then(length_encoded)
        .and_then(|(_, rest)| length_encoded(rest))
        .map_or(0, |(_, rest)| status(rest))
}

/// The status of an EOF packet: behind the number of warnings.
fn eof_status(payload: &[u8]) -> u16 {
    payload.get(3..).map_or(0, status)
}

fn status(bytes: &[u8]) -> u16 {
    match *bytes {
        [a, b, ..] => u16::from_le_bytes([a, b]),
        _ => 0,
    }
}

/// A length-encoded integer, and what follows it.
fn length_encoded(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let width = match first {
        0xFC => 2,
        0xFD => 3,
        0xFE => 8,
        0xFB | 0xFF => return None,
        small => return Some((u64::from(*small), rest)),
    };
    let (number, rest) = rest.split_at_checked(width)?;
    Some((
        number
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte)),
        rest,
    ))
}
