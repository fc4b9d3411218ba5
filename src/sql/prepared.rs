//! The statements that a session has prepared.

/// The statements that a session has prepared, by their text: some dozens, however many names and values go
/// through them.
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

    /// The number of a text, and whether it is still to be prepared.
    pub(super) fn number(&mut self, text: &str) -> (usize, bool) {
        match self.texts.iter().position(|known| known == text) {
            Some(number) => (number, false),
            None => {
                self.texts.push(text.to_owned());
                (self.texts.len() - 1, true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_prepared_once_until_it_is_forgotten() {
        let mut prepared = Prepared::default();
        assert_eq!(prepared.number("a"), (0, true));
        assert_eq!(prepared.number("b"), (1, true));
        assert_eq!(prepared.number("a"), (0, false));
        prepared.forget();
        assert_eq!(prepared.number("b"), (0, true));
    }
}
