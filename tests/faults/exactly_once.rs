//! Connections cut around the `COMMIT`: what was acknowledged happened, once, and nothing else did.
//!
//! `TAG_LOCK_TEST_ROUNDS` is the number of cuts (300 by default), `TAG_LOCK_TEST_SEED` draws them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use crate::support::ledger::{Load, rounds, seed};
use crate::support::proxy::{
    Command, Fault, FaultKind, Gate, Hold, Proxy, RandomFaults, Upstream, once,
};
use crate::support::{
    TestDatabase, connected, is_batch, no_deadlocks_since, number, server_deadlocks,
};
use sqlx::mysql::MySqlConnectOptions;
use tag_lock::{AtClose, Error, LockClient};
use tokio::task::JoinSet;

/// No request's time is over while the test runs.
const PATIENT: Duration = Duration::from_secs(1_800);

fn connect_options(proxy: &Proxy, database: &TestDatabase) -> MySqlConnectOptions {
    proxy.url(&database.url).parse().expect("a URL")
}

async fn patient(proxy: &Proxy, database: &TestDatabase) -> LockClient {
    LockClient::builder(connect_options(proxy, database))
        .request_timeout(PATIENT)
        .connect()
        .await
        .expect("connects")
}

/// Batches, settlements and registrations of lanes are cut at random while all kinds of requests run.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_cuts_around_the_commit() {
    let (rounds, seed) = (rounds(300), seed());
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let clients = [
        patient(&proxy, &database).await,
        patient(&proxy, &database).await,
    ];
    let deadlocks = server_deadlocks().await;
    let mut load = Load::start(&clients, seed);
    let faults = RandomFaults::new(seed)
        .only(Command::contains_commit)
        .with(0.06, Fault::CutAfter(Upstream::Forwarded))
        .with(0.06, Fault::CutAfter(Upstream::FirstByte))
        .with(0.06, Fault::CutAfter(Upstream::Replied))
        .with(0.06, Fault::CutBefore)
        .with(0.02, Fault::Truncate)
        .with(0.02, Fault::TruncateReply)
        .with(0.02, Fault::Reset);
    proxy.on_command(faults.into_hook());
    load.until(|| proxy.counters().all_faults() >= rounds).await;
    proxy.pass_all();
    let ledger = load.finish().await;
    for client in &clients {
        client.close(AtClose::Release).await;
    }
    ledger.check(&database).await;
    let counters = proxy.counters();
    println!(
        "{:?}, {} tickets, {} holds",
        counters.faults,
        ledger.tickets.len(),
        ledger.holds
    );
    assert_eq!(counters.unreadable, 0, "the proxy saw every command");
    no_deadlocks_since(deadlocks).await;
    database.remove().await;
}

/// Each way to lose a reply, for one addition each: the caller does not notice.
#[tokio::test]
async fn each_cut_is_healed() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let client = patient(&proxy, &database).await;
    let counter = client.counter("cuts");
    let mut expected = 0;
    for fault in [
        Fault::CutAfter(Upstream::Forwarded),
        Fault::CutAfter(Upstream::FirstByte),
        Fault::CutAfter(Upstream::Replied),
        Fault::TruncateReply,
        Fault::CutBefore,
        Fault::Truncate,
        Fault::Reset,
    ] {
        let faults = proxy.counters().all_faults();
        proxy.on_command(once(is_batch, fault.clone()));
        expected += 1;
        assert_eq!(counter.add(1).await.expect("healed"), expected, "{fault:?}");
        assert_eq!(proxy.counters().all_faults(), faults + 1, "{fault:?}");
        assert_eq!(counter.get().await.expect("a value"), expected, "{fault:?}");
    }
    database.remove().await;
}

/// With the server out of reach for longer than the request's time, the caller is told that the outcome is unknown;
/// it is settled all the same, so that nothing changes any more when the packet arrives at last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_outcome_is_settled_in_the_background() {
    unknown_outcome(Settled::BeforeClose).await;
}

/// The same, when the client is closed before it could reach the server again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_settles_an_unknown_outcome() {
    unknown_outcome(Settled::ByClose).await;
}

#[derive(PartialEq, Eq)]
enum Settled {
    BeforeClose,
    ByClose,
}

async fn unknown_outcome(settled: Settled) {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    // Short, since the test waits for their ends; longer than a machine may stand still.
    let builder = LockClient::builder(connect_options(&proxy, &database))
        .packet_timeout(Duration::from_secs(1))
        .request_timeout(Duration::from_secs(5));
    let client = connected(builder).await;
    let cut_off = Arc::new(AtomicBool::new(false));
    let gate = Gate::new();
    let (hook_cut_off, hook_gate) = (Arc::clone(&cut_off), gate.clone());
    proxy.on_command(move |command| {
        if !hook_cut_off.load(Ordering::SeqCst) {
            Fault::Pass
        } else if is_batch(command) {
            Fault::HoldCommand(Hold::Until(hook_gate.clone()))
        } else {
            Fault::CutBefore
        }
    });
    let acknowledged = Arc::new(AtomicI64::new(0));
    let start = client.counter("unknown").add(1).await.expect("adds");
    cut_off.store(true, Ordering::SeqCst);
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let (client, acknowledged) = (client.clone(), Arc::clone(&acknowledged));
        tasks.spawn(async move {
            let counter = client.counter("unknown");
            // Every kind of request on a counter has a time limit.
            let result = match task % 3 {
                0 => counter.add(1).await.map(drop),
                1 => counter.add_within(1, 0..).await.map(drop),
                _ => counter.add_once(&format!("{task}"), 1).await.map(drop),
            };
            match result {
                Ok(()) => {
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }
                Err(Error::OutcomeUnknown { .. } | Error::Unreachable { .. }) => {}
                Err(other) => panic!("{other:?}"),
            }
        });
    }
    gate.reached().await;
    let all = async {
        while tasks
            .join_next()
            .await
            .transpose()
            .expect("no panic")
            .is_some()
        {}
    };
    // Far more than the request's time: a request that has no limit waits as long as the server is away.
    tokio::time::timeout(Duration::from_secs(120), all)
        .await
        .expect("each request ends in its time");
    assert_eq!(acknowledged.load(Ordering::SeqCst), 0);

    cut_off.store(false, Ordering::SeqCst);
    let held = proxy.counters().faults(FaultKind::HoldCommand);
    assert!(held > 0, "a batch is on its way");
    let held = i64::try_from(held).expect("few");
    let mut connection = database.connection().await;
    let fenced = "SELECT COUNT(*) FROM t_tag_lock_lane WHERE results LIKE '%;fenced'";
    // The client still runs, but nobody asks it for anything.
    while settled == Settled::BeforeClose && number(&mut connection, fenced).await < held {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    client.close(AtClose::Release).await;
    let sql = "SELECT count FROM t_tag_lock WHERE kind = 2 AND lock_name = 'unknown'";
    assert_eq!(number(&mut connection, sql).await, start, "nothing ran");
    gate.open();
    proxy.all_closed().await;
    assert_eq!(
        number(&mut connection, sql).await,
        start,
        "nothing runs late"
    );
    database.remove().await;
}
