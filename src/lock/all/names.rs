//! The names of several locks.

use crate::error::Error;
use crate::name::Name;

/// The most locks that are taken at once: their rows are locked by one packet, and others wait for its end.
const MOST: usize = 256;

/// Checks names, and puts them in their order, each once.
pub(super) fn ordered<'n>(names: impl Iterator<Item = &'n str>) -> Result<Vec<Name>, Error> {
    let mut names = names.map(Name::new).collect::<Result<Vec<Name>, Error>>()?;
    names.sort();
    names.dedup();
    let invalid = |reason: String| Error::InvalidOption {
        option: "names",
        reason,
    };
    match names.len() {
        0 => Err(invalid("there is none; name at least one".to_owned())),
        1..=MOST => Ok(names),
        count => Err(invalid(format!(
            "{count} are too many; name at most {MOST}, or take one lock for all of them"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Result<Vec<String>, Error> {
        let names = ordered(names.iter().copied())?;
        Ok(names.iter().map(Name::to_string).collect())
    }

    #[test]
    fn names_are_put_in_order_and_each_counts_once() {
        let names = of(&["b", "a", "b", "B", "a"]).expect("names");
        assert_eq!(names, ["B", "a", "b"]);
    }

    #[test]
    fn there_are_1_to_256_names() {
        let numbers: Vec<String> = (0..257).map(|number| number.to_string()).collect();
        let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
        assert_eq!(of(&numbers[..256]).expect("names").len(), 256);
        for wrong in [&numbers[..], &[]] {
            assert!(matches!(
                of(wrong),
                Err(Error::InvalidOption {
                    option: "names",
                    ..
                })
            ));
        }
        // Twice the same is one.
        let twice = [&numbers[..256], &numbers[..256]].concat();
        assert_eq!(of(&twice).expect("names").len(), 256);
        assert!(matches!(of(&["a", ""]), Err(Error::InvalidName { .. })));
    }
}
