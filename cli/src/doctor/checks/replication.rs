//! Replication: whether a failover can forget what was acknowledged.

use super::super::Finding;
use super::super::facts::{Facts, is_on};

/// A wait for replicas that is as good as never given up, in milliseconds: a day.
const NEVER: u64 = 86_400_000;

const FORGETS: &str = "a failover can forget the last commits: a lock that was acknowledged is granted again, an increment is gone";

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let enabled = facts.any_variable(&[
        "rpl_semi_sync_source_enabled",
        "rpl_semi_sync_master_enabled",
    ]);
    match enabled {
        Some((name, value)) if is_on(value) => {
            let kind = if name.contains("source") {
                "source"
            } else {
                "master"
            };
            vec![semi_synchronous(facts, kind)]
        }
        _ => asynchronous(facts).into_iter().collect(),
    }
}

/// Of a server whose commits wait for replicas; `kind` is what the server calls itself.
fn semi_synchronous(facts: &Facts, kind: &str) -> Finding {
    const CHECK: &str = "semi_sync";
    let variable = |what: &str| format!("rpl_semi_sync_{kind}_{what}");
    let (point, timeout) = (variable("wait_point"), variable("timeout"));
    if facts
        .any_status(&["rpl_semi_sync_source_status", "rpl_semi_sync_master_status"])
        .is_some_and(|on| !is_on(on))
    {
        return Finding::problem(
            CHECK,
            "semi-synchronous replication is enabled, and not active",
            FORGETS,
            "start replicas that are semi-synchronous, and look why those that were fell behind",
        );
    }
    if let Some(value) = facts.variable(&point)
        && !value.eq_ignore_ascii_case("AFTER_SYNC")
    {
        return Finding::problem(
            CHECK,
            format!("{point} is {value}"),
            "others see a commit before a replica has it: a failover in that moment forgets what somebody has acted on",
            format!("SET GLOBAL {point}=AFTER_SYNC, and write it into the server's configuration"),
        );
    }
    match facts.number(&timeout) {
        Some(millis) if millis < NEVER => Finding::problem(
            CHECK,
            format!("{timeout} is {millis} ms"),
            "when no replica answers for so long, the server goes on asynchronously, and a failover can forget what it \
             acknowledges from then on",
            format!(
                "SET GLOBAL {timeout} to more than any outage that you wait out: {NEVER} is a day"
            ),
        ),
        _ => Finding::ok(CHECK, "commits wait for a replica before others see them"),
    }
}

/// Of a server whose commits wait for nobody: with Galera and Group Replication they do, otherwise.
fn asynchronous(facts: &Facts) -> Option<Finding> {
    let replicas = facts.replicas.filter(|&replicas| replicas > 0)?;
    Some(Finding::note(
        "replicas",
        format!("replicas that read the binary log, asynchronously: {replicas}"),
        FORGETS,
        "do not fail over to them by itself; where that matters, replicate semi-synchronously (docs/clusters.md)",
    ))
}

#[cfg(test)]
mod tests {
    use super::super::super::Level::{Note, Ok, Problem};
    use super::super::tests::{expect, facts};
    use super::*;

    fn of_kind(kind: &str, point: &str, timeout: &str, status: &str) -> Facts {
        let name = |what: &str| format!("rpl_semi_sync_{kind}_{what}");
        let (enabled, wait_point, wait) = (name("enabled"), name("wait_point"), name("timeout"));
        let mut facts = facts(&[(&enabled, "ON"), (&wait_point, point), (&wait, timeout)]);
        facts.status.insert(name("status"), status.to_owned());
        facts
    }

    #[test]
    fn semi_synchronous_replication_that_can_forget_is_told() {
        for kind in ["source", "master"] {
            expect(
                &of_kind(kind, "AFTER_SYNC", "86400000", "ON"),
                "semi_sync",
                Ok,
                "wait for a replica",
            );
            expect(
                &of_kind(kind, "AFTER_SYNC", "10000", "ON"),
                "semi_sync",
                Problem,
                "timeout is 10000 ms",
            );
            expect(
                &of_kind(kind, "AFTER_COMMIT", "86400000", "ON"),
                "semi_sync",
                Problem,
                "wait_point is AFTER_COMMIT",
            );
            expect(
                &of_kind(kind, "AFTER_SYNC", "86400000", "OFF"),
                "semi_sync",
                Problem,
                "not active",
            );
        }
    }

    #[test]
    fn asynchronous_replicas_are_told() {
        expect(
            &Facts {
                replicas: Some(2),
                ..facts(&[])
            },
            "replicas",
            Note,
            "asynchronously: 2",
        );
        let off = facts(&[("rpl_semi_sync_source_enabled", "OFF")]);
        expect(
            &Facts {
                replicas: Some(1),
                ..off
            },
            "replicas",
            Note,
            "asynchronously: 1",
        );
    }
}
