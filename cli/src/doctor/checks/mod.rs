//! From facts to findings. Each check looks at one thing, and always says something of it, if that is there at all.

mod cluster;
mod durability;
mod replication;
mod server;
mod tables;

use super::Finding;
use super::facts::Facts;

/// All findings, in the order in which they were looked for.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    [
        server::findings(facts),
        durability::findings(facts),
        tables::findings(facts),
        replication::findings(facts),
        cluster::findings(facts),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Level;
    use super::super::facts::{Clocks, Facts, Purgeable, Wire};
    use super::findings;

    /// A server that is fit, with these variables changed.
    pub(super) fn facts(changes: &[(&str, &str)]) -> Facts {
        let mut facts = Facts {
            version: "9.7.4".to_owned(),
            database: "shop".to_owned(),
            account_limit: Some(0),
            replicas: Some(0),
            wire: Wire {
                answered_by: vec!["a".to_owned(), "a".to_owned()],
                refuses_packets: false,
            },
            clocks: Some(Clocks {
                ahead: 300,
                uncertain: 200,
            }),
            purgeable: Purgeable::Rows(0),
            older_than: Duration::from_secs(30 * 86_400),
            ..Facts::default()
        };
        for table in super::super::facts::TABLES {
            facts.engines.insert(table.to_owned(), "InnoDB".to_owned());
        }
        let usual = [
            ("innodb_flush_log_at_trx_commit", "1"),
            ("sync_binlog", "1"),
            ("log_bin", "ON"),
            ("binlog_format", "ROW"),
            ("max_allowed_packet", "67108864"),
            ("read_only", "OFF"),
            ("super_read_only", "OFF"),
            ("group_replication_group_name", ""),
        ];
        for (name, value) in usual.iter().chain(changes) {
            facts
                .variables
                .insert((*name).to_owned(), (*value).to_owned());
        }
        facts
    }

    /// That a check says this of these facts, why, and what to do.
    pub(super) fn expect(facts: &Facts, check: &str, level: Level, what: &str) {
        let found = findings(facts);
        let finding = found
            .iter()
            .find(|finding| finding.check == check && finding.what.contains(what));
        let finding = finding.unwrap_or_else(|| panic!("{check}: {what} is not among {found:#?}"));
        assert_eq!(finding.level, level, "{finding:?}");
        let is_explained = !finding.why.is_empty() && !finding.advice.is_empty();
        assert_eq!(is_explained, level != Level::Ok, "{finding:?}");
    }

    /// As [`expect`] of the facts of a server with these variables.
    pub(super) fn expect_of(changes: &[(&str, &str)], check: &str, level: Level, what: &str) {
        expect(&facts(changes), check, level, what);
    }

    #[test]
    fn a_server_that_is_fit_is_fit() {
        for finding in findings(&facts(&[])) {
            assert_eq!(finding.level, Level::Ok, "{finding:?}");
        }
    }

    #[test]
    fn what_a_server_does_not_tell_is_not_called_well() {
        for finding in findings(&Facts::default()) {
            // `Tables::Ready` is what the library said of the tables.
            let is_told = ["migrated", "privileges", "may_purge"].contains(&finding.check);
            assert!(is_told || finding.level == Level::Note, "{finding:?}");
        }
    }
}
