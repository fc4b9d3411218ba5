//! Literals that cannot be anything else, whatever `sql_mode` the server runs.

use std::fmt::Write;

/// Appends text as a literal of the column's character set.
pub(super) fn text(sql: &mut String, value: &str) {
    sql.push_str("_utf8mb4 ");
    bytes(sql, value.as_bytes());
}

/// Appends bytes as a binary literal.
pub(super) fn bytes(sql: &mut String, value: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    sql.reserve(value.len() * 2 + 3);
    sql.push_str("x'");
    for byte in value {
        sql.push(char::from(DIGITS[usize::from(byte >> 4)]));
        sql.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    sql.push('\'');
}

/// Appends an integer.
pub(super) fn number(sql: &mut String, value: impl Into<i128>) {
    // Writing to a String cannot fail.
    let _ = write!(sql, "{}", value.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_of_the_value_appears_as_itself() {
        let mut sql = String::new();
        text(&mut sql, "'; DROP TABLE t -- \\ \0 🎁");
        assert_eq!(
            sql,
            "_utf8mb4 x'273b2044524f50205441424c452074202d2d205c200020f09f8e81'"
        );
    }

    #[test]
    fn the_extremes_are_written_out() {
        let mut sql = String::new();
        number(&mut sql, i64::MIN);
        assert_eq!(sql, "-9223372036854775808");
    }
}
