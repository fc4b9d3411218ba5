//! The deadlocks that the servers count, across their restarts.

use std::sync::{Mutex, PoisonError};

use crate::server::{Node, Servers};

const MARIADB: &str = "SELECT CAST(VARIABLE_VALUE AS UNSIGNED) FROM information_schema.GLOBAL_STATUS \
                       WHERE VARIABLE_NAME = 'Innodb_deadlocks'";
const MYSQL: &str = "SELECT CAST(COUNT AS UNSIGNED) FROM information_schema.INNODB_METRICS WHERE NAME = 'lock_deadlocks'";

/// What was counted since the run began.
#[derive(Debug)]
pub struct Deadlocks {
    sql: &'static str,
    counters: Mutex<Vec<Counter>>,
}

/// One server's counter. A restart sets it to zero.
#[derive(Debug, Clone, Copy, Default)]
struct Counter {
    last: Option<u64>,
    total: u64,
}

impl Deadlocks {
    /// Begins to count.
    #[must_use]
    pub fn of(servers: &Servers) -> Self {
        Self {
            sql: if servers.is_mariadb { MARIADB } else { MYSQL },
            counters: Mutex::new(vec![Counter::default(); servers.nodes.len()]),
        }
    }

    /// Looks at a server's counter. To be called often, and right before each kill.
    pub async fn look(&self, node: &Node) {
        let Ok(found) = node.numbers(self.sql).await else {
            return;
        };
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(now), Some(counter)) = (found.first(), counters.get_mut(node.number)) {
            counter.see(*now);
        }
    }

    /// How many there were.
    #[must_use]
    pub fn total(&self) -> u64 {
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
    fn restarts_do_not_hide_deadlocks() {
        let mut counter = Counter::default();
        for (now, total) in [(7, 0), (9, 2), (1, 3), (1, 3), (4, 6)] {
            counter.see(now);
            assert_eq!(counter.total, total);
        }
    }
}
