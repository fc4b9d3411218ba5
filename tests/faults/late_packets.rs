//! Packets that arrive long after their client gave them up, and settlements whose replies are lost.
//!
//! `TAG_LOCK_TEST_ROUNDS` is the number of packets that the storm delays (200 by default).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::ledger::{Load, TTL, rounds, seed};
use crate::support::proxy::{Command, Fault, FaultKind, Gate, Hold, Proxy, Upstream, once};
use crate::support::{
    TestDatabase, connected, is_batch, is_mariadb, no_deadlocks_since, number, run,
    server_deadlocks,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tag_lock::{AtClose, LockClient, LockState};

/// How long a client waits for a packet before it gives it up. Short, so that many can be late.
const PACKET: Duration = Duration::from_millis(300);

fn contains(command: &Command, text: &[u8]) -> bool {
    let sql = command.sql().unwrap_or_default();
    sql.windows(text.len()).any(|part| part == text)
}

fn is_settlement(command: &Command) -> bool {
    contains(command, b"seq=GREATEST(seq,")
}

struct Rig {
    database: TestDatabase,
    proxy: Proxy,
    client: LockClient,
}

impl Rig {
    async fn start() -> Self {
        let database = TestDatabase::new().await;
        let proxy = Proxy::before(&database.url).await.expect("a proxy");
        proxy.ignore_kills(true);
        let client = hasty(&proxy, &database).await;
        Self {
            database,
            proxy,
            client,
        }
    }
}

async fn hasty(proxy: &Proxy, database: &TestDatabase) -> LockClient {
    let builder = LockClient::builder(proxy.url(&database.url).parse().expect("a URL"))
        .packet_timeout(PACKET)
        .request_timeout(Duration::from_secs(1_800));
    connected(builder).await
}

/// What a ghost could change of counters, and what it must not.
#[tokio::test]
async fn a_late_addition_changes_nothing() {
    let rig = Rig::start().await;
    let counter = rig.client.counter("late");
    for (round, follow_up) in [(0, false), (1, true)] {
        let base = round * 100;
        counter.set(base).await.expect("sets");
        let gate = Gate::new();
        let hold = Fault::HoldCommand(Hold::Until(gate.clone()));
        rig.proxy.on_command(once(is_batch, hold));
        // Given up, settled, and run again under another number.
        assert_eq!(counter.add(1).await.expect("adds"), base + 1);
        if follow_up {
            for number in 2..=10 {
                assert_eq!(counter.add(1).await.expect("adds"), base + number);
            }
        }
        let before = counter.get().await.expect("a value");
        gate.open();
        gate.answered().await;
        assert_eq!(counter.get().await.expect("a value"), before);
        assert_eq!(counter.add(1).await.expect("adds"), before + 1);
    }
    rig.database.remove().await;
}

#[tokio::test]
async fn a_late_set_or_exchange_or_bounded_addition_changes_nothing() {
    let rig = Rig::start().await;
    let counter = rig.client.counter("late");
    for round in 0..3 {
        counter.set(5).await.expect("sets");
        let gate = Gate::new();
        let hold = Fault::HoldCommand(Hold::Until(gate.clone()));
        rig.proxy.on_command(once(is_batch, hold));
        match round {
            0 => assert_eq!(counter.set(7).await.expect("sets"), 5),
            1 => assert_eq!(counter.compare_exchange(5, 7).await.expect("sets"), Ok(5)),
            _ => assert_eq!(counter.add_within(2, 0..=9).await.expect("adds"), Some(7)),
        }
        // As if nothing had happened since, so that a late packet would find what it wants.
        counter.set(5).await.expect("sets");
        gate.open();
        gate.answered().await;
        assert_eq!(counter.get().await.expect("a value"), 5, "round {round}");
    }
    rig.database.remove().await;
}

#[tokio::test]
async fn a_late_acquire_or_release_changes_nothing() {
    let rig = Rig::start().await;
    let lock = || rig.client.lock("late").ttl(TTL);
    // An acquire that comes when the lock is free again.
    let gate = Gate::new();
    let hold = Fault::HoldCommand(Hold::Until(gate.clone()));
    rig.proxy.on_command(once(is_batch, hold));
    let guard = lock().acquire().await.expect("acquires");
    let first = guard.fencing_token();
    guard.release().await.expect("releases");
    gate.open();
    gate.answered().await;
    let info = rig
        .client
        .inspect("late")
        .await
        .expect("a look")
        .expect("a row");
    assert_eq!(info.state, LockState::Free, "a late acquire");

    // A release that comes when somebody else holds the lock.
    let guard = lock().acquire().await.expect("acquires");
    assert!(guard.fencing_token() > first);
    let gate = Gate::new();
    let hold = Fault::HoldCommand(Hold::Until(gate.clone()));
    rig.proxy.on_command(once(is_batch, hold));
    guard.release().await.expect("releases");
    let guard = lock().acquire().await.expect("acquires");
    gate.open();
    gate.answered().await;
    let info = rig
        .client
        .inspect("late")
        .await
        .expect("a look")
        .expect("a row");
    assert_eq!(info.state, LockState::Held, "a late release");
    guard.release().await.expect("still held");
    rig.database.remove().await;
}

/// Whether the batch has run or not: losing the reply to its settlement, however often, changes nothing.
#[tokio::test]
async fn a_lost_reply_to_the_settlement_changes_nothing() {
    let rig = Rig::start().await;
    let counter = rig.client.counter("settled");
    let mut expected = 0;
    let ways = [
        Fault::CutAfter(Upstream::Forwarded),
        Fault::CutAfter(Upstream::FirstByte),
        Fault::CutAfter(Upstream::Replied),
        Fault::TruncateReply,
        Fault::CutBefore,
    ];
    for batch in [
        Fault::CutBefore,
        Fault::CutAfter(Upstream::Forwarded),
        Fault::CutAfter(Upstream::Replied),
    ] {
        for settlement in &ways {
            let cut_batch = once(is_batch, batch.clone());
            let (settlement_fault, seen) = (settlement.clone(), AtomicU64::new(0));
            rig.proxy.on_command(move |command| {
                if is_settlement(command) && seen.fetch_add(1, Ordering::Relaxed) < 3 {
                    settlement_fault.clone()
                } else {
                    cut_batch(command)
                }
            });
            let faults = rig.proxy.counters().all_faults();
            expected += 1;
            let value = counter.add(1).await.expect("adds");
            assert_eq!(value, expected, "{batch:?}, {settlement:?}");
            assert_eq!(rig.proxy.counters().all_faults(), faults + 4);
        }
    }
    assert_eq!(counter.get().await.expect("a value"), expected);
    rig.database.remove().await;
}

/// A settlement that says "it never ran" is undone at its `COMMIT`: only an acknowledged one may be believed, since
/// the packet still can run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_that_was_undone_is_not_believed() {
    if !is_mariadb() {
        // MySQL has nothing that stops a COMMIT and not the statements before it.
        return;
    }
    let rig = Rig::start().await;
    let mut backup = rig.database.connection().await;
    let mut killer = rig.database.connection().await;
    let gate = Gate::new();
    let hold = Fault::HoldCommand(Hold::Until(gate.clone()));
    rig.client.counter("undone").set(0).await.expect("sets");
    rig.proxy.on_command(once(is_batch, hold));
    let client = rig.client.clone();
    let adding = tokio::spawn(async move { client.counter("undone").add(1).await });
    gate.reached().await;
    for stage in ["START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT"] {
        run(&mut backup, &format!("BACKUP STAGE {stage}")).await;
    }
    let stuck = format!(
        "SELECT CAST(COALESCE(MIN(id), 0) AS SIGNED) FROM information_schema.processlist \
         WHERE db = '{}' AND info = 'COMMIT' AND time_ms > 2 * {}",
        rig.database.name,
        PACKET.as_millis()
    );
    for _ in 0..2 {
        // Its client has read what it says, and given up waiting for the end.
        let id = loop {
            let id = number(&mut killer, &stuck).await;
            if id > 0 {
                break id;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        run(&mut killer, &format!("KILL {id}")).await;
        let gone = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {id}");
        while number(&mut killer, &gone).await > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    // The packet arrives before any settlement has been committed, or behind one that has.
    gate.open();
    run(&mut backup, "BACKUP STAGE END").await;
    gate.answered().await;
    assert_eq!(adding.await.expect("a task").expect("adds"), 1);
    rig.client.close(AtClose::Release).await;
    let sql = "SELECT count FROM t_tag_lock WHERE kind = 2 AND lock_name = 'undone'";
    assert_eq!(number(&mut killer, sql).await, 1);
    rig.database.remove().await;
}

/// Batches and settlements are late at random, many at a time, under load.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_of_late_packets_and_settlers() {
    let (rounds, seed) = (rounds(200), seed());
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    proxy.ignore_kills(true);
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(hasty(&proxy, &database).await);
    }
    let deadlocks = server_deadlocks().await;
    let mut load = Load::start(&clients, seed);
    let drawn = AtomicU64::new(0);
    proxy.on_command(move |command| {
        let mut random = StdRng::seed_from_u64(seed ^ drawn.fetch_add(1, Ordering::Relaxed));
        let chance = if is_settlement(command) { 0.5 } else { 0.1 };
        if !command.contains_commit() || !random.random_bool(chance) {
            return Fault::Pass;
        }
        // Some come before their client's patience ends, most in the middle of their settlement or behind it.
        let late = PACKET.mul_f64(random.random_range(0.5..4.0));
        if random.random_bool(0.7) {
            Fault::HoldCommand(Hold::For(late))
        } else {
            Fault::HoldReply(Hold::For(late))
        }
    });
    let late = || {
        let counters = proxy.counters();
        counters.faults(FaultKind::HoldCommand) + counters.faults(FaultKind::HoldReply)
    };
    load.until(|| late() >= rounds).await;
    proxy.pass_all();
    let ledger = load.finish().await;
    for client in &clients {
        client.close(AtClose::Release).await;
    }
    // The last ghosts have run.
    proxy.all_closed().await;
    ledger.check(&database).await;
    println!(
        "{:?}, {} tickets",
        proxy.counters().faults,
        ledger.tickets.len()
    );
    no_deadlocks_since(deadlocks).await;
    database.remove().await;
}
