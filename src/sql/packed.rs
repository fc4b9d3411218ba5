//! A column of a list as one string, from which each row cuts its own value by its number.
//!
//! The numbers come from MariaDB's SEQUENCE engine, a table of which there is nothing on disk
//! (<https://mariadb.com/kb/en/sequence-storage-engine/>). Against a list of literals that saves the temporary table, and most
//! of the parsing: 30 % of the decision about 512 rows, 14 % of their change (MariaDB 10.11).

use super::script::Script;

/// The numbers, as a query's table `v`.
pub(super) const SEQUENCE: &str = "seq_0_to_1023 v";
/// How many there are.
pub(super) const SEQUENCE_LENGTH: usize = 1_024;

/// Asks whether there are such numbers: an error says that there are none.
pub(crate) const FIND_SEQUENCE: &str = "SELECT MAX(seq) AS last FROM seq_0_to_1023";
/// The answer.
pub(crate) const LAST_OF_SEQUENCE: &str = "1023";

/// What the literals of texts and of bytes begin with: [`super::literal`].
const TEXT: &str = "_utf8mb4 x'";
const BYTES: &str = "x'";
/// A space, in hexadecimal digits.
const SPACE: &str = "20";
/// How much padding the texts of a column may need for each row on average, in hexadecimal digits.
const MOST_PADDING: usize = 128;
/// The digits of an integer that certainly fits into 64 bits with a sign.
const DIGITS: usize = 18;

/// A column as one string.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Packed {
    /// The rows' own numbers.
    Numbers,
    Integers {
        literal: String,
        width: usize,
    },
    Bytes {
        literal: String,
        width: usize,
    },
    /// Padded with spaces, so that no value ends in one.
    Texts {
        literal: String,
        width: usize,
    },
}

impl Packed {
    /// Packs the literals of a column, of which those that have no meaning may be missing; `None` if that does not go.
    pub(super) fn new<'l>(literals: impl Iterator<Item = Option<&'l str>> + Clone) -> Option<Self> {
        let first = literals.clone().flatten().next().unwrap_or("0");
        if first.starts_with(TEXT) {
            let digits =
                literals.map(|literal| literal.map_or(Some(""), |text| inside(text, TEXT)));
            if digits
                .clone()
                .any(|one| one.is_none_or(|one| one.ends_with(SPACE)))
            {
                return None;
            }
            let digits = digits.flatten();
            let (width, length) = extent(digits.clone());
            let rows = digits.clone().count();
            if rows * width - length > rows * MOST_PADDING {
                return None;
            }
            let digits = join(digits, width, &SPACE.repeat(width / 2), false);
            return Some(Self::Texts {
                literal: format!("x'{digits}'"),
                width: width / 2,
            });
        }
        if first.starts_with(BYTES) {
            let digits =
                literals.map(|literal| literal.map_or(Some(""), |bytes| inside(bytes, BYTES)));
            let (width, _) = extent(digits.clone().flatten());
            if digits
                .clone()
                .any(|one| one.is_none_or(|one| !one.is_empty() && one.len() != width))
            {
                return None;
            }
            let digits = join(digits.flatten(), width, &"0".repeat(width), false);
            return Some(Self::Bytes {
                literal: format!("x'{digits}'"),
                width: width / 2,
            });
        }
        let digits = literals.map(|literal| literal.unwrap_or("0"));
        if digits
            .clone()
            .enumerate()
            .all(|(row, one)| one.parse() == Ok(row))
        {
            return Some(Self::Numbers);
        }
        let (width, _) = extent(digits.clone());
        let digits = join(digits, width, &" ".repeat(width), true);
        (width <= DIGITS).then(|| Self::Integers {
            literal: format!("_binary'{digits}'"),
            width,
        })
    }

    /// Writes the value of row `v.seq`.
    pub(super) fn cut(&self, script: &mut Script<'_>) {
        let (before, literal, width, after) = match self {
            Self::Numbers => return script.push("v.seq"),
            Self::Integers { literal, width } => ("CAST(SUBSTR(", literal, width, ") AS SIGNED)"),
            Self::Bytes { literal, width } => ("SUBSTR(", literal, width, ")"),
            Self::Texts { literal, width } => (
                "RTRIM(CONVERT(SUBSTR(",
                literal,
                width,
                ") USING utf8mb4)) COLLATE utf8mb4_bin",
            ),
        };
        let width = width.to_string();
        script.push(before);
        script.argument(literal);
        script.push(",v.seq*");
        script.argument(&width);
        script.push("+1,");
        script.argument(&width);
        script.push(after);
    }
}

/// What stands between a literal's quotes.
fn inside<'l>(literal: &'l str, prefix: &str) -> Option<&'l str> {
    literal.strip_prefix(prefix)?.strip_suffix('\'')
}

/// The longest value's length, and all together.
fn extent<'l>(values: impl Iterator<Item = &'l str>) -> (usize, usize) {
    values.fold((0, 0), |(longest, all), value| {
        (longest.max(value.len()), all + value.len())
    })
}

/// Writes the values one behind the other, each as `width` characters, with as much as is missing of `spare` behind it,
/// or before it.
fn join<'l>(
    values: impl Iterator<Item = &'l str> + Clone,
    width: usize,
    spare: &str,
    before: bool,
) -> String {
    let mut joined = String::with_capacity(values.clone().count() * width);
    for value in values {
        let missing = &spare[..width - value.len()];
        joined.push_str(if before { missing } else { "" });
        joined.push_str(value);
        joined.push_str(if before { "" } else { missing });
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::dialect::Dialect;

    fn cut(literals: &[Option<&str>]) -> Option<String> {
        let packed = Packed::new(literals.iter().copied())?;
        let mut script = Script::query_only(Dialect::MariaDb { sequences: true }, 0);
        packed.cut(&mut script);
        Some(script.into_query())
    }

    #[test]
    fn integers_are_decimal_digits() {
        assert_eq!(
            cut(&[Some("-5"), None, Some("123")]).as_deref(),
            Some("CAST(SUBSTR(_binary' -5  0123',v.seq*3+1,3) AS SIGNED)")
        );
        assert_eq!(cut(&[Some("0"), Some("9223372036854775807")]), None);
    }

    #[test]
    fn a_column_of_which_few_rows_have_a_value_is_packed() {
        let fence = "1790000000000000";
        let mut literals = vec![None; 1_000];
        assert!(cut(&literals).is_some());
        literals.push(Some(fence));
        let packed = cut(&literals).expect("it is packed");
        assert!(packed.contains(&format!(" 0{fence}',v.seq*16+1,16")));
        literals.push(Some("x'6162'"));
        assert_eq!(cut(&literals[1_001..]), cut(&[Some("x'6162'")]));
    }

    #[test]
    fn the_numbers_of_the_rows_need_no_string() {
        assert_eq!(cut(&[Some("0"), Some("1")]).as_deref(), Some("v.seq"));
        assert_ne!(cut(&[Some("1"), Some("2")]).as_deref(), Some("v.seq"));
    }

    #[test]
    fn bytes_are_of_one_length() {
        assert_eq!(
            cut(&[Some("x'6162'"), None]).as_deref(),
            Some("SUBSTR(x'61620000',v.seq*2+1,2)")
        );
        assert_eq!(cut(&[Some("x'6162'"), Some("x'61'")]), None);
    }

    #[test]
    fn texts_are_padded_with_what_none_ends_in() {
        assert_eq!(
            cut(&[Some("_utf8mb4 x'6162'"), Some("_utf8mb4 x'63'"), None]).as_deref(),
            Some(
                "RTRIM(CONVERT(SUBSTR(x'616263202020',v.seq*2+1,2) USING utf8mb4)) COLLATE utf8mb4_bin"
            )
        );
        assert_eq!(
            cut(&[Some("_utf8mb4 x'6120'"), Some("_utf8mb4 x'61'")]),
            None
        );
    }

    #[test]
    fn one_long_text_among_many_short_ones_is_not_packed() {
        let long = format!("_utf8mb4 x'{}'", "61".repeat(1_000));
        let mut literals = vec![Some("_utf8mb4 x'61'"); 100];
        literals.push(Some(&long));
        assert_eq!(cut(&literals), None);
    }
}
