//! Clusters: what docs/clusters.md asks of Galera and of Group Replication.

use super::super::Finding;
use super::super::facts::Facts;

/// Reads, updates and inserts wait for what was committed elsewhere.
const SYNC_WAIT: u64 = 7;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let is_galera = match facts.variable("wsrep_on") {
        Some(_) => facts.is_on("wsrep_on"),
        // Percona XtraDB Cluster has it in sessions alone.
        None => facts.any_status(&["wsrep_cluster_status"]).is_some(),
    };
    if is_galera {
        return vec![galera_node(facts), galera_reads(facts)];
    }
    // It can be switched off while the node is in the cluster.
    if is_primary(facts) {
        return vec![galera_alone()];
    }
    if facts
        .variable("group_replication_group_name")
        .is_some_and(|name| !name.is_empty())
    {
        return vec![
            group_member(facts),
            group_consistency(facts),
            group_start(facts),
            group_failover(facts),
        ];
    }
    Vec::new()
}

/// Whether Galera's provider says that this node is in the part of a cluster that works.
fn is_primary(facts: &Facts) -> bool {
    facts
        .any_status(&["wsrep_cluster_status"])
        .is_some_and(|status| status.eq_ignore_ascii_case("Primary"))
}

fn galera_alone() -> Finding {
    Finding::problem(
        "galera_node",
        "wsrep_on is OFF, on a node of a cluster",
        "what is written here is on this node only: two may have one lock",
        "SET GLOBAL wsrep_on=ON, and let this node join again with the cluster's data",
    )
}

fn galera_node(facts: &Facts) -> Finding {
    const CHECK: &str = "galera_node";
    let status = facts
        .any_status(&["wsrep_cluster_status"])
        .unwrap_or("unknown");
    let ready = facts.any_status(&["wsrep_ready"]).unwrap_or("unknown");
    if !is_primary(facts) || !ready.eq_ignore_ascii_case("ON") {
        return Finding::problem(
            CHECK,
            format!("wsrep_cluster_status is {status}, wsrep_ready is {ready}"),
            "this node is not in the part of the cluster that works: it takes no writes",
            "connect to another node, and let this one join again",
        );
    }
    let size = facts.any_status(&["wsrep_cluster_size"]).unwrap_or("?");
    Finding::ok(
        CHECK,
        format!("this node is one of {size} that work; take a ttl of 25 s or more"),
    )
}

fn galera_reads(facts: &Facts) -> Finding {
    const CHECK: &str = "galera_reads";
    let value = facts.number("wsrep_sync_wait").unwrap_or_default();
    let what = format!("wsrep_sync_wait is {value}");
    if value & SYNC_WAIT == SYNC_WAIT {
        return Finding::ok(CHECK, what);
    }
    Finding::note(
        CHECK,
        what,
        "that is right if all clients write to one node; otherwise refusals and reads are as old as what this node has applied, \
         and a client that a router moved may be told that its lock is lost",
        "let all clients write to one node, or SET GLOBAL wsrep_sync_wait=7 on every node",
    )
}

fn group_member(facts: &Facts) -> Finding {
    const CHECK: &str = "group_member";
    match &facts.group {
        Some(group) if group.state == "ONLINE" => Finding::ok(
            CHECK,
            format!("this member is one of {} that are online", group.online),
        ),
        Some(group) => Finding::problem(
            CHECK,
            format!(
                "this member is {}",
                if group.state.is_empty() {
                    "in no group"
                } else {
                    &group.state
                }
            ),
            "what it commits alone is not in the group: it can keep this member from joining, and two may have one lock",
            "connect to the primary, and let this member join again",
        ),
        None => Finding::note(
            CHECK,
            "this member's state could not be read",
            "a member that is not online must not be written to",
            "GRANT SELECT ON performance_schema.replication_group_members TO …, and look again",
        ),
    }
}

fn group_consistency(facts: &Facts) -> Finding {
    const CHECK: &str = "group_reads";
    let value = facts
        .variable("group_replication_consistency")
        .unwrap_or("unknown")
        .to_ascii_uppercase();
    let single = facts.is_on("group_replication_single_primary_mode");
    let (fits, wanted) = if single {
        (
            matches!(
                value.as_str(),
                "BEFORE_ON_PRIMARY_FAILOVER" | "BEFORE" | "AFTER" | "BEFORE_AND_AFTER"
            ),
            "BEFORE_ON_PRIMARY_FAILOVER",
        )
    } else {
        (
            matches!(value.as_str(), "BEFORE" | "BEFORE_AND_AFTER"),
            "BEFORE",
        )
    };
    let mode = if single {
        "one primary"
    } else {
        "several primaries"
    };
    let what = format!("group_replication_consistency is {value}, with {mode}");
    if fits {
        return Finding::ok(CHECK, what);
    }
    Finding::problem(
        CHECK,
        what,
        "refusals and reads may be older than what was acknowledged: after a failover, or on another member",
        format!(
            "SET GLOBAL group_replication_consistency='{wanted}' on every member, and write it into its configuration"
        ),
    )
}

/// What cannot be seen from a member that has joined: the group lifts it from its primary.
fn group_start(facts: &Facts) -> Finding {
    const CHECK: &str = "group_start";
    let leaves = facts
        .number("group_replication_unreachable_majority_timeout")
        .unwrap_or_default();
    let mut advice = "write super_read_only=ON into each member's configuration; the group lifts it from its primary".to_owned();
    let mut what =
        "whether members start read-only cannot be seen once they have joined".to_owned();
    if leaves > 0 {
        what.push_str(&format!(
            "; group_replication_unreachable_majority_timeout is {leaves}"
        ));
        advice.push_str(
            "; before MySQL 8.4 leave group_replication_unreachable_majority_timeout at 0",
        );
    }
    Finding::note(
        CHECK,
        what,
        "a member that was started and has not joined yet takes writes otherwise, which are in that member alone",
        advice,
    )
}

/// What to know before a member dies.
fn group_failover(facts: &Facts) -> Finding {
    if facts.is_on("group_replication_single_primary_mode") {
        return Finding::note(
            "group_ttl",
            "a failover takes 22 s with the default settings",
            "a lease of the default ttl, 30 s, may have 20 s left when the primary dies, and ends before the next one works",
            "take a ttl of 45 s or more",
        );
    }
    Finding::note(
        "group_kill",
        "queries that are killed in their COMMIT can stop a member's applier for ever (seen once, on MySQL 9.7.4)",
        "that member's reads fall behind, and requests through it do not end in time",
        "do not kill queries that are in COMMIT; stop a member whose applier stands still, and let it join again",
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::Level::{Note, Ok, Problem};
    use super::super::super::facts::Group;
    use super::super::tests::{expect, expect_of, facts};
    use super::*;

    fn galera(sync_wait: &str, status: &str, ready: &str) -> Facts {
        let mut facts = facts(&[("wsrep_on", "ON"), ("wsrep_sync_wait", sync_wait)]);
        for (name, value) in [
            ("wsrep_cluster_status", status),
            ("wsrep_ready", ready),
            ("wsrep_cluster_size", "3"),
        ] {
            facts.status.insert(name.to_owned(), value.to_owned());
        }
        facts
    }

    #[test]
    fn a_galera_node_that_does_not_work_is_told() {
        expect(&galera("7", "Primary", "ON"), "galera_node", Ok, "one of 3");
        expect(
            &galera("7", "non-Primary", "ON"),
            "galera_node",
            Problem,
            "non-Primary",
        );
        expect(
            &galera("7", "Primary", "OFF"),
            "galera_node",
            Problem,
            "wsrep_ready is OFF",
        );
    }

    #[test]
    fn a_node_that_was_taken_out_of_replication_is_told() {
        let mut facts = galera("7", "Primary", "ON");
        facts
            .variables
            .insert("wsrep_on".to_owned(), "OFF".to_owned());
        expect(&facts, "galera_node", Problem, "wsrep_on is OFF");
        // Of no cluster.
        facts
            .status
            .insert("wsrep_cluster_status".to_owned(), "Disconnected".to_owned());
        assert_eq!(findings(&facts), Vec::new());
    }

    /// Percona XtraDB Cluster has no global `wsrep_on`.
    #[test]
    fn a_node_without_the_global_variable_is_one_all_the_same() {
        for (status, level) in [("Primary", Ok), ("non-Primary", Problem)] {
            let mut facts = galera("7", status, "ON");
            facts.variables.remove("wsrep_on");
            expect(&facts, "galera_node", level, "");
            expect(&facts, "galera_reads", Ok, "7");
        }
    }

    #[test]
    fn galera_reads_that_do_not_wait_are_told() {
        for (value, level) in [("0", Note), ("1", Note), ("7", Ok), ("15", Ok)] {
            expect(
                &galera(value, "Primary", "ON"),
                "galera_reads",
                level,
                value,
            );
        }
    }

    fn group(single: &str, consistency: &str, state: &str) -> Facts {
        let variables = [
            ("group_replication_group_name", "g"),
            ("group_replication_single_primary_mode", single),
            ("group_replication_consistency", consistency),
        ];
        Facts {
            group: Some(Group {
                state: state.to_owned(),
                online: 3,
            }),
            ..facts(&variables)
        }
    }

    #[test]
    fn reads_of_a_group_that_are_old_are_told() {
        for (single, consistency, level) in [
            ("ON", "EVENTUAL", Problem),
            ("ON", "BEFORE_ON_PRIMARY_FAILOVER", Ok),
            ("ON", "BEFORE", Ok),
            ("OFF", "BEFORE_ON_PRIMARY_FAILOVER", Problem),
            ("OFF", "AFTER", Problem),
            ("OFF", "BEFORE", Ok),
            ("OFF", "BEFORE_AND_AFTER", Ok),
        ] {
            expect(
                &group(single, consistency, "ONLINE"),
                "group_reads",
                level,
                consistency,
            );
        }
    }

    #[test]
    fn a_member_that_is_not_in_the_group_is_told() {
        expect(
            &group("ON", "BEFORE", "ONLINE"),
            "group_member",
            Ok,
            "one of 3",
        );
        expect(
            &group("ON", "BEFORE", "RECOVERING"),
            "group_member",
            Problem,
            "RECOVERING",
        );
        expect(
            &group("ON", "BEFORE", ""),
            "group_member",
            Problem,
            "in no group",
        );
        expect(
            &Facts {
                group: None,
                ..group("ON", "BEFORE", "")
            },
            "group_member",
            Note,
            "could not be read",
        );
    }

    #[test]
    fn what_cannot_be_seen_of_a_group_is_told() {
        let changes = [
            ("group_replication_group_name", "g"),
            ("group_replication_unreachable_majority_timeout", "6"),
        ];
        expect_of(&changes, "group_start", Note, "timeout is 6");
        expect_of(&changes, "group_kill", Note, "killed");
        expect(&group("ON", "BEFORE", "ONLINE"), "group_ttl", Note, "22 s");
    }
}
