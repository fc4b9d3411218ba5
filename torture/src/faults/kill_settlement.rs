//! An operator kills settlements as soon as they run, again and again for a moment. They are seldom and short: packets and replies are
//! lost meanwhile, so that there are many, and the server itself looks for them, without a pause.

use std::time::Duration;

use futures_util::future::{BoxFuture, join};
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

use super::packet::{LOST_COMMIT_REPLY, LOST_PACKET};
use super::{Failure, Fault, Lane, Rig};
use crate::server::within;

pub(super) struct KillSettlement;

/// The shortest and the longest time for which it goes on, in milliseconds.
const TIME: std::ops::Range<u64> = 500..1_500;
/// The longest pause between two losses, in milliseconds.
const PAUSE: u64 = 10;

impl Fault for KillSettlement {
    fn name(&self) -> &'static str {
        "kill-settlement"
    }

    fn lane(&self) -> Lane {
        Lane::Query
    }

    fn weight(&self) -> u32 {
        1
    }

    /// It needs compound statements.
    fn is_possible(&self, rig: &Rig) -> bool {
        rig.servers.is_mariadb
    }

    fn strike<'a>(
        &'a self,
        rig: &'a Rig,
        random: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        Box::pin(async move {
            let node = rig.any_writer(random);
            let time = Duration::from_millis(random.random_range(TIME));
            let kill = kill_for(time, &rig.database);
            // The server may be away, and may go away.
            let killing = within(node.numbers(&kill));
            let losing = async {
                let end = tokio::time::Instant::now() + time;
                while tokio::time::Instant::now() < end {
                    let lost = if random.random() {
                        LOST_COMMIT_REPLY
                    } else {
                        LOST_PACKET
                    };
                    lost.arm(rig, random);
                    let pause = Duration::from_millis(random.random_range(0..PAUSE));
                    if !rig.pause(pause).await {
                        break;
                    }
                }
            };
            let (killed, ()) = join(killing, losing).await;
            for _ in 0..killed
                .ok()
                .and_then(|killed| killed.first().copied())
                .unwrap_or(0)
            {
                rig.count(self.name());
            }
            Ok(false)
        })
    }
}

/// Kills for so long what says of a batch that it is fenced, and answers how many times. What it finds may have ended by itself.
fn kill_for(time: Duration, database: &str) -> String {
    format!(
        "BEGIN NOT ATOMIC \
           DECLARE session BIGINT UNSIGNED; \
           DECLARE killed BIGINT UNSIGNED DEFAULT 0; \
           DECLARE until DATETIME(6) DEFAULT SYSDATE(6) + INTERVAL {} MICROSECOND; \
           DECLARE CONTINUE HANDLER FOR SQLSTATE 'HY000' SET killed = killed - 1; \
           WHILE SYSDATE(6) < until DO \
             SET session = (SELECT MAX(ID) FROM information_schema.PROCESSLIST \
                            WHERE DB = '{database}' AND INFO LIKE '%;fenced%' AND ID <> CONNECTION_ID()); \
             IF session IS NOT NULL THEN \
               SET killed = killed + 1; \
               KILL QUERY session; \
             END IF; \
           END WHILE; \
           SELECT killed; \
         END",
        time.as_micros()
    )
}
