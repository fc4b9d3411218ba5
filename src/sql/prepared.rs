//! The statements that a session has prepared.

/// As many as a session prepares at most: servers take some thousands from all sessions together
/// (`max_prepared_stmt_count`, 16,382 by default).
const MOST: usize = 16;
/// Of those that the server takes, a session has this part: a thousand sessions find room.
const PART: usize = 1_000;
/// With fewer they would take turns in each packet.
const FEWEST: usize = 6;
/// A session remembers so many texts that it has sent.
const SENT: usize = 64;

/// The statements that a session has prepared, by their text: what was not used for longest makes room. A text is prepared when it is sent
/// for the second time: many sessions send each only once.
#[derive(Debug)]
pub(crate) struct Prepared {
    entries: Vec<Entry>,
    most: usize,
    /// The hashes of texts that were sent, in the order in which they came up.
    sent: Vec<u32>,
    /// How many packets there were.
    packet: u64,
}

#[derive(Debug)]
struct Entry {
    text: String,
    /// In which packet it was used last.
    used: u64,
}

impl Default for Prepared {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            most: MOST,
            sent: Vec::new(),
            packet: 0,
        }
    }
}

impl Prepared {
    /// On a server that takes `server_limit` statements from all sessions together.
    pub(crate) fn of_server(server_limit: u64) -> Self {
        let part = usize::try_from(server_limit).unwrap_or(usize::MAX) / PART;
        Self {
            most: if part < FEWEST { 0 } else { part.min(MOST) },
            ..Self::default()
        }
    }

    /// Nothing is prepared any more: the server takes no further statements.
    pub(crate) fn switch_off(&mut self) {
        self.entries.clear();
        self.most = 0;
    }

    pub(super) fn is_on(&self) -> bool {
        self.most > 0
    }

    /// Prepares all anew: nobody knows which of a packet's statements the server has seen. A number that is
    /// prepared twice has its second text.
    pub(crate) fn forget(&mut self) {
        self.entries.clear();
    }

    /// Another packet begins.
    pub(super) fn begin(&mut self) {
        self.packet += 1;
    }

    /// The number of a text, and whether it is still to be prepared; `None` if it is not to be, since it is sent for the first time or
    /// the packet has used all numbers.
    pub(super) fn number(&mut self, text: &str) -> Option<(usize, bool)> {
        let used = self.packet;
        if let Some(known) = self.entries.iter().position(|entry| entry.text == text) {
            self.entries[known].used = used;
            return Some((known, false));
        }
        let hash = crc32fast::hash(text.as_bytes());
        if !self.sent.contains(&hash) {
            if self.sent.len() == SENT {
                self.sent.remove(0);
            }
            self.sent.push(hash);
            return None;
        }
        let entry = Entry {
            text: text.to_owned(),
            used,
        };
        if self.entries.len() < self.most {
            self.entries.push(entry);
            return Some((self.entries.len() - 1, true));
        }
        // All that a packet prepares is prepared before its first statement: what it has used keeps its number.
        let others = self.entries.iter().enumerate();
        let others = others.filter(|(_, entry)| entry.used < used);
        let (oldest, _) = others.min_by_key(|(_, entry)| entry.used)?;
        self.entries[oldest] = entry;
        Some((oldest, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that was sent before.
    fn again(prepared: &mut Prepared, text: &str) -> Option<(usize, bool)> {
        prepared.number(text);
        prepared.number(text)
    }

    #[test]
    fn a_text_is_prepared_when_it_comes_again_and_until_it_is_forgotten() {
        let mut prepared = Prepared::default();
        assert_eq!(prepared.number("a"), None);
        assert_eq!(prepared.number("a"), Some((0, true)));
        assert_eq!(again(&mut prepared, "b"), Some((1, true)));
        assert_eq!(prepared.number("a"), Some((0, false)));
        prepared.forget();
        assert_eq!(prepared.number("b"), Some((0, true)));
    }

    #[test]
    fn what_was_not_used_for_longest_makes_room_but_never_in_its_own_packet() {
        let mut prepared = Prepared::default();
        for number in 0..MOST {
            let text = number.to_string();
            assert_eq!(again(&mut prepared, &text), Some((number, true)));
        }
        assert_eq!(again(&mut prepared, "another"), None);
        prepared.begin();
        assert_eq!(prepared.number("0"), Some((0, false)));
        assert_eq!(prepared.number("another"), Some((1, true)));
        assert_eq!(prepared.number("another"), Some((1, false)));
        prepared.begin();
        assert_eq!(prepared.number("1"), Some((2, true)));
    }

    #[test]
    fn a_server_that_takes_few_is_asked_for_few() {
        for (limit, most) in [(16_382, 16), (8_000, 8), (5_000, 0), (0, 0), (u64::MAX, 16)] {
            assert_eq!(Prepared::of_server(limit).most, most, "of {limit}");
        }
    }
}
