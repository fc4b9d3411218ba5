//! Tokens: 128 bits that say whose a row is.

use std::fmt;

use sha2::{Digest, Sha256};

/// Identifies one grant, one owner, one lane, or one change of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Token([u8; 16]);

impl Token {
    /// No one's token; no random one is expected to equal it.
    pub(crate) const NONE: Self = Self([0; 16]);

    pub(crate) fn random() -> Self {
        // The last byte is never zero: a BINARY(16) column pads with zero bytes, and a token must
        // not depend on how they are compared.
        let mut bytes: [u8; 16] = rand::random();
        bytes[15] |= 1;
        Self(bytes)
    }

    /// A random token of which the first four bytes say which client it is from.
    pub(crate) fn of_client(client: u32) -> Self {
        let mut token = Self::random();
        token.0[..4].copy_from_slice(&client.to_be_bytes());
        token
    }

    /// The bell of a client: see [`crate::sql::bell`]. Whoever has seen one of the client's tokens can tell it.
    pub(crate) fn bell_of(client: u32) -> Self {
        let mut token = Self(*b"tag_lock bell  .");
        token.0[..4].copy_from_slice(&client.to_be_bytes());
        token
    }

    /// The first four bytes: the client it is from, or a mark of the owner.
    pub(crate) fn client(&self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_be_bytes([a, b, c, d])
    }

    /// The token that every process derives from the same text, an owner's id for instance: half of
    /// its SHA-256.
    pub(crate) fn of_text(text: &str) -> Self {
        let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        bytes[15] |= 1;
        Self(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// A holder's token lets its bearer release the lock: only its beginning is ever shown.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:02x}{:02x}…", self.0[0], self.0[1], self.0[2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_stable_and_distinct() {
        assert_eq!(Token::of_text("a"), Token::of_text("a"));
        assert_ne!(Token::of_text("a"), Token::of_text("b"));
        assert_ne!(Token::of_text(""), Token::NONE);
    }

    /// Processes of two versions agree whose a lock is.
    #[test]
    fn an_owners_token_is_the_same_in_every_version() {
        let token = u128::from_be_bytes(*Token::of_text("a").as_bytes());
        assert_eq!(token, 0xca97_8112_ca1b_bdca_fac2_31b3_9a23_dc4d);
    }

    #[test]
    fn a_clients_tokens_begin_alike_and_are_distinct() {
        let (one, other) = (Token::of_client(0x0102_0304), Token::of_client(0x0102_0304));
        assert_eq!(one.as_bytes()[..4], [1, 2, 3, 4]);
        assert_eq!(one.as_bytes()[..4], other.as_bytes()[..4]);
        assert_ne!(one, other);
    }

    #[test]
    fn debug_shows_three_bytes_only() {
        assert_eq!(format!("{:?}", Token([0xab; 16])), "ababab…");
    }
}
