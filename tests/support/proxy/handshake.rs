//! What the two sides agreed on while connecting, as far as it changes how the rest is read.

use super::packet::Packet;

const CLIENT_COMPRESS: u32 = 1 << 5;
const CLIENT_SSL: u32 = 1 << 11;
const CLIENT_DEPRECATE_EOF: u32 = 1 << 24;
const CLIENT_OPTIONAL_RESULTSET_METADATA: u32 = 1 << 25;
const CLIENT_ZSTD_COMPRESSION: u32 = 1 << 26;
const CLIENT_QUERY_ATTRIBUTES: u32 = 1 << 27;

/// Each of these changes the framing, a command's layout or a reply's in a way that this proxy does not read.
const NOT_UNDERSTOOD: u32 = CLIENT_COMPRESS
    | CLIENT_OPTIONAL_RESULTSET_METADATA
    | CLIENT_ZSTD_COMPRESSION
    | CLIENT_QUERY_ATTRIBUTES;

/// The payload of an SSLRequest: a login cut off before the user's name.
const SSL_REQUEST_LENGTH: usize = 32;

/// The capability flags of one side, or of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities(u32);

/// What a client's first packet announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    /// Packets that can be read, with these capabilities.
    Plain(Capabilities),
    /// TLS, compression or the like: only bytes from here on.
    Unreadable,
}

impl Capabilities {
    /// Read from the server's greeting; `None` when it turns the client away instead.
    pub fn of_greeting(packet: &Packet) -> Option<Self> {
        let (version, rest) = packet.head().split_first()?;
        if *version != 10 {
            return None;
        }
        let name_end = rest.iter().position(|byte| *byte == 0)?;
        // After the server's name: thread id (4), the first part of the nonce (8), a filler (1).
        let flags = rest.get(name_end + 1 + 13..)?;
        match *flags {
            // Character set (1) and status (2) stand between the lower and the upper half.
            [a, b, _, _, _, c, d, ..] => Some(Self(u32::from_le_bytes([a, b, c, d]))),
            [a, b, ..] => Some(Self(u32::from_le_bytes([a, b, 0, 0]))),
            _ => None,
        }
    }

    /// Whether an OK packet ends a result set, in place of EOF packets.
    pub fn deprecates_eof(self) -> bool {
        self.0 & CLIENT_DEPRECATE_EOF != 0
    }

    /// No flags but, if `deprecate_eof`, that one.
    pub fn with_deprecate_eof(deprecate_eof: bool) -> Self {
        Self(if deprecate_eof {
            CLIENT_DEPRECATE_EOF
        } else {
            0
        })
    }
}

impl Login {
    /// Read from the client's first packet, which answers a greeting with the capabilities `server`.
    pub fn of(packet: &Packet, server: Capabilities) -> Self {
        let payload = packet.head();
        let [a, b, c, d, ..] = *payload else {
            return Self::Unreadable;
        };
        let client = u32::from_le_bytes([a, b, c, d]);
        let upgrades = client & CLIENT_SSL != 0 && payload.len() == SSL_REQUEST_LENGTH;
        let agreed = client & server.0;
        if upgrades || agreed & NOT_UNDERSTOOD != 0 {
            Self::Unreadable
        } else {
            Self::Plain(Capabilities(agreed))
        }
    }
}
