//! The bell of a client whose leases idle: a row in the table of lanes. Who wants such a lease says so in the lock's row, and then rings: by a
//! statement of its own, which inserts nothing and holds no other lock, so that ringers never wait for each other in a circle.
//!
//! `seq` says how often it was rung, `results` for which locks lately: hashes of names, the last one first.

use super::{LANE_TABLE, NOW, literal};
use crate::name::Name;
use crate::token::Token;

/// How many names a bell remembers.
const REMEMBERED: usize = 32;
/// The digits of a hash.
const DIGITS: usize = 8;

/// What a bell remembers of a name: the CRC-32 of it, as the stripe's.
pub(crate) fn hash(name: &Name) -> u32 {
    crc32fast::hash(name.as_str().as_bytes())
}

fn id(bell: Token) -> String {
    let mut id = String::new();
    literal::bytes(&mut id, bell.as_bytes());
    id
}

/// Makes the bell, or keeps it from being purged.
pub(crate) fn make(bell: Token) -> String {
    let id = id(bell);
    format!(
        "INSERT INTO {LANE_TABLE} (id,seq,results,modify_time) VALUES ({id},0,'',{NOW}) \
         ON DUPLICATE KEY UPDATE modify_time=VALUES(modify_time)"
    )
}

/// Rings it because of a name. A bell that is not there is made by its client, which then looks at all that idles.
pub(crate) fn ring(bell: Token, name: &Name) -> String {
    let (id, hash) = (id(bell), hash(name));
    let all = REMEMBERED * DIGITS;
    format!(
        "UPDATE {LANE_TABLE} SET seq=seq+1,results=LEFT(CONCAT('{hash:08x}',COALESCE(results,'')),{all}),\
         modify_time={NOW} WHERE id={id}"
    )
}

/// Reads it: how often it was rung, and for what. No row if there is none.
pub(crate) fn read(bell: Token) -> String {
    let id = id(bell);
    format!("SELECT CONCAT(seq,' ',COALESCE(results,'')) FROM {LANE_TABLE} WHERE id={id}")
}

/// What was read of a bell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rung {
    /// How often it was rung.
    pub(crate) times: u64,
    names: Vec<u32>,
}

impl Rung {
    /// `None` when it is not such a text.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        let (times, names) = text.split_once(' ')?;
        let names = names.as_bytes().chunks_exact(DIGITS).map(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u32::from_str_radix(digits, 16).ok()
        });
        Some(Self {
            times: times.parse().ok()?,
            names: names.collect::<Option<_>>()?,
        })
    }

    /// For what it was rung since it had been rung `before` times; `None` if it does not remember all of them.
    pub(crate) fn since(&self, before: u64) -> Option<&[u32]> {
        let new = self.times.checked_sub(before)?;
        self.names.get(..usize::try_from(new).ok()?)
    }
}

impl Rung {
    /// How it is written, for a bell that tells.
    #[cfg(test)]
    fn text(&self) -> String {
        let names = self.names.iter().map(|name| format!("{name:08x}"));
        format!("{} {}", self.times, names.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_rung_since_is_told_as_far_as_it_is_remembered() {
        let rung = Rung::decode("7 0000000a0000000b").expect("a bell");
        assert_eq!(rung.times, 7);
        assert_eq!(rung.since(7), Some(&[][..]));
        assert_eq!(rung.since(6), Some(&[10][..]));
        assert_eq!(rung.since(5), Some(&[10, 11][..]));
        assert_eq!(rung.since(4), None, "it has forgotten one");
        assert_eq!(rung.since(8), None, "it is another bell");
        assert_eq!(Rung::decode("7 ").expect("a bell").since(6), None);
        for text in ["", "7", "x ", "7 0000000g"] {
            assert_eq!(Rung::decode(text), None, "{text:?}");
        }
    }

    #[test]
    fn statements_have_no_byte_of_a_name() {
        let name = Name::new("a'; DROP TABLE x").expect("a name");
        let ring = ring(Token::random(), &name);
        assert!(!ring.contains("DROP"), "{ring}");
    }

    proptest! {
        #[test]
        fn texts_are_read_as_they_are_written(times: u64, names in prop::collection::vec(any::<u32>(), 0..REMEMBERED)) {
            let rung = Rung { times, names };
            prop_assert_eq!(Rung::decode(&rung.text()), Some(rung));
        }

        #[test]
        fn any_text_is_decoded_or_refused_without_a_panic(text in ".*") {
            let _ = Rung::decode(&text);
        }
    }
}
