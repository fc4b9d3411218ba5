//! The tables: whether they are there, whose they are, and what lies in them unused.

use super::super::Finding;
use super::super::facts::{Denied, Facts, Purgeable, TABLES, Tables};
use crate::output::duration;

/// So many rows that nobody needs are worth a word.
const MANY: u64 = 100_000;
/// What an application's account needs.
const NEEDED: [&str; 3] = ["SELECT", "INSERT", "UPDATE"];

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![migrated(facts)];
    if matches!(facts.tables, Tables::Ready | Tables::Hidden) {
        findings.extend([engine(facts), privileges(facts), deleting(facts)]);
    }
    findings.extend(unused(facts));
    findings
}

fn migrated(facts: &Facts) -> Finding {
    const CHECK: &str = "migrated";
    match &facts.tables {
        Tables::Ready => Finding::ok(CHECK, "the tables are there"),
        Tables::Hidden => Finding::note(
            CHECK,
            "the account may not read the tables",
            "whether they are there, and of this version, cannot be seen",
            "grant what the finding `privileges` names, and look again",
        ),
        Tables::Refused(error) => Finding::problem(
            CHECK,
            format!("the server answers no question about the tables ({error})"),
            "no lock can be taken here",
            "connect to a server of the cluster that is at work, and look at what else is found here",
        ),
        Tables::NotMigrated => Finding::problem(
            CHECK,
            format!(
                "the tables are missing in {}, or of another version",
                facts.database
            ),
            "no lock can be taken",
            format!(
                "run `tag-lock migrate` with an account that may: GRANT CREATE, SELECT, INSERT, UPDATE, DELETE ON \
                 {0}.t_tag_lock, the same on {0}.t_tag_lock_lane and {0}.t_tag_lock_migrations",
                quoted(&facts.database)
            ),
        ),
    }
}

fn engine(facts: &Facts) -> Finding {
    const CHECK: &str = "engine";
    match facts
        .engines
        .iter()
        .find(|(_, engine)| !engine.eq_ignore_ascii_case("InnoDB"))
    {
        Some((table, engine)) => Finding::problem(
            CHECK,
            format!("{table} is of the engine {engine}"),
            "without transactions and row locks nothing that the library promises holds",
            format!(
                "ALTER TABLE {}.{table} ENGINE=InnoDB, while nobody uses it",
                facts.database
            ),
        ),
        None if facts.engines.len() < TABLES.len() => Finding::unknown(CHECK, "the tables' engine"),
        None => Finding::ok(CHECK, "the tables are InnoDB's"),
    }
}

fn privileges(facts: &Facts) -> Finding {
    const CHECK: &str = "privileges";
    let (missing, grants) = lacking(facts, &NEEDED);
    if missing.is_empty() {
        return untried(facts, &NEEDED, CHECK)
            .unwrap_or_else(|| Finding::ok(CHECK, "the account may SELECT, INSERT and UPDATE"));
    }
    Finding::problem(
        CHECK,
        format!("the account may not {missing}"),
        "locks and counters cannot be used without",
        grants,
    )
}

fn deleting(facts: &Facts) -> Finding {
    const CHECK: &str = "may_purge";
    let (missing, grants) = lacking(facts, &["DELETE"]);
    if missing.is_empty() {
        return untried(facts, &["DELETE"], CHECK)
            .unwrap_or_else(|| Finding::ok(CHECK, "the account may DELETE, which `purge` needs"));
    }
    Finding::note(
        CHECK,
        format!("the account may not {missing}"),
        "only `purge` needs that",
        grants,
    )
}

/// Of these privileges one of which it is not known whether the account has it.
fn untried(facts: &Facts, privileges: &[&str], check: &'static str) -> Option<Finding> {
    let untried =
        |denied: &&Denied| denied.otherwise.is_some() && privileges.contains(&denied.privilege);
    let denied = facts.denied.iter().find(untried)?;
    Some(Finding::unknown(
        check,
        &format!(
            "whether the account may {} on {} ({})",
            denied.privilege,
            denied.table,
            denied.otherwise.as_deref().unwrap_or_default()
        ),
    ))
}

/// A name as a statement has it.
fn quoted(name: &str) -> String {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_plain = |byte: u8| is_letter(byte) || byte.is_ascii_digit();
    if name.bytes().next().is_some_and(is_letter) && name.bytes().all(is_plain) {
        return name.to_owned();
    }
    format!("`{}`", name.replace('`', "``"))
}

/// Which of these privileges are missing, and the statements that give them.
fn lacking(facts: &Facts, privileges: &[&str]) -> (String, String) {
    let (mut missing, mut grants) = (Vec::new(), Vec::new());
    for table in TABLES {
        let of_table = facts.denied.iter().filter(|denied| {
            denied.table == table
                && denied.otherwise.is_none()
                && privileges.contains(&denied.privilege)
        });
        let of_table: Vec<&str> = of_table.map(|denied| denied.privilege).collect();
        if !of_table.is_empty() {
            let of_table = of_table.join(", ");
            missing.push(format!("{of_table} on {table}"));
            grants.push(format!(
                "GRANT {of_table} ON {}.{table} TO …",
                quoted(&facts.database)
            ));
        }
    }
    (missing.join(", nor "), grants.join("; "))
}

fn unused(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "unused_rows";
    let age = duration(facts.older_than);
    Some(match &facts.purgeable {
        Purgeable::NotCounted => return None,
        Purgeable::Rows(rows) if *rows >= MANY => Finding::note(
            CHECK,
            format!("{rows} rows that nothing changed for {age}"),
            "they cost space, and the time of those who list locks",
            format!(
                "run `tag-lock purge --older-than {}`, or build a client with purge_after",
                age.replace(' ', "")
            ),
        ),
        Purgeable::Rows(rows) => Finding::ok(
            CHECK,
            format!("`purge` would take {rows} rows that nothing changed for {age}"),
        ),
        Purgeable::Refused(error) => {
            Finding::unknown(CHECK, &format!("how many rows nobody needs ({error})"))
        }
        Purgeable::TooMany => Finding::note(
            CHECK,
            "the rows could not be counted within ten seconds",
            "there may be millions that nobody needs",
            "run `tag-lock purge` with the age from which rows may go",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::Level::{Note, Ok, Problem};
    use super::super::tests::{expect, facts};
    use super::*;

    fn denied(table: &'static str, privilege: &'static str) -> Denied {
        Denied {
            table,
            privilege,
            otherwise: None,
        }
    }

    #[test]
    fn missing_tables_are_told() {
        let facts = Facts {
            tables: Tables::NotMigrated,
            purgeable: Purgeable::NotCounted,
            ..facts(&[])
        };
        expect(&facts, "migrated", Problem, "missing in shop");
        assert!(
            findings(&facts)[0]
                .advice
                .contains("shop.t_tag_lock_migrations")
        );
        assert_eq!(findings(&facts).len(), 1);
    }

    #[test]
    fn another_engine_is_told() {
        let mut facts = facts(&[]);
        facts
            .engines
            .insert("t_tag_lock".to_owned(), "MyISAM".to_owned());
        expect(
            &facts,
            "engine",
            Problem,
            "t_tag_lock is of the engine MyISAM",
        );
    }

    #[test]
    fn missing_privileges_are_told() {
        let denied = vec![
            denied("t_tag_lock", "INSERT"),
            denied("t_tag_lock", "UPDATE"),
            denied("t_tag_lock_lane", "UPDATE"),
        ];
        let facts = Facts {
            denied,
            ..facts(&[])
        };
        expect(
            &facts,
            "privileges",
            Problem,
            "may not INSERT, UPDATE on t_tag_lock, nor UPDATE on t_tag_lock_lane",
        );
        expect(&facts, "may_purge", Ok, "may DELETE");
        let grants = privileges(&facts).advice;
        assert_eq!(
            grants,
            "GRANT INSERT, UPDATE ON shop.t_tag_lock TO …; GRANT UPDATE ON shop.t_tag_lock_lane TO …"
        );
    }

    #[test]
    fn an_account_that_may_not_purge_is_told() {
        let facts = Facts {
            denied: vec![denied("t_tag_lock", "DELETE")],
            ..facts(&[])
        };
        expect(&facts, "may_purge", Note, "DELETE on t_tag_lock");
        expect(&facts, "privileges", Ok, "");
    }

    #[test]
    fn what_is_advised_can_be_pasted() {
        for (database, written) in [
            ("shop", "ON shop.t_tag_lock TO"),
            ("my-shop", "ON `my-shop`.t_tag_lock TO"),
            ("a`b", "ON `a``b`.t_tag_lock TO"),
        ] {
            let facts = Facts {
                database: database.to_owned(),
                denied: vec![denied("t_tag_lock", "UPDATE")],
                ..facts(&[])
            };
            let found = findings(&facts);
            let advised = |finding: &Finding| finding.advice.contains(written);
            assert!(found.iter().any(advised), "{found:?}");
        }
    }

    #[test]
    fn a_privilege_that_could_not_be_tried_is_not_called_there() {
        for (privilege, check, other) in [
            ("UPDATE", "privileges", "may_purge"),
            ("DELETE", "may_purge", "privileges"),
        ] {
            let refused = Denied {
                otherwise: Some("1290: read only".to_owned()),
                ..denied("t_tag_lock", privilege)
            };
            let facts = Facts {
                denied: vec![refused],
                ..facts(&[])
            };
            expect(&facts, check, Note, "1290: read only");
            expect(&facts, other, Ok, "may");
        }
    }

    #[test]
    fn tables_that_cannot_be_read_are_told() {
        let facts = Facts {
            tables: Tables::Hidden,
            denied: vec![denied("t_tag_lock", "SELECT")],
            ..facts(&[])
        };
        expect(&facts, "migrated", Note, "may not read");
        expect(&facts, "privileges", Problem, "SELECT on t_tag_lock");
    }

    #[test]
    fn a_server_that_does_not_let_them_be_asked_is_told() {
        let facts = Facts {
            tables: Tables::Refused("1047: not prepared".to_owned()),
            purgeable: Purgeable::NotCounted,
            ..facts(&[])
        };
        expect(&facts, "migrated", Problem, "(1047: not prepared)");
        assert_eq!(findings(&facts).len(), 1);
    }

    #[test]
    fn rows_that_nobody_needs_are_told() {
        expect(
            &Facts {
                purgeable: Purgeable::Rows(99_999),
                ..facts(&[])
            },
            "unused_rows",
            Ok,
            "99999",
        );
        expect(
            &Facts {
                purgeable: Purgeable::Rows(100_000),
                ..facts(&[])
            },
            "unused_rows",
            Note,
            "for 30d",
        );
        expect(
            &Facts {
                purgeable: Purgeable::TooMany,
                ..facts(&[])
            },
            "unused_rows",
            Note,
            "not be counted",
        );
        expect(
            &Facts {
                purgeable: Purgeable::Refused("access denied".to_owned()),
                ..facts(&[])
            },
            "unused_rows",
            Note,
            "(access denied)",
        );
    }
}
