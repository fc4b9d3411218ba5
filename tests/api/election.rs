//! Elections: one leads, the others are told who; what a lost leader does ends before the next one begins.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::proxy::Proxy;
use crate::support::{TestDatabase, connected, eventually, patient};
use futures_util::FutureExt;
use sqlx::Connection;
use tag_lock::{AtClose, Election, Error, Leader, Leaders, LeaseView, LockClient};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

const HOUR: Duration = Duration::from_secs(3_600);
/// Far more than anything takes here, and far less than a ttl.
const SOON: Duration = Duration::from_secs(60);

fn election(client: &LockClient) -> Election {
    client.election("scheduler").ttl(HOUR)
}

async fn leader(leaders: &mut Leaders) -> Option<Leader> {
    let told = timeout(SOON, leaders.next()).await;
    told.expect("told").expect("open").expect("no error")
}

/// Skips what lies between.
async fn until_leads(leaders: &mut Leaders, value: Option<&str>) {
    loop {
        let leads = leader(leaders).await;
        if leads.as_ref().map(|leader| leader.value.as_str()) == value {
            return;
        }
    }
}

#[tokio::test]
async fn one_leads_and_the_others_are_told_who() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let mut leaders = election(&other).observe().expect("a name");
    assert_eq!(leader(&mut leaders).await, None);
    let first = election(&one).campaign("host 1").await.expect("leads");
    let told = leader(&mut leaders).await.expect("a leader");
    assert_eq!(told.value, "host 1");
    assert_eq!(told.fencing_token, first.fencing_token());
    assert!(first.is_held() && first.lost().now_or_never().is_none());
    let info = other.inspect("scheduler").await.expect("inspects");
    assert_eq!(info.expect("a row").held_by, told.held_by);
    let mut connection = database.connection().await;
    let mut tx = connection.begin().await.expect("begins");
    first.verify_in(&mut tx).await.expect("leads");
    tx.commit().await.expect("commits");
    // Candidates of the same client and of another one; each leads with its own value.
    let mut candidates = JoinSet::new();
    for (client, value) in [(&one, "host 1, again"), (&other, "host 2")] {
        let election = election(client);
        candidates.spawn(async move { (value, election.campaign(value).await.expect("leads")) });
    }
    first.resign().await.expect("led to the end");
    let mut token = told.fencing_token;
    while let Some(next) = timeout(SOON, candidates.join_next())
        .await
        .expect("at once")
    {
        let (value, leadership) = next.expect("no panic");
        until_leads(&mut leaders, Some(value)).await;
        assert!(leadership.fencing_token() > token);
        token = leadership.fencing_token();
        drop(leadership);
    }
    until_leads(&mut leaders, None).await;
    let long = election(&one).campaign("x".repeat(256)).await;
    assert!(matches!(
        long,
        Err(Error::InvalidOption {
            option: "value",
            ..
        })
    ));
    assert!(one.election("").observe().is_err());
    database.remove().await;
}

/// Candidates of several clients lead in turn: never two at once, with tokens that ascend.
#[tokio::test(flavor = "multi_thread")]
async fn there_are_never_two_leaders() {
    let database = TestDatabase::new().await;
    let (leads, last) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU64::new(0)));
    let mut candidates = JoinSet::new();
    for candidate in 0..12 {
        let client = database.client().await;
        let (leads, last) = (Arc::clone(&leads), Arc::clone(&last));
        candidates.spawn(async move {
            for _ in 0..4 {
                let work = async |leadership: LeaseView| {
                    assert_eq!(leads.fetch_add(1, Ordering::SeqCst), 0);
                    let token = leadership.fencing_token();
                    assert!(last.swap(token, Ordering::SeqCst) < token);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    leads.fetch_sub(1, Ordering::SeqCst);
                };
                let led = election(&client).lead(format!("{candidate}"), work).await;
                led.expect("leads");
            }
        });
    }
    candidates.join_all().await;
    database.remove().await;
}

/// Somebody who leads as long as it can, and what it tells.
struct Candidate {
    begun: Arc<AtomicU32>,
    dropped: Arc<AtomicU32>,
    stop: Arc<Notify>,
    leads: tokio::task::JoinHandle<Result<u64, Error>>,
}

struct Drops(Arc<AtomicU32>);

impl Drop for Drops {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Candidate {
    fn start(election: Election, value: &'static str) -> Self {
        let (begun, dropped) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let stop = Arc::new(Notify::new());
        let (begins, drops, stops) = (Arc::clone(&begun), Arc::clone(&dropped), Arc::clone(&stop));
        let leads = tokio::spawn(async move {
            let work = async |leadership: LeaseView| {
                let _drops = Drops(Arc::clone(&drops));
                begins.fetch_add(1, Ordering::SeqCst);
                stops.notified().await;
                Ok(leadership.fencing_token())
            };
            election.lead(value, work).await
        });
        Self {
            begun,
            dropped,
            stop,
            leads,
        }
    }

    async fn leads_for_the(&self, time: u32) {
        eventually("it leads", async || self.begun() >= time).await;
    }

    fn begun(&self) -> u32 {
        self.begun.load(Ordering::SeqCst)
    }

    fn dropped(&self) -> u32 {
        self.dropped.load(Ordering::SeqCst)
    }

    async fn stop(self) -> u64 {
        self.stop.notify_one();
        let led = timeout(SOON, self.leads).await.expect("stops");
        led.expect("no panic").expect("its value")
    }
}

/// A leader that is cut off: its work is dropped before another one leads, and it leads again when it can.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_leader_stops_and_leads_again() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let cut_off = connected(patient(&proxy.url(&database.url))).await;
    let other = database.client().await;
    let ttl = Duration::from_secs(3);
    let first = Candidate::start(cut_off.election("scheduler").ttl(ttl), "cut off");
    first.leads_for_the(1).await;
    proxy.refuse(true);
    proxy.cut_all();
    let second = election(&other).campaign("other").await.expect("leads");
    // More than once, if the machine stood still.
    let begun = first.begun();
    assert_eq!(first.dropped(), begun, "the work has ended before");
    proxy.refuse(false);
    let token = second.fencing_token();
    second.resign().await.expect("led to the end");
    first.leads_for_the(begun + 1).await;
    assert!(first.stop().await > token);
    // It has resigned: nobody has to wait for its lease.
    let third = election(&other).campaign("other").await.expect("leads");
    third.resign().await.expect("led to the end");
    database.remove().await;
}

/// A leader that an operator removes hears of it with its next renewal.
#[tokio::test]
async fn a_leader_that_is_removed_campaigns_again() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let candidate = Candidate::start(
        client.election("scheduler").ttl(Duration::from_secs(6)),
        "1",
    );
    candidate.leads_for_the(1).await;
    let begun = candidate.begun();
    client.force_release("scheduler").await.expect("an answer");
    candidate.leads_for_the(begun + 1).await;
    assert!(candidate.dropped() >= 1);
    candidate.stop().await;
    database.remove().await;
}

/// The work's error ends it, as its value does; it has resigned by then. A candidate that is dropped has, too, soon.
#[tokio::test]
async fn the_works_end_is_the_end() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let attempts = Mutex::new(0);
    let failed = election(&one).lead("1", async |_| {
        *attempts.lock().expect("no panic") += 1;
        Err::<(), _>(Error::OperationMismatch {
            id: "its own".to_owned(),
        })
    });
    assert!(matches!(failed.await, Err(Error::OperationMismatch { .. })));
    assert_eq!(*attempts.lock().expect("no panic"), 1);
    let free = other
        .lock("scheduler")
        .try_acquire()
        .await
        .expect("an answer");
    free.expect("it has resigned")
        .release()
        .await
        .expect("releases");

    let candidate = Candidate::start(election(&one), "1");
    candidate.leads_for_the(1).await;
    candidate.leads.abort();
    let next = timeout(SOON, election(&other).campaign("2")).await;
    let next = next.expect("at once").expect("leads");
    assert_eq!(candidate.dropped(), 1);
    // One that waits, and whose client is closed.
    let waits = Candidate::start(election(&one), "3");
    one.close(AtClose::Release).await;
    let ended = timeout(SOON, waits.leads)
        .await
        .expect("ends")
        .expect("no panic");
    assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
    next.resign().await.expect("led to the end");
    database.remove().await;
}
