//! The server itself: its version, its settings, its clock, and what stands before it.

use super::super::Finding;
use super::super::facts::Facts;
use super::super::version::{Kind, Version};

/// The oldest servers that the library is for.
const OLDEST: [(Kind, (u16, u16, u16)); 2] =
    [(Kind::MySql, (8, 0, 19)), (Kind::MariaDb, (10, 6, 0))];
/// The servers on which the library's tests run (docs/operations.md).
const TESTED: [(Kind, u16, u16); 3] = [
    (Kind::MySql, 9, 7),
    (Kind::MariaDb, 10, 11),
    (Kind::MariaDb, 11, 8),
];
/// The library's tests run with packets as small as this.
const SMALLEST_PACKET: u64 = 64 * 1024;
/// One of this size takes all that the library sends at once.
const LARGE_PACKET: u64 = 1024 * 1024;
/// One process needs as many: two lanes, and one to read. It takes half of what the account may have.
const CONNECTIONS: u64 = 6;
/// Clocks that differ by more are out of step.
const CLOCKS: u64 = 1_000_000;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let version = Version::of(&facts.version);
    let checks = [
        Some(supported(facts, version)),
        version.and_then(known_faults),
        Some(writable(facts)),
        packets(facts),
        snapshots(facts),
        connections(facts),
        Some(proxies(facts)),
        clocks(facts),
    ];
    checks.into_iter().flatten().collect()
}

fn supported(facts: &Facts, version: Option<Version>) -> Finding {
    const CHECK: &str = "version";
    let Some(version) = version else {
        return Finding::note(
            CHECK,
            format!("the version {:?} is not known", facts.version),
            "the library is tested on MySQL and MariaDB only",
            "run the library's tests against this server",
        );
    };
    let is_old = OLDEST
        .iter()
        .any(|&(kind, oldest)| kind == version.kind && version.number < oldest);
    if is_old {
        return Finding::problem(
            CHECK,
            format!("{version} is too old"),
            "the library needs SKIP LOCKED and what came with it",
            "upgrade to MySQL 8.0.19, MariaDB 10.6, or later",
        );
    }
    let (major, minor, _) = version.number;
    if !TESTED.contains(&(version.kind, major, minor)) {
        return Finding::note(
            CHECK,
            format!("{version} is not among the versions on which the library is tested"),
            "it has what the statements need, but nobody has seen them under faults there",
            "run the library's tests against a server of this version, as docs/operations.md says under Servers, or take one that it names",
        );
    }
    Finding::ok(CHECK, format!("{version}"))
}

/// Faults of servers that docs/operations.md lists, and that an application notices though the library does not.
fn known_faults(version: Version) -> Option<Finding> {
    let is_affected = match (version.kind, version.number) {
        (Kind::MariaDb, (10, 11, patch)) => patch <= 14,
        // Seen in 11.8.9; which one mends it is not known.
        (Kind::MariaDb, (11, 8, patch)) => patch <= 9,
        _ => false,
    };
    is_affected.then(|| {
        Finding::note(
            "known_faults",
            format!("{version}: an UPDATE of one table that KILL QUERY or max_statement_time stops is undone, and told as done"),
            "the library notices and runs it again; statements of the application's own, it cannot see to",
            "upgrade (never seen on MariaDB 10.11.18 and 10.11.19), or do without KILL QUERY and max_statement_time",
        )
    })
}

fn writable(facts: &Facts) -> Finding {
    const CHECK: &str = "writable";
    let names = ["innodb_read_only", "super_read_only", "read_only"];
    let is_set = |name: &&&str| {
        facts
            .variable(name)
            .is_some_and(|value| !value.eq_ignore_ascii_case("off") && value != "0")
    };
    if names.iter().all(|name| facts.variable(name).is_none()) {
        return Finding::unknown(CHECK, "read_only");
    }
    match names.iter().find(is_set) {
        Some(name) => Finding::problem(
            CHECK,
            format!("{name} is {}", facts.variable(name).unwrap_or_default()),
            "this is a replica, or was made one: locks that are taken here exclude nobody who takes them on the primary",
            "connect to the primary",
        ),
        None => Finding::ok(CHECK, "the server takes writes"),
    }
}

fn packets(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "packets";
    let size = facts.number("max_allowed_packet")?;
    let what = format!("max_allowed_packet is {size}");
    Some(if size < SMALLEST_PACKET {
        Finding::problem(
            CHECK,
            what,
            "the library is tested with 65536 and more: requests may be refused with error 1153",
            "SET GLOBAL max_allowed_packet=16777216, and write it into the server's configuration",
        )
    } else if size < LARGE_PACKET {
        Finding::note(
            CHECK,
            what,
            "many requests at once travel in more packets than they would need, each with a commit of its own",
            "SET GLOBAL max_allowed_packet=16777216, and write it into the server's configuration",
        )
    } else {
        Finding::ok(CHECK, what)
    })
}

fn snapshots(facts: &Facts) -> Option<Finding> {
    facts.variable("innodb_snapshot_isolation")?;
    const CHECK: &str = "snapshots";
    Some(if facts.is_on("innodb_snapshot_isolation") {
        Finding::note(
            CHECK,
            "innodb_snapshot_isolation is ON",
            "under REPEATABLE READ a transaction that has read something fails when it meets a row that changed since",
            "call verify_in, lock_in and the like first in a transaction, or use READ COMMITTED",
        )
    } else {
        Finding::ok(CHECK, "innodb_snapshot_isolation is OFF")
    })
}

fn connections(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "connections";
    let limit = facts.account_limit?;
    Some(if (1..CONNECTIONS).contains(&limit) {
        Finding::note(
            CHECK,
            format!("the account may have {limit} connections"),
            "each process wants three, and takes half of what the account may have at most: its lanes share them",
            "ALTER USER … WITH MAX_USER_CONNECTIONS 0, or 32 for each process: one takes 16 at the worst moment, and never more than half",
        )
    } else {
        let may = if limit == 0 {
            "as many as it likes".to_owned()
        } else {
            limit.to_string()
        };
        Finding::ok(CHECK, format!("connections of the account: {may}"))
    })
}

fn proxies(facts: &Facts) -> Finding {
    const CHECK: &str = "proxies";
    if facts.wire.refuses_packets {
        return Finding::problem(
            CHECK,
            "a packet of two statements was refused, or answered in part",
            "each request of the library is a packet of several statements",
            "connect to the server itself, or let the proxy pass packets as they are",
        );
    }
    let mut answers = facts.wire.answered_by.clone();
    answers.sort_unstable();
    answers.dedup();
    if answers.is_empty() {
        return Finding::unknown(CHECK, "which session answers");
    }
    if answers.len() > 1 {
        return Finding::problem(
            CHECK,
            format!("one connection was answered by {}", answers.join(" and ")),
            "something sends the statements of one connection to several sessions or servers: a lock would be taken on one \
             and looked for on another",
            "connect to the primary itself, or turn off read/write splitting and multiplexing for this account",
        );
    }
    Finding::ok(CHECK, "one session answers all statements of a connection")
}

fn clocks(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "clock";
    let clocks = facts.clocks?;
    let millis = |micros: i64| {
        format!(
            "{}.{} ms",
            micros / 1_000,
            micros.unsigned_abs() % 1_000 / 100
        )
    };
    let away = clocks.ahead.unsigned_abs();
    let way = if clocks.ahead < 0 {
        "behind"
    } else {
        "ahead of"
    };
    let what = format!(
        "the server's clock is {} {way} this machine's, give or take {}",
        millis(clocks.ahead.saturating_abs()),
        millis(clocks.uncertain)
    );
    Some(
        if away > CLOCKS.saturating_add(clocks.uncertain.unsigned_abs()) {
            Finding::note(
                CHECK,
                what,
                "leases are counted by the server's clock alone, which holds; but times in logs do not fit, a failover may go to a \
             server with another clock, and a clock that is set right by a step ends leases early or late",
                "let chrony or the like keep both in step",
            )
        } else {
            Finding::ok(CHECK, what)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::Level::{Note, Ok, Problem};
    use super::super::super::facts::{Clocks, Wire};
    use super::super::tests::{expect, expect_of, facts};
    use super::*;

    fn of_version(version: &str) -> Facts {
        Facts {
            version: version.to_owned(),
            ..facts(&[])
        }
    }

    #[test]
    fn old_versions_are_refused() {
        for version in [
            "8.0.18",
            "5.7.44-log",
            "10.5.27-MariaDB",
            "5.5.5-10.3.39-MariaDB",
        ] {
            expect(&of_version(version), "version", Problem, "too old");
        }
        for version in ["9.7.4-2", "10.11.19-MariaDB", "11.8.6-MariaDB"] {
            expect(&of_version(version), "version", Ok, "");
        }
        for version in ["8.0.19", "8.4.3", "10.6.0-MariaDB", "12.0.2-MariaDB"] {
            expect(
                &of_version(version),
                "version",
                Note,
                "not among the versions",
            );
        }
        expect(&of_version("TiDB"), "version", Note, "not known");
    }

    #[test]
    fn known_faults_are_told() {
        for version in [
            "10.11.14-MariaDB",
            "11.8.9-MariaDB",
            "11.8.6-MariaDB",
            "11.8.3-MariaDB",
        ] {
            expect(&of_version(version), "known_faults", Note, "undone");
        }
        for version in ["10.11.19-MariaDB", "9.7.4"] {
            assert_eq!(Version::of(version).and_then(known_faults), None);
        }
    }

    #[test]
    fn a_replica_is_told() {
        for name in ["read_only", "super_read_only", "innodb_read_only"] {
            expect_of(&[(name, "ON")], "writable", Problem, name);
        }
        expect_of(
            &[("read_only", "NO_LOCK")],
            "writable",
            Problem,
            "read_only is NO_LOCK",
        );
        expect_of(&[("read_only", "0")], "writable", Ok, "takes writes");
    }

    #[test]
    fn small_packets_are_told() {
        for (size, level) in [
            ("1024", Problem),
            ("65535", Problem),
            ("65536", Note),
            ("1048575", Note),
            ("1048576", Ok),
        ] {
            expect_of(&[("max_allowed_packet", size)], "packets", level, size);
        }
    }

    #[test]
    fn snapshot_isolation_is_told() {
        expect_of(
            &[("innodb_snapshot_isolation", "ON")],
            "snapshots",
            Note,
            "ON",
        );
        expect_of(
            &[("innodb_snapshot_isolation", "OFF")],
            "snapshots",
            Ok,
            "OFF",
        );
    }

    #[test]
    fn few_connections_are_told() {
        for (limit, level) in [(0, Ok), (1, Note), (5, Note), (6, Ok)] {
            expect(
                &Facts {
                    account_limit: Some(limit),
                    ..facts(&[])
                },
                "connections",
                level,
                "",
            );
        }
    }

    #[test]
    fn proxies_that_split_are_told() {
        let wire = |answered_by: &[&str], refuses_packets| Facts {
            wire: Wire {
                answered_by: answered_by.iter().map(|&who| who.to_owned()).collect(),
                refuses_packets,
            },
            ..facts(&[])
        };
        expect(
            &wire(&["a", "b", "a"], false),
            "proxies",
            Problem,
            "a and b",
        );
        expect(&wire(&["a"], true), "proxies", Problem, "refused");
    }

    #[test]
    fn clocks_out_of_step_are_told() {
        let clocks = |ahead, uncertain| Facts {
            clocks: Some(Clocks { ahead, uncertain }),
            ..facts(&[])
        };
        expect(&clocks(1_000_100, 0), "clock", Note, "1000.1 ms ahead of");
        expect(
            &clocks(-5_000_000, 1_000),
            "clock",
            Note,
            "5000.0 ms behind",
        );
        expect(
            &clocks(3_000_000, 2_500_000),
            "clock",
            Ok,
            "give or take 2500.0 ms",
        );
    }
}
