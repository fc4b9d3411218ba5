//! What each error says, and what it is said to be.

use std::error::Error as _;

use sqlx::migrate::MigrateError;

use super::*;

/// One of each variant: a new one does not compile before it stands here.
fn all() -> Vec<Error> {
    let said = || {
        let told = std::io::Error::other("the cause");
        Cause::from(sqlx::Error::Io(told))
    };
    let name = || "n".to_owned();
    let errors = vec![
        Error::InvalidName {
            name: name(),
            reason: "the reason",
        },
        Error::InvalidOption {
            option: "ttl",
            reason: "the reason".to_owned(),
        },
        Error::Timeout {
            name: name(),
            holder: Some("somebody".to_owned()),
            remaining: Some(Duration::from_secs(1)),
        },
        Error::LockLost { name: name() },
        Error::Overflow {
            name: name(),
            value: 1,
            delta: 2,
        },
        Error::Busy { name: name() },
        Error::Overloaded { name: name() },
        Error::Locked {
            table: TABLE,
            whole: true,
        },
        Error::NotMigrated { source: said() },
        Error::NoDatabase { source: said() },
        Error::Migrate {
            source: MigrateError::Execute(sqlx::Error::Io(std::io::Error::other("the cause")))
                .into(),
        },
        Error::ReadOnly { source: said() },
        Error::AccessDenied { source: said() },
        Error::Unreachable { source: said() },
        Error::TooManyConnections { source: said() },
        Error::OutcomeUnknown { name: name() },
        Error::NoTransaction { name: name() },
        Error::OtherDatabase {
            name: name(),
            database: "app".to_owned(),
        },
        Error::NotFinished { name: name() },
        Error::Interrupted {
            name: name(),
            source: Some(said()),
        },
        Error::RolledBack {
            name: name(),
            source: said(),
        },
        Error::StaleSnapshot {
            name: name(),
            source: said(),
        },
        Error::OperationMismatch {
            id: "id".to_owned(),
        },
        Error::Closed,
        Error::NotDriven,
        Error::Database { source: said() },
    ];
    let mut found = [false; 26];
    for error in &errors {
        let place = match error {
            Error::InvalidName { .. } => 0,
            Error::InvalidOption { .. } => 1,
            Error::Timeout { .. } => 2,
            Error::LockLost { .. } => 3,
            Error::Overflow { .. } => 4,
            Error::Busy { .. } => 5,
            Error::Overloaded { .. } => 6,
            Error::Locked { .. } => 7,
            Error::NotMigrated { .. } => 8,
            Error::NoDatabase { .. } => 9,
            Error::Migrate { .. } => 10,
            Error::ReadOnly { .. } => 11,
            Error::AccessDenied { .. } => 12,
            Error::Unreachable { .. } => 13,
            Error::TooManyConnections { .. } => 14,
            Error::OutcomeUnknown { .. } => 15,
            Error::NoTransaction { .. } => 16,
            Error::Interrupted { .. } => 17,
            Error::RolledBack { .. } => 18,
            Error::StaleSnapshot { .. } => 19,
            Error::OperationMismatch { .. } => 20,
            Error::Closed => 21,
            Error::NotDriven => 22,
            Error::Database { .. } => 23,
            Error::NotFinished { .. } => 24,
            Error::OtherDatabase { .. } => 25,
        };
        found[place] = true;
    }
    assert_eq!(found, [true; 26]);
    errors
}

/// As a chain is printed: each error, then its source, to the end.
fn chain(error: &Error) -> Vec<String> {
    let mut chain = vec![error.to_string()];
    let mut next = error.source();
    while let Some(source) = next {
        chain.push(source.to_string());
        next = source.source();
    }
    chain
}

#[test]
fn each_says_its_own_part_and_its_cause_once() {
    for error in all() {
        let chain = chain(&error);
        assert_eq!(chain[0].matches("the cause").count(), 0, "{chain:?}");
        let whole = chain.join(": ");
        let expected = usize::from(error.source().is_some());
        assert_eq!(whole.matches("the cause").count(), expected, "{whole}");
        assert_eq!(error.in_full().to_string(), whole);
        if let Some(name) = error.name() {
            assert!(chain[0].contains(&format!("{name:?}")), "{chain:?}");
        }
    }
}

#[test]
fn what_may_have_been_done_is_not_to_be_repeated() {
    for error in all() {
        let never = matches!(
            error,
            Error::OutcomeUnknown { .. }
                | Error::LockLost { .. }
                | Error::NotDriven
                | Error::Closed
        );
        assert!(!(never && error.is_retryable()), "{error:?}");
        assert!(!(error.is_hopeless() && error.is_retryable()), "{error:?}");
        assert_eq!(error.is_lost(), matches!(error, Error::LockLost { .. }));
    }
}
