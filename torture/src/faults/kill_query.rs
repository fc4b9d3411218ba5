//! An operator kills whatever the library and its callers are just running, again and again for a moment.
//!
//! It happens beside all other faults: what follows a lost reply is met too, the new identity of a lane and the settlement of
//! the old one. So that some always follow, packets and replies are lost meanwhile.

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};

use super::packet::{LOST_COMMIT_REPLY, LOST_PACKET};
use super::{Failure, Fault, Lane, Rig};
use crate::server::{Topology, within};

pub(super) struct KillQuery;

/// Sessions that commit or roll back.
const END: &str = "kill-query: end";
/// The shortest and the longest time for which it goes on, in milliseconds.
const TIME: std::ops::Range<u64> = 100..700;
/// The longest pause between two looks at what runs, in microseconds: about as long as a packet takes, so that each of its
/// statements is met.
const PAUSE: u64 = 4_000;
/// One look in so many loses a packet or a reply.
const LOSSES: u32 = 4;

impl Fault for KillQuery {
    fn name(&self) -> &'static str {
        "kill-query"
    }

    fn lane(&self) -> Lane {
        Lane::Query
    }

    fn weight(&self) -> u32 {
        10
    }

    fn strike<'a>(
        &'a self,
        rig: &'a Rig,
        random: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        Box::pin(async move {
            let node = rig.any_writer(random);
            // The server may be away, and may go away.
            let Ok(mut administrator) = node.administrator().await else {
                return Ok(false);
            };
            let time = Duration::from_millis(random.random_range(TIME));
            let began = Instant::now();
            while began.elapsed() < time {
                if random.random_range(0..LOSSES) == 0 {
                    let lost = if random.random() {
                        LOST_COMMIT_REPLY
                    } else {
                        LOST_PACKET
                    };
                    lost.arm(rig, random);
                }
                let pause = Duration::from_micros(random.random_range(0..PAUSE));
                if !rig.pause(pause).await {
                    break;
                }
                let Ok(running) = running(&mut administrator, &rig.database).await else {
                    break;
                };
                let spares = spares_commits(rig);
                for (session, kind) in running {
                    if spares && kind == END {
                        continue;
                    }
                    // It may have ended by itself.
                    let kill = format!("KILL QUERY {session}");
                    if within(crate::bank::run(&mut administrator, &kill))
                        .await
                        .is_ok()
                    {
                        rig.count(kind);
                    }
                }
            }
            // Each query that it killed is counted by its kind.
            Ok(false)
        })
    }
}

/// Whether it leaves sessions alone that commit: in a group of MySQL in which all members take writes. There a member may stand still for ever
/// afterwards, which is a fault of the server that docs/clusters.md tells of.
fn spares_commits(rig: &Rig) -> bool {
    let servers = &rig.servers;
    servers.nodes.len() > 1
        && servers.topology == Topology::AllWrite
        && servers.kind == "group-replication"
}

/// The sessions of a database that run something, and what. Not those of the server itself: a member of a group whose applier is killed
/// leaves the group.
async fn running(
    administrator: &mut MySqlConnection,
    database: &str,
) -> Result<Vec<(u64, &'static str)>, sqlx::Error> {
    let sql = format!(
        "SELECT CAST(ID AS UNSIGNED), COALESCE(LEFT(INFO, 2000), '') FROM information_schema.PROCESSLIST \
         WHERE DB = '{database}' AND COMMAND IN ('Query', 'Execute', 'Prepare') AND ID <> CONNECTION_ID() \
         AND USER NOT IN ('system user', 'event_scheduler')"
    );
    let query = sqlx::raw_sql(AssertSqlSafe(sql));
    let rows = within(query.fetch_all(administrator)).await?;
    rows.iter()
        .map(|row| {
            let text: String = row.try_get_unchecked(1)?;
            Ok((row.try_get_unchecked(0)?, kind_of(&text)))
        })
        .collect()
}

/// What a statement is about, as far as its text says: the server may show the whole packet, or the statement of it that runs.
fn kind_of(text: &str) -> &'static str {
    let text = text.trim_start();
    let begins = |words: &[&str]| words.iter().any(|word| text.starts_with(word));
    if text.contains("t_tag_lock_lane") {
        "kill-query: lane"
    } else if text.contains("t_tag_lock") {
        "kill-query: rows"
    } else if begins(&["UPDATE account", "INSERT INTO transfer"]) {
        "kill-query: transfer"
    } else if begins(&["COMMIT", "ROLLBACK"]) {
        END
    } else if begins(&["BEGIN NOT ATOMIC", "EXECUTE"]) {
        "kill-query: prepared"
    } else {
        "kill-query: session"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_told_apart() {
        for (text, kind) in [
            ("INSERT INTO t_tag_lock_lane (id,seq) VALUES (1,1)", "lane"),
            ("UPDATE t_tag_lock SET count=1", "rows"),
            ("UPDATE account SET first = first - 1", "transfer"),
            ("COMMIT", "end"),
            (
                "BEGIN NOT ATOMIC EXECUTE tag_lock_1 USING x'00'",
                "prepared",
            ),
            ("SET SESSION sql_mode=''", "session"),
        ] {
            assert_eq!(kind_of(text), format!("kill-query: {kind}"));
        }
    }
}
