//! Whether what was acknowledged survives a crash, and whether the binary log takes what the library writes.

use super::super::Finding;
use super::super::facts::Facts;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![redo_log(facts), binary_log(facts)];
    findings.extend(format(facts));
    findings
}

fn redo_log(facts: &Facts) -> Finding {
    const CHECK: &str = "redo_log";
    let Some(value) = facts.variable("innodb_flush_log_at_trx_commit") else {
        return Finding::unknown(CHECK, "innodb_flush_log_at_trx_commit");
    };
    let what = format!("innodb_flush_log_at_trx_commit is {value}");
    match value {
        "1" | "3" => Finding::ok(CHECK, what),
        _ => Finding::problem(
            CHECK,
            what,
            "a crash can lose the last second: a lock that was acknowledged is free again, an increment is gone",
            "SET GLOBAL innodb_flush_log_at_trx_commit=1, and write it into the server's configuration",
        ),
    }
}

fn binary_log(facts: &Facts) -> Finding {
    const CHECK: &str = "binary_log";
    let (Some(_), Some(value)) = (facts.variable("log_bin"), facts.variable("sync_binlog")) else {
        return Finding::unknown(CHECK, "log_bin and sync_binlog");
    };
    if !facts.is_on("log_bin") {
        return Finding::ok(CHECK, "log_bin is OFF: sync_binlog does not matter");
    }
    let what = format!("sync_binlog is {value}");
    if value == "1" {
        Finding::ok(CHECK, what)
    } else {
        Finding::problem(
            CHECK,
            what,
            "after a crash of the machine the server undoes what the binary log does not have: acknowledged locks and \
             increments can be lost, and replicas may have them all the same",
            "SET GLOBAL sync_binlog=1, and write it into the server's configuration",
        )
    }
}

fn format(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "binlog_format";
    let value = facts.variable("binlog_format")?;
    let what = format!("binlog_format is {value}");
    Some(
        if value.eq_ignore_ascii_case("STATEMENT") && facts.is_on("log_bin") {
            Finding::problem(
                CHECK,
                what,
                "the library works under READ COMMITTED: the server refuses each of its packets with error 1665",
                "SET GLOBAL binlog_format=ROW (or MIXED), and write it into the server's configuration",
            )
        } else {
            Finding::ok(CHECK, what)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::Level::{Ok, Problem};
    use super::super::tests::expect_of;

    #[test]
    fn a_redo_log_that_is_not_flushed_is_told() {
        for (value, level) in [("0", Problem), ("1", Ok), ("2", Problem), ("3", Ok)] {
            expect_of(
                &[("innodb_flush_log_at_trx_commit", value)],
                "redo_log",
                level,
                value,
            );
        }
    }

    #[test]
    fn a_binary_log_that_is_not_synced_is_told() {
        for (value, level) in [("0", Problem), ("1", Ok), ("1000", Problem)] {
            expect_of(&[("sync_binlog", value)], "binary_log", level, value);
        }
        expect_of(
            &[("sync_binlog", "0"), ("log_bin", "OFF")],
            "binary_log",
            Ok,
            "does not matter",
        );
        expect_of(
            &[("sync_binlog", "0"), ("log_bin", "1")],
            "binary_log",
            Problem,
            "0",
        );
    }

    #[test]
    fn statements_in_the_binary_log_are_told() {
        for (value, level) in [("ROW", Ok), ("MIXED", Ok), ("STATEMENT", Problem)] {
            expect_of(&[("binlog_format", value)], "binlog_format", level, value);
        }
        expect_of(
            &[("binlog_format", "STATEMENT"), ("log_bin", "OFF")],
            "binlog_format",
            Ok,
            "STATEMENT",
        );
    }
}
