//! What was read from a server.

use std::collections::BTreeMap;
use std::time::Duration;

/// The tables, and what an application's account does with them.
pub(super) const TABLES: [&str; 2] = ["t_tag_lock", "t_tag_lock_lane"];

/// What a server said. Whatever it did not tell is `None`, or missing.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// `VERSION()`.
    pub(super) version: String,
    /// Global variables, by their names in lower case.
    pub(super) variables: BTreeMap<String, String>,
    /// Global status, by its names in lower case.
    pub(super) status: BTreeMap<String, String>,
    /// The database that the address names.
    pub(super) database: String,
    /// The library's own word on its tables.
    pub(super) tables: Tables,
    /// The engine of each of the tables that is there.
    pub(super) engines: BTreeMap<String, String>,
    /// What the account was not let do.
    pub(super) denied: Vec<Denied>,
    /// How many connections the account may have; 0 for as many as it likes.
    pub(super) account_limit: Option<u64>,
    /// Replicas that read this server's binary log.
    pub(super) replicas: Option<u64>,
    /// How the statements of one connection were answered.
    pub(super) wire: Wire,
    /// The server's clock and this machine's.
    pub(super) clocks: Option<Clocks>,
    /// What `purge` would take.
    pub(super) purgeable: Purgeable,
    /// Of how old rows that is.
    pub(super) older_than: Duration,
    /// Members of a replication group, and this one's state.
    pub(super) group: Option<Group>,
}

/// Whether the tables are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Tables {
    #[default]
    Ready,
    /// They are missing, or of another version.
    NotMigrated,
    /// The account may not read them.
    Hidden,
    /// The server answers no question about them, as a cluster's node that is not at work, and this is its error.
    Refused(String),
}

/// How many rows `purge` would take, by the library's own word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Purgeable {
    Rows(u64),
    /// They could not be counted in time.
    TooMany,
    /// The server refused, and this is its error.
    Refused(String),
    /// There is nothing to count yet.
    #[default]
    NotCounted,
}

/// A statement on a table that the server refused.
#[derive(Clone, Debug)]
pub(super) struct Denied {
    pub(super) table: &'static str,
    /// The privilege that the statement needs.
    pub(super) privilege: &'static str,
    /// The server's error, if that is about something other than privileges: whether the account has this one is not known.
    pub(super) otherwise: Option<String>,
}

/// How statements of one connection were answered.
#[derive(Clone, Debug, Default)]
pub(super) struct Wire {
    /// Which server, and which of its sessions, answered each statement.
    pub(super) answered_by: Vec<String>,
    /// Whether a packet of several statements was refused.
    pub(super) refuses_packets: bool,
}

/// Two clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    /// How far the server's is ahead of this machine's, in microseconds.
    pub(super) ahead: i64,
    /// By how much that may be wrong.
    pub(super) uncertain: i64,
}

/// A replication group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) state: String,
    pub(super) online: u64,
}

impl Facts {
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// The first of these names that there is: servers have renamed some.
    pub(super) fn any_variable<'n>(&self, names: &[&'n str]) -> Option<(&'n str, &str)> {
        names
            .iter()
            .find_map(|name| Some((*name, self.variable(name)?)))
    }

    pub(super) fn any_status(&self, names: &[&str]) -> Option<&str> {
        names
            .iter()
            .find_map(|name| self.status.get(*name))
            .map(String::as_str)
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.variable(name).is_some_and(is_on)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.variable(name)?.parse().ok()
    }
}

/// Whether a variable's value means yes.
pub(super) fn is_on(value: &str) -> bool {
    ["on", "1", "yes", "true"]
        .iter()
        .any(|yes| value.eq_ignore_ascii_case(yes))
}
