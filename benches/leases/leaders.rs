//! Leaders that are killed, and leaders that resign: how long until the next one leads.

use std::time::Duration;

use tag_lock::{AtClose, LockClient};

use crate::Result;
use crate::clock::{milliseconds, nanoseconds};
use crate::database::Database;
use crate::figures::{Figures, float, percentile};
use crate::options::Options;
use crate::worker::Work;

const TTL: Duration = Duration::from_secs(2);
/// For so long a candidate waits before its leader goes.
const PATIENCE: Duration = Duration::from_millis(500);

pub(crate) async fn run(
    options: &Options,
    database: &Database,
    figures: &mut Figures,
) -> Result<()> {
    let times = options.pick(50, 8);
    eprintln!("{times} leaders resign, and {times} are killed, ttl {TTL:?}");
    let next = LockClient::connect(&database.url).await?;
    let mut resigned = Vec::new();
    let first = LockClient::connect(&database.url).await?;
    for _ in 0..times {
        let leadership = first
            .election("resigned")
            .ttl(TTL)
            .campaign("first")
            .await?;
        let candidate = campaign(&next, "resigned");
        tokio::time::sleep(PATIENCE).await;
        let left = nanoseconds();
        leadership.resign().await?;
        resigned.push(milliseconds(left, candidate.await??));
    }
    first.close(AtClose::Release).await;

    let mut killed = Vec::new();
    for _ in 0..times {
        let work = Work {
            part: "leaders",
            url: database.url.clone(),
            name: "killed".to_owned(),
            count: 1,
            time: TTL,
        };
        let mut leader = work.start()?;
        if leader.line().await?.as_deref() != Some("leads") {
            return Err("a worker did not lead".into());
        }
        let candidate = campaign(&next, "killed");
        tokio::time::sleep(PATIENCE).await;
        leader.kill()?;
        let left = nanoseconds();
        killed.push(milliseconds(left, candidate.await??));
        leader.ended().await?;
    }
    next.close(AtClose::Release).await;

    for (name, times, meaning) in [
        (
            "leader_after_resignation",
            &mut resigned,
            "from a leader's resignation to the next leader in another client",
        ),
        (
            "leader_after_kill_9",
            &mut killed,
            "from SIGKILL to the next leader, ttl 2 s",
        ),
    ] {
        for (share, of) in [(0.5, "p50"), (0.99, "p99"), (1.0, "max")] {
            figures.add(
                &format!("{name}_{of}_ms"),
                percentile(times, share)?,
                meaning,
            )?;
        }
    }
    figures.add("leaders_gone", float(times as u64), "of each kind")
}

/// Waits to lead, and resigns: when it led.
fn campaign(
    client: &LockClient,
    name: &'static str,
) -> tokio::task::JoinHandle<std::result::Result<u64, tag_lock::Error>> {
    let client = client.clone();
    tokio::spawn(async move {
        let leadership = client.election(name).ttl(TTL).campaign("next").await?;
        let leads = nanoseconds();
        leadership.resign().await?;
        Ok(leads)
    })
}

pub(crate) async fn work(work: Work) -> Result<()> {
    let client = LockClient::connect(&work.url).await?;
    let election = client.election(&work.name).ttl(work.time);
    let leadership = election.campaign("killed").await?;
    println!("leads");
    leadership.lost().await;
    Err("nobody killed this leader".into())
}
