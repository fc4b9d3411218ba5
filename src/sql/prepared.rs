//! The statements that a session has prepared.

/// As many as a session prepares: servers take some thousands from all sessions together (`max_prepared_stmt_count`).
const MOST: usize = 64;

/// The statements that a session has prepared, by their text: some dozens, however many names and values go
/// through them. What comes when there are many is not prepared.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    texts: Vec<String>,
    off: bool,
}

impl Prepared {
    /// Nothing is prepared any more: the server takes no further statements (`max_prepared_stmt_count`).
    pub(crate) fn switch_off(&mut self) {
        self.texts.clear();
        self.off = true;
    }

    pub(super) fn is_on(&self) -> bool {
        !self.off
    }

    /// Prepares all anew: nobody knows which of a packet's statements the server has seen. A number that is
    /// prepared twice has its second text.
    pub(crate) fn forget(&mut self) {
        self.texts.clear();
    }

    /// The number of a text, and whether it is still to be prepared; `None` if it is not to be.
    pub(super) fn number(&mut self, text: &str) -> Option<(usize, bool)> {
        let known = self.texts.iter().position(|known| known == text);
        if known.is_none() && self.texts.len() < MOST {
            self.texts.push(text.to_owned());
            return Some((self.texts.len() - 1, true));
        }
        known.map(|number| (number, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_prepared_once_until_it_is_forgotten() {
        let mut prepared = Prepared::default();
        assert_eq!(prepared.number("a"), Some((0, true)));
        assert_eq!(prepared.number("b"), Some((1, true)));
        assert_eq!(prepared.number("a"), Some((0, false)));
        prepared.forget();
        assert_eq!(prepared.number("b"), Some((0, true)));
    }

    #[test]
    fn there_is_an_end_to_what_is_prepared() {
        let mut prepared = Prepared::default();
        for number in 0..MOST {
            assert_eq!(prepared.number(&number.to_string()), Some((number, true)));
        }
        assert_eq!(prepared.number("another"), None);
        assert_eq!(prepared.number("7"), Some((7, false)));
    }
}
