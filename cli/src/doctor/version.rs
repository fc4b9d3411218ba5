//! Versions of servers.

use std::fmt;

/// Whose server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    MariaDb,
    MySql,
}

/// A version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) kind: Kind,
    pub(super) number: (u16, u16, u16),
}

impl Version {
    /// Reads `VERSION()`: `8.4.3`, `10.11.19-MariaDB-log`, or with the `5.5.5-` that some proxies show before MariaDB's.
    pub(super) fn of(text: &str) -> Option<Self> {
        let kind = if text.to_ascii_lowercase().contains("mariadb") {
            Kind::MariaDb
        } else {
            Kind::MySql
        };
        let number = match kind {
            Kind::MariaDb => text.strip_prefix("5.5.5-").unwrap_or(text),
            Kind::MySql => text,
        };
        let number = number
            .split(|character: char| !character.is_ascii_digit() && character != '.')
            .next()?;
        let mut parts = number.split('.').map(|part| part.parse().ok());
        let mut part = || parts.next().flatten();
        let number = (part()?, part()?, part().unwrap_or_default());
        Some(Self { kind, number })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, patch) = self.number;
        let kind = match self.kind {
            Kind::MariaDb => "MariaDB",
            Kind::MySql => "MySQL",
        };
        write!(f, "{kind} {major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_servers_tell_them() {
        for (text, version) in [
            ("9.7.4-2", "MySQL 9.7.4"),
            ("8.0.19", "MySQL 8.0.19"),
            ("8.4.3-log", "MySQL 8.4.3"),
            ("10.11.19-MariaDB-0+deb12u1", "MariaDB 10.11.19"),
            ("5.5.5-10.6.2-MariaDB", "MariaDB 10.6.2"),
            ("11.8.6-MariaDB-ubu2404-log", "MariaDB 11.8.6"),
        ] {
            assert_eq!(
                Version::of(text)
                    .map(|version| version.to_string())
                    .as_deref(),
                Some(version)
            );
        }
        assert_eq!(Version::of("unknown"), None);
    }
}
