//! The name of a lock or of a counter: checked once, shared by reference afterwards.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// The longest name, in characters: the width of the column `lock_name`.
pub(crate) const MAX_CHARS: usize = 255;

/// A checked name: 1 to 255 characters of UTF-8 that do not end in a space.
///
/// `utf8mb4_bin` pads with spaces when it compares (`'a' = 'a '`), so a name that ends in one would
/// be another name's row.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name(Arc<str>);

impl Name {
    /// Checks `name`.
    pub(crate) fn new(name: &str) -> Result<Self, Error> {
        Self::of(name.into())
    }

    /// Checks `name`, and keeps it as it is.
    pub(crate) fn of(name: Arc<str>) -> Result<Self, Error> {
        let invalid = |reason: &'static str| Error::InvalidName {
            name: name.chars().take(MAX_CHARS + 1).collect(),
            reason,
        };
        if name.is_empty() {
            return Err(invalid("it is empty; give it at least one character"));
        }
        if name.ends_with(' ') {
            return Err(invalid(
                "it ends in a space, which MySQL ignores when it compares; trim it",
            ));
        }
        // A character has at most four bytes: most names need no counting.
        if name.len() > MAX_CHARS && name.chars().count() > MAX_CHARS {
            return Err(invalid(
                "it is longer than 255 characters; hash the long part",
            ));
        }
        Ok(Self(name))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_a_name_or_is_not(text in prop_oneof![any::<String>(), ".{250,260} ?"]) {
            let length = text.chars().count();
            let valid = (1..=255).contains(&length) && !text.ends_with(' ');
            prop_assert_eq!(Name::new(&text).is_ok(), valid);
        }
    }

    #[test]
    fn lengths_count_characters_not_bytes() {
        assert!(Name::new(&"é".repeat(255)).is_ok());
        assert!(Name::new(&"🎁".repeat(255)).is_ok());
        assert!(Name::new(&"🎁".repeat(256)).is_err());
        assert!(Name::new(&"a".repeat(256)).is_err());
        assert!(Name::new("").is_err());
    }

    #[test]
    fn trailing_space_is_refused_and_other_spaces_are_not() {
        assert!(Name::new("a ").is_err());
        assert!(Name::new(" ").is_err());
        assert!(Name::new(" a b\t").is_ok());
        assert!(Name::new("a\0").is_ok());
    }
}
