//! What a client asks of the server.

use std::sync::Arc;

/// The kind of a command, its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CommandKind {
    /// `COM_QUIT`; has no reply.
    Quit,
    /// `COM_INIT_DB`.
    InitDb,
    /// `COM_QUERY`, text that may hold several statements.
    Query,
    /// `COM_FIELD_LIST`.
    FieldList,
    /// `COM_STATISTICS`, answered with plain text.
    Statistics,
    /// `COM_PING`.
    Ping,
    /// `COM_CHANGE_USER`, which starts a new handshake.
    ChangeUser,
    /// `COM_STMT_PREPARE`.
    Prepare,
    /// `COM_STMT_EXECUTE`.
    Execute,
    /// `COM_STMT_SEND_LONG_DATA`; has no reply.
    SendLongData,
    /// `COM_STMT_CLOSE`; has no reply.
    CloseStatement,
    /// `COM_STMT_RESET`.
    ResetStatement,
    /// `COM_STMT_FETCH`.
    Fetch,
    /// `COM_RESET_CONNECTION`.
    ResetConnection,
    /// Any other; its reply is taken to be one packet.
    Other(u8),
}

impl CommandKind {
    /// The kind that a command's first byte names.
    pub fn of(byte: u8) -> Self {
        match byte {
            0x01 => Self::Quit,
            0x02 => Self::InitDb,
            0x03 => Self::Query,
            0x04 => Self::FieldList,
            0x09 => Self::Statistics,
            0x0E => Self::Ping,
            0x11 => Self::ChangeUser,
            0x16 => Self::Prepare,
            0x17 => Self::Execute,
            0x18 => Self::SendLongData,
            0x19 => Self::CloseStatement,
            0x1A => Self::ResetStatement,
            0x1C => Self::Fetch,
            0x1F => Self::ResetConnection,
            other => Self::Other(other),
        }
    }

    /// Whether the server answers it, so that it costs its client a round trip.
    pub fn has_reply(self) -> bool {
        !matches!(self, Self::Quit | Self::SendLongData | Self::CloseStatement)
    }
}

/// One command of one connection, as a hook sees it.
#[derive(Debug, Clone)]
pub struct Command {
    connection: u64,
    kind: CommandKind,
    sql: Option<Arc<[u8]>>,
}

impl Command {
    /// A command. The proxy makes them; a test of a hook may.
    pub fn new(connection: u64, kind: CommandKind, sql: Option<&[u8]>) -> Self {
        Self {
            connection,
            kind,
            sql: sql.map(Arc::from),
        }
    }

    /// Reads a command's payload. `prepared` gives the text of a prepared statement by its id.
    pub fn parse(
        connection: u64,
        payload: &[u8],
        prepared: impl FnOnce(u32) -> Option<Arc<[u8]>>,
    ) -> Self {
        let kind = payload
            .first()
            .map_or(CommandKind::Other(0), |byte| CommandKind::of(*byte));
        let sql = match (kind, payload) {
            (CommandKind::Query | CommandKind::Prepare, [_, text @ ..]) => Some(Arc::from(text)),
            (CommandKind::Execute, [_, a, b, c, d, ..]) => {
                prepared(u32::from_le_bytes([*a, *b, *c, *d]))
            }
            _ => None,
        };
        Self {
            connection,
            kind,
            sql,
        }
    }

    /// The connection's number: 1 for the first that the proxy accepted.
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// What kind of command it is.
    pub fn kind(&self) -> CommandKind {
        self.kind
    }

    /// The text of a query or of a statement to prepare; of an execution, the text that was prepared.
    pub fn sql(&self) -> Option<&[u8]> {
        self.sql.as_deref()
    }

    /// The same text, shared.
    pub fn shared_sql(&self) -> Option<Arc<[u8]>> {
        self.sql.clone()
    }

    /// Whether the server runs text that holds `COMMIT` as a word, in any case. `autocommit` does not count.
    pub fn contains_commit(&self) -> bool {
        self.contains_word("COMMIT")
    }

    /// Whether the server runs text that holds `word` as a word, in any case. A text that is only prepared does not
    /// run yet.
    pub fn contains_word(&self, word: &str) -> bool {
        matches!(self.kind, CommandKind::Query | CommandKind::Execute)
            && self
                .sql()
                .is_some_and(|text| contains_word(text, word.as_bytes()))
    }
}

fn contains_word(text: &[u8], word: &[u8]) -> bool {
    if word.is_empty() {
        return false;
    }
    let in_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..);
    text.windows(word.len()).enumerate().any(|(start, window)| {
        window.eq_ignore_ascii_case(word)
            && !text[..start].last().is_some_and(in_word)
            && !text[start + word.len()..].first().is_some_and(in_word)
    })
}
