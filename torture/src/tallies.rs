//! What the servers count themselves, across their restarts: deadlocks, statements that took too long, and the conflicts of a
//! cluster.

use std::sync::{Mutex, PoisonError};

use crate::server::{Node, Servers};

const MARIADB_DEADLOCKS: &str = "SELECT CAST(VARIABLE_VALUE AS UNSIGNED) FROM information_schema.GLOBAL_STATUS \
                                 WHERE VARIABLE_NAME = 'Innodb_deadlocks'";
const MYSQL_DEADLOCKS: &str = "SELECT CAST(COUNT AS UNSIGNED) FROM information_schema.INNODB_METRICS WHERE NAME = 'lock_deadlocks'";
/// Statements that the server ended because they took too long, those of administrators included.
const MARIADB_TIMEOUTS: &str = "SELECT CAST(VARIABLE_VALUE AS UNSIGNED) FROM information_schema.GLOBAL_STATUS \
                                WHERE VARIABLE_NAME = 'Max_statement_time_exceeded'";
const MYSQL_TIMEOUTS: &str = "SELECT CAST(VARIABLE_VALUE AS UNSIGNED) FROM performance_schema.global_status \
                              WHERE VARIABLE_NAME = 'Max_execution_time_exceeded'";
/// Transactions of a node that failed to certify, or that made way for one of another node.
const GALERA_CONFLICTS: &str = "SELECT CAST(SUM(VARIABLE_VALUE) AS UNSIGNED) FROM information_schema.GLOBAL_STATUS \
                                WHERE VARIABLE_NAME IN ('wsrep_local_cert_failures', 'wsrep_local_bf_aborts')";
/// What a member told its clients. Each member counts the conflicts of all in `COUNT_CONFLICTS_DETECTED`, which
/// cannot be added up.
const GROUP_CONFLICTS: &str = "SELECT CAST(SUM(SUM_ERROR_RAISED) AS UNSIGNED) \
                               FROM performance_schema.events_errors_summary_global_by_error \
                               WHERE ERROR_NUMBER IN (1213, 3101)";

/// What was counted since the run began.
#[derive(Debug)]
pub struct Tallies {
    deadlocks: Tally,
    timeouts: Tally,
    /// None where one server decides alone.
    conflicts: Option<Tally>,
}

/// One thing that all servers count.
#[derive(Debug)]
struct Tally {
    sql: &'static str,
    counters: Mutex<Vec<Counter>>,
}

/// One server's counter. A restart sets it to zero.
#[derive(Debug, Clone, Copy, Default)]
struct Counter {
    last: Option<u64>,
    total: u64,
}

impl Tallies {
    /// Begins to count.
    #[must_use]
    pub fn of(servers: &Servers) -> Self {
        let tally = |sql| Tally {
            sql,
            counters: Mutex::new(vec![Counter::default(); servers.nodes.len()]),
        };
        let (deadlocks, timeouts) = if servers.is_mariadb {
            (MARIADB_DEADLOCKS, MARIADB_TIMEOUTS)
        } else {
            (MYSQL_DEADLOCKS, MYSQL_TIMEOUTS)
        };
        Self {
            deadlocks: tally(deadlocks),
            timeouts: tally(timeouts),
            conflicts: match servers.kind.as_str() {
                "galera" => Some(tally(GALERA_CONFLICTS)),
                "group-replication" => Some(tally(GROUP_CONFLICTS)),
                _ => None,
            },
        }
    }

    /// Looks at a server's counters. To be called often, and right before each kill.
    pub async fn look(&self, node: &Node) {
        self.deadlocks.look(node).await;
        self.timeouts.look(node).await;
        if let Some(conflicts) = &self.conflicts {
            conflicts.look(node).await;
        }
    }

    /// How many deadlocks there were.
    #[must_use]
    pub fn deadlocks(&self) -> u64 {
        self.deadlocks.total()
    }

    /// How many statements took too long for the server.
    #[must_use]
    pub fn timeouts(&self) -> u64 {
        self.timeouts.total()
    }

    /// How many conflicts there were between the nodes of a cluster.
    #[must_use]
    pub fn conflicts(&self) -> Option<u64> {
        self.conflicts.as_ref().map(Tally::total)
    }
}

impl Tally {
    async fn look(&self, node: &Node) {
        let Ok(found) = node.numbers(self.sql).await else {
            return;
        };
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(now), Some(counter)) = (found.first(), counters.get_mut(node.number)) {
            counter.see(*now);
        }
    }

    fn total(&self) -> u64 {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters.iter().map(|counter| counter.total).sum()
    }
}

impl Counter {
    fn see(&mut self, now: u64) {
        self.total += match self.last {
            // What was before the run is not its own.
            None => 0,
            Some(last) if now >= last => now - last,
            Some(_) => now,
        };
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_hide_nothing() {
        let mut counter = Counter::default();
        for (now, total) in [(7, 0), (9, 2), (1, 3), (1, 3), (4, 6)] {
            counter.see(now);
            assert_eq!(counter.total, total);
        }
    }
}
