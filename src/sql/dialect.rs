//! The few words in which MySQL and MariaDB differ.

/// Which server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    MySql,
    MariaDb {
        /// It has numbers to take lists apart with: [`super::packed`].
        sequences: bool,
    },
}

impl Dialect {
    /// From what `VERSION()` says: MariaDB always names itself there.
    pub(crate) fn of_version(version: &str) -> Self {
        if version.to_ascii_lowercase().contains("mariadb") {
            Self::MariaDb { sequences: false }
        } else {
            Self::MySql
        }
    }

    /// What stands before each row of a table value constructor.
    ///
    /// MySQL: <https://dev.mysql.com/doc/refman/8.4/en/values.html>; MariaDB:
    /// <https://mariadb.com/kb/en/table-value-constructors/>.
    pub(super) fn row(self) -> &'static str {
        match self {
            Self::MySql => "ROW(",
            Self::MariaDb { .. } => "(",
        }
    }

    /// Whether a transaction can be one compound statement (MariaDB only).
    pub(super) fn has_compound_statements(self) -> bool {
        self != Self::MySql
    }

    /// Whether a prepared statement's arguments can be literals (MariaDB only); otherwise they are variables.
    pub(super) fn takes_literals(self) -> bool {
        self != Self::MySql
    }

    /// Whether the server itself ends a transaction whose client has stopped
    /// (`idle_transaction_timeout`, MariaDB only).
    pub(super) fn bounds_idle_transactions(self) -> bool {
        self != Self::MySql
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_name_themselves() {
        assert_eq!(
            Dialect::of_version("10.11.19-MariaDB-0+deb12u1-log"),
            Dialect::MariaDb { sequences: false }
        );
        assert_eq!(
            Dialect::of_version("5.5.5-10.6.1-mariadb"),
            Dialect::MariaDb { sequences: false }
        );
        assert_eq!(Dialect::of_version("9.7.4-2"), Dialect::MySql);
    }
}
