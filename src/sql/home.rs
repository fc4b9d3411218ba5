//! Where a client's tables are: on which server, and in which of its databases.
//!
//! A statement names no database. So in a transaction of the caller's it is about the tables of the database that is that
//! connection's current one, which may have such tables too.

use super::dialect::Dialect;
use super::literal;

/// Asks for what [`Home::new`] takes. Where the server does not tell names of databases by their case, `DATABASE()` may say them as they were
/// written.
/// (<https://dev.mysql.com/doc/refman/8.4/en/identifier-case-sensitivity.html>)
pub(crate) const ASK: &str = "SELECT VERSION(),DATABASE(),\
     IF(@@lower_case_table_names=0,DATABASE(),LOWER(DATABASE())),@@lower_case_table_names<>0";

/// The server and the database of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) dialect: Dialect,
    /// As the server says it.
    pub(crate) database: String,
    compared: String,
    folded: bool,
}

impl Home {
    /// From the server's answer to [`ASK`].
    pub(crate) fn new(version: &str, database: String, compared: String, folded: bool) -> Self {
        Self {
            dialect: Dialect::of_version(version),
            database,
            compared,
            folded,
        }
    }

    /// Whether the session's current database is this one. As bytes: a literal of bytes alone would be compared by the collation of
    /// `DATABASE()`, which knows neither case nor accents.
    pub(super) fn is_here(&self) -> String {
        let current = if self.folded {
            "LOWER(DATABASE())"
        } else {
            "DATABASE()"
        };
        let mut sql = format!("CAST({current} AS BINARY)<=>");
        literal::bytes(&mut sql, self.compared.as_bytes());
        sql
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_of_a_databases_name_appears_as_itself() {
        let home = |folded| Home::new("8.4.0", "A'".to_owned(), "a'".to_owned(), folded);
        assert_eq!(
            home(false).is_here(),
            "CAST(DATABASE() AS BINARY)<=>x'6127'"
        );
        assert_eq!(
            home(true).is_here(),
            "CAST(LOWER(DATABASE()) AS BINARY)<=>x'6127'"
        );
    }
}
