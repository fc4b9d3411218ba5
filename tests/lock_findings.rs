//! Experiments that show defects of locks, leases and the client; each prints what it saw. To run one: copy this file to tests/, then
//! `scripts/with-mysql cargo test --test lock_findings -- --exact NAME --nocapture`.
#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs
)]
mod support;
use sqlx::Connection;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::proxy::{Fault, Proxy, once};
use support::{TestDatabase, connected, is_batch, patient, run};
use tag_lock::{AtClose, Error, LockClient, LockState};
use tokio::task::JoinSet;

const S: Duration = Duration::from_secs(1);
fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

// E1: cancelling an acquire with hold_at_least leaves the lock taken though nobody ran
#[tokio::test(flavor = "multi_thread")]
async fn e01_cancel_hold() {
    let db = TestDatabase::new().await;
    let (a, b) = (db.client().await, db.client().await);
    // rows exist and connections are open
    for i in 0..60 {
        a.lock(&format!("j{i}"))
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    let mut dropped = 0;
    let mut kept = 0;
    let mut refused = 0;
    for i in 0..60u64 {
        let name = format!("j{i}");
        let fut = a.lock(&name).hold_at_least(60 * S).acquire();
        match tokio::time::timeout(Duration::from_micros(i * 50), fut).await {
            Ok(guard) => {
                drop(guard);
                continue;
            }
            Err(_) => dropped += 1,
        }
        tokio::time::sleep(ms(60)).await;
        let info = b.inspect(&name).await.unwrap().unwrap();
        if info.state == LockState::Kept {
            kept += 1;
            refused += u32::from(b.lock(&name).try_acquire().await.unwrap().is_none());
            if kept == 1 {
                println!(
                    "E1 example: {:?} remaining {:?}",
                    info.state, info.remaining
                );
            }
        }
    }
    println!(
        "E1: futures dropped {dropped}, lock kept for a minute afterwards {kept}, other client refused {refused}"
    );
}

// E2
#[tokio::test(flavor = "multi_thread")]
async fn e02_token_cancel() {
    let db = TestDatabase::new().await;
    let a = db.client().await;
    let guard = a.lock("l").acquire().await.unwrap();
    let view = guard.view();
    guard.cancellation_token().cancel();
    let lost = tokio::time::timeout(S, guard.lost()).await.is_ok();
    println!(
        "E2: after cancellation_token().cancel(): lost() resolves {lost}, guard.is_held {}, view.is_held {}",
        guard.is_held(),
        view.is_held()
    );
    println!("E2: release {:?}", guard.release().await);
    let ran = a
        .lock("l2")
        .run(|lease| async move {
            lease.cancellation_token().cancel();
            tokio::time::sleep(ms(50)).await;
            42
        })
        .await;
    println!("E2: run whose work cancels the token it was handed: {ran:?}");
}

// E3: order among owners of one process, and barging
#[tokio::test(flavor = "multi_thread")]
async fn e03_owner_fifo() {
    let db = TestDatabase::new().await;
    let (a, b) = (db.client().await, db.client().await);
    for owners in [false, true] {
        let mut inversions = 0;
        let mut orders = Vec::new();
        for round in 0..5 {
            let name = format!("l{round}{owners}");
            let guard = b.lock(&name).acquire().await.unwrap();
            let order = Arc::new(std::sync::Mutex::new(Vec::new()));
            let mut tasks = JoinSet::new();
            for i in 0..10 {
                let (a, order, name) = (a.clone(), Arc::clone(&order), name.clone());
                tasks.spawn(async move {
                    let mut request = a.lock(&name);
                    if owners {
                        request = request.owner(format!("o{i}"));
                    }
                    let guard = request.acquire().await.unwrap();
                    order.lock().unwrap().push(i);
                    tokio::time::sleep(ms(3)).await;
                    guard.release().await.unwrap();
                });
                tokio::time::sleep(ms(20)).await;
            }
            guard.release().await.unwrap();
            tasks.join_all().await;
            let order = order.lock().unwrap().clone();
            for x in 0..order.len() {
                for y in x + 1..order.len() {
                    inversions += u32::from(order[x] > order[y]);
                }
            }
            orders.push(order);
        }
        println!(
            "E3 owners={owners}: inversions {inversions} of {}; orders {orders:?}",
            5 * 45
        );
    }
}

async fn loop_plain(client: LockClient, end: Instant, hold: Duration) -> (u64, Duration) {
    let (mut grants, mut longest) = (0, Duration::ZERO);
    while Instant::now() < end {
        let start = Instant::now();
        let left = end.saturating_duration_since(start) + ms(200);
        match client.lock("x").wait(left).acquire().await {
            Ok(guard) => {
                longest = longest.max(start.elapsed());
                grants += 1;
                tokio::time::sleep(hold).await;
                guard.release().await.unwrap();
            }
            Err(Error::Timeout { .. }) => longest = longest.max(start.elapsed()),
            Err(error) => panic!("{error}"),
        }
    }
    (grants, longest)
}

// E4: a plain waiter against one-shot owners in another process (client)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e04_plain_against_owners() {
    for owners in [false, true] {
        let db = TestDatabase::new().await;
        let (a, b) = (db.client().await, db.client().await);
        let end = Instant::now() + 20 * S;
        let mut tasks = JoinSet::new();
        for t in 0..8 {
            let a = a.clone();
            tasks.spawn(async move {
                let mut n = 0u64;
                while Instant::now() < end {
                    let mut request = a
                        .lock("x")
                        .wait(end.saturating_duration_since(Instant::now()) + ms(200));
                    if owners {
                        request = request.owner(format!("job {t} {n}"));
                    }
                    match request.acquire().await {
                        Ok(guard) => {
                            n += 1;
                            tokio::time::sleep(ms(5)).await;
                            guard.release().await.unwrap();
                        }
                        Err(Error::Timeout { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                n
            });
        }
        let (grants, longest) = loop_plain(b, end, ms(5)).await;
        let others: u64 = tasks.join_all().await.iter().sum();
        println!(
            "E4 others use owners={owners}: plain task of client B had {grants} grants, longest wait {longest:?}; 8 tasks of client A {others}"
        );
    }
}

// E4b: a plain waiter of a lasting client against clients that live for one hold
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e04b_plain_against_short_lived_clients() {
    for short in [false, true] {
        let db = TestDatabase::new().await;
        let b = db.client().await;
        let end = Instant::now() + 20 * S;
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let url = db.url.clone();
            tasks.spawn(async move {
                let mut n = 0u64;
                let mut client = connected(patient(&url)).await;
                while Instant::now() < end {
                    match client
                        .lock("x")
                        .wait(end.saturating_duration_since(Instant::now()) + ms(200))
                        .acquire()
                        .await
                    {
                        Ok(guard) => {
                            n += 1;
                            tokio::time::sleep(ms(5)).await;
                            guard.release().await.unwrap();
                        }
                        Err(Error::Timeout { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    if short {
                        client.close(AtClose::Release).await;
                        client = connected(patient(&url)).await;
                    }
                }
                n
            });
        }
        let (grants, longest) = loop_plain(b, end, ms(5)).await;
        let others = tasks.join_all().await;
        println!(
            "E4b clients for one hold={short}: B {grants} grants, longest wait {longest:?}; 8 others {others:?}"
        );
    }
}

// E5
#[tokio::test(flavor = "multi_thread")]
async fn e05_short_wait_on_a_free_lock() {
    let db = TestDatabase::new().await;
    let (a, b) = (db.client().await, db.client().await);
    let guard = a.lock("l").acquire().await.unwrap();
    println!(
        "E5 b: {:?}",
        b.lock("l").wait(ms(300)).acquire().await.is_err()
    );
    guard.release().await.unwrap();
    for i in 0..6 {
        let free = b.inspect("l").await.unwrap().unwrap().state;
        let start = Instant::now();
        let got = a.lock("l").wait(ms(50)).acquire().await;
        println!(
            "E5 {i}: before {free:?}; wait(50ms) -> {:?} after {:?}",
            got.as_ref().map(|_| "guard").map_err(ToString::to_string),
            start.elapsed()
        );
        if let Ok(guard) = got {
            guard.release().await.unwrap();
        }
        tokio::time::sleep(ms(10)).await;
    }
}

// E6
#[tokio::test(flavor = "multi_thread")]
async fn e06_verify_extends_what_the_guard_does_not_know() {
    let db = TestDatabase::new().await;
    let a = db.client().await;
    let guard = a
        .lock("l")
        .ttl(3 * S)
        .auto_renew(false)
        .acquire()
        .await
        .unwrap();
    tokio::time::sleep(2 * S).await;
    let mut c = db.connection().await;
    let mut tx = c.begin().await.unwrap();
    guard.verify_in(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    println!(
        "E6: after verify_in+commit at 2 s: guard.remaining {:?}, table {:?}",
        guard.remaining(),
        a.inspect("l").await.unwrap().unwrap().remaining
    );
    tokio::time::sleep(ms(1200)).await;
    println!(
        "E6: at 3.2 s: guard.is_held {}, table {:?} {:?}",
        guard.is_held(),
        a.inspect("l").await.unwrap().unwrap().state,
        a.inspect("l").await.unwrap().unwrap().remaining
    );
    let mut tx = c.begin().await.unwrap();
    println!("E6: second verify_in {:?}", guard.verify_in(&mut tx).await);
}

// E7
#[tokio::test(flavor = "multi_thread")]
async fn e07_held_by_after_inner_level() {
    let db = TestDatabase::new().await;
    let a = connected(patient(&db.url).holder("machine-A")).await;
    let b = connected(patient(&db.url).holder("machine-B")).await;
    let outer = a
        .lock("l")
        .owner("o")
        .description("outer")
        .acquire()
        .await
        .unwrap();
    b.lock("l")
        .owner("o")
        .description("inner")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    b.close(AtClose::Release).await;
    let info = a.inspect("l").await.unwrap().unwrap();
    println!(
        "E7: A alone holds (depth {}), inspect says held_by {:?} ({:?})",
        info.depth, info.held_by, info.description
    );
    outer.release().await.unwrap();
}

// E8
#[tokio::test(flavor = "multi_thread")]
async fn e08_force_release_of_expired() {
    let db = TestDatabase::new().await;
    let a = db.client().await;
    let guard = a
        .lock("l")
        .ttl(ms(200))
        .auto_renew(false)
        .acquire()
        .await
        .unwrap();
    tokio::time::sleep(ms(500)).await;
    let info = a.inspect("l").await.unwrap().unwrap();
    println!(
        "E8: inspect {:?} depth {}; force_release {:?}",
        info.state,
        info.depth,
        a.force_release("l").await
    );
    println!("E8: release of the guard: {:?}", guard.release().await);
}

// E9: renewals of one row under load
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e09_levels_under_load() {
    let db = TestDatabase::new().await;
    let client = connected(
        tag_lock::LockClient::builder(db.url.parse().unwrap())
            .request_timeout(120 * S)
            .packet_timeout(30 * S),
    )
    .await;
    let ttl = 5 * S;
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let mut load = JoinSet::new();
    for i in 0..50_000 {
        let (client, stop, done) = (client.clone(), Arc::clone(&stop), Arc::clone(&done));
        load.spawn(async move {
            let name = format!("c{i}");
            while !stop.load(Ordering::Relaxed) {
                client.counter(&name).add(1).await.unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tokio::time::sleep(20 * S).await;
    let mut levels = Vec::new();
    let mut plain = Vec::new();
    for i in 0..8 {
        plain.push(
            client
                .lock(&format!("plain {i}"))
                .ttl(ttl)
                .acquire()
                .await
                .unwrap(),
        );
        levels.push(
            client
                .lock("owned")
                .owner("o")
                .ttl(ttl)
                .acquire()
                .await
                .unwrap(),
        );
    }
    let before = done.load(Ordering::Relaxed);
    for second in 0..25 {
        tokio::time::sleep(S).await;
        let held =
            |guards: &Vec<tag_lock::LockGuard>| guards.iter().filter(|g| g.is_held()).count();
        if second % 3 == 0 || held(&levels) < 8 {
            println!(
                "E9 {second} s: 8 locks: held {}, 8 levels of one: held {}; min remaining {:?} / {:?}; {} adds",
                held(&plain),
                held(&levels),
                plain.iter().map(|g| g.remaining()).min().unwrap(),
                levels.iter().map(|g| g.remaining()).min().unwrap(),
                done.load(Ordering::Relaxed) - before
            );
        }
        if held(&levels) == 0 {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    load.join_all().await;
}

// E10
#[tokio::test(flavor = "multi_thread")]
async fn e10_close_cancelled() {
    for cancel in [false, true] {
        let db = TestDatabase::new().await;
        let client = db.client().await;
        client.counter("c").add(1).await.unwrap();
        let mut admin = db.connection().await;
        run(&mut admin, "FLUSH TABLES WITH READ LOCK").await;
        let add = tokio::spawn({
            let client = client.clone();
            async move { client.counter("c").add(1).await }
        });
        tokio::time::sleep(ms(200)).await;
        let unlock = tokio::spawn(async move {
            tokio::time::sleep(4 * S).await;
            run(&mut admin, "UNLOCK TABLES").await;
        });
        if cancel {
            println!(
                "E10 first close in 300 ms: {:?}",
                tokio::time::timeout(ms(300), client.close(AtClose::Release))
                    .await
                    .is_ok()
            );
        }
        let start = Instant::now();
        client.close(AtClose::Release).await;
        let took = start.elapsed();
        println!(
            "E10 cancelled before={cancel}: close returned after {took:?}; the add in flight has ended: {}",
            add.is_finished()
        );
        println!("E10 the add later: {:?}", add.await.unwrap());
        unlock.await.unwrap();
    }
}

// E10b: two concurrent closes
#[tokio::test(flavor = "multi_thread")]
async fn e10b_close_twice_at_once() {
    let db = TestDatabase::new().await;
    let client = db.client().await;
    client.counter("c").add(1).await.unwrap();
    let mut admin = db.connection().await;
    run(&mut admin, "FLUSH TABLES WITH READ LOCK").await;
    let add = tokio::spawn({
        let client = client.clone();
        async move { client.counter("c").add(1).await }
    });
    tokio::time::sleep(ms(200)).await;
    let unlock = tokio::spawn(async move {
        tokio::time::sleep(4 * S).await;
        run(&mut admin, "UNLOCK TABLES").await;
    });
    let start = Instant::now();
    let first = tokio::spawn({
        let client = client.clone();
        async move {
            client.close(AtClose::Release).await;
            start.elapsed()
        }
    });
    let second = tokio::spawn({
        let client = client.clone();
        async move {
            client.close(AtClose::Release).await;
            start.elapsed()
        }
    });
    println!(
        "E10b: closes returned after {:?} and {:?}",
        first.await.unwrap(),
        second.await.unwrap()
    );
    println!("E10b the add: {:?}", add.await.unwrap());
    unlock.await.unwrap();
}

// E11: a client that is dropped while a batch of its own is unsettled
#[tokio::test(flavor = "multi_thread")]
async fn e11_dropped_client_goes_on_settling() {
    let db = TestDatabase::new().await;
    let proxy = Proxy::before(&db.url).await.unwrap();
    let dead = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead_address = dead.local_addr().unwrap();
    let attempts = Arc::new(AtomicU64::new(0));
    tokio::spawn({
        let attempts = Arc::clone(&attempts);
        async move {
            while let Ok((socket, _)) = dead.accept().await {
                attempts.fetch_add(1, Ordering::Relaxed);
                drop(socket);
            }
        }
    });
    let client = connected(
        LockClient::builder(proxy.url(&db.url).parse().unwrap())
            .packet_timeout(ms(500))
            .request_timeout(S),
    )
    .await;
    let guard = client.lock("l").ttl(2 * S).acquire().await.unwrap();
    proxy.on_command(once(is_batch, Fault::CutBefore));
    proxy.set_upstream(dead_address);
    drop(guard);
    tokio::time::sleep(ms(100)).await;
    drop(client);
    for _ in 0..4 {
        let before = attempts.load(Ordering::Relaxed);
        tokio::time::sleep(10 * S).await;
        println!(
            "E11: no client and no guard left; attempts to connect in 10 s: {}",
            attempts.load(Ordering::Relaxed) - before
        );
    }
}

// E12: one connection goes silent
#[tokio::test(flavor = "multi_thread")]
async fn e12_one_silent_connection() {
    for ttl in [4, 6, 30] {
        let db = TestDatabase::new().await;
        let proxy = Proxy::before(&db.url).await.unwrap();
        let client = LockClient::builder(proxy.url(&db.url).parse().unwrap())
            .connect()
            .await
            .unwrap();
        let guard = client.lock("l").ttl(ttl * S).acquire().await.unwrap();
        proxy.on_command(once(is_batch, Fault::HalfOpen));
        let start = Instant::now();
        let lost = tokio::time::timeout(Duration::from_secs(u64::from(ttl) + 3), guard.lost())
            .await
            .is_ok();
        println!(
            "E12 ttl {ttl} s, packet timeout 5 s, one connection silent: lost {lost} after {:?}",
            start.elapsed()
        );
        let free = client.counter("other").add(1).await;
        println!("E12 meanwhile a counter: {free:?}");
    }
}

// E13
#[test]
fn e13_runtime_that_is_not_driven() {
    let build = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let rt = build();
    let (_db, client) = rt.block_on(async {
        let db = TestDatabase::new().await;
        let client = connected(
            LockClient::builder(db.url.parse().unwrap())
                .packet_timeout(ms(500))
                .request_timeout(S),
        )
        .await;
        (db, client)
    });
    let guard = rt.block_on(client.lock("l").ttl(S).acquire()).unwrap();
    std::thread::sleep(ms(1500));
    println!(
        "E13: synchronous program, guard after 1.5 s with ttl 1 s, auto_renew: is_held {}",
        guard.is_held()
    );
    drop(guard);
    let rt2 = build();
    let start = Instant::now();
    let (add, get) = rt2.block_on(async {
        (
            tokio::time::timeout(6 * S, client.counter("c").add(1))
                .await
                .is_err(),
            tokio::time::timeout(6 * S, client.counter("c").get())
                .await
                .is_err(),
        )
    });
    println!(
        "E13: from another runtime while the first is not driven, request_timeout 1 s: add hangs {add}, get hangs {get} ({:?})",
        start.elapsed()
    );
}

// E14
#[tokio::test(flavor = "multi_thread")]
async fn e14_extend_ok_on_a_lost_guard() {
    for _ in 0..3 {
        let db = TestDatabase::new().await;
        let a = db.client().await;
        let guard = a
            .lock("l")
            .ttl(10 * S)
            .auto_renew(false)
            .acquire()
            .await
            .unwrap();
        let start = Instant::now();
        let mut admin = db.connection().await;
        tokio::time::sleep(ms(9_400)).await;
        run(&mut admin, "FLUSH TABLES WITH READ LOCK").await;
        let unlock = tokio::spawn(async move {
            tokio::time::sleep_until((start + ms(9_900)).into()).await;
            run(&mut admin, "UNLOCK TABLES").await;
        });
        let token = guard.cancellation_token();
        let extended = guard.extend(60 * S).await;
        println!(
            "E14: extend {extended:?} at {:?}; is_held {}, token cancelled {}, table {:?}",
            start.elapsed(),
            guard.is_held(),
            token.is_cancelled(),
            a.inspect("l").await.unwrap().unwrap().remaining
        );
        unlock.await.unwrap();
    }
}

// E15
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e15_turns_need_equal_terms() {
    for kind in ["same", "description", "ttl", "owner"] {
        let db = TestDatabase::new().await;
        let a = db.client().await;
        let end = Instant::now() + 4 * S;
        let mut tasks = JoinSet::new();
        for t in 0..16u64 {
            let a = a.clone();
            tasks.spawn(async move {
                let mut n = 0u64;
                while Instant::now() < end {
                    let mut request = a.lock("x");
                    match kind {
                        "description" => request = request.description(format!("task {t}")),
                        "ttl" => request = request.ttl(Duration::from_secs(30 + t)),
                        "owner" => request = request.owner(format!("t{t}")),
                        _ => {}
                    }
                    request.acquire().await.unwrap().release().await.unwrap();
                    n += 1;
                }
                n
            });
        }
        let all = tasks.join_all().await;
        println!(
            "E15 {kind}: {} grants a second, by task least {} most {}",
            all.iter().sum::<u64>() / 4,
            all.iter().min().unwrap(),
            all.iter().max().unwrap()
        );
    }
}

// E16
#[tokio::test(flavor = "multi_thread")]
async fn e16_release_inside_own_transaction() {
    let db = TestDatabase::new().await;
    let a = LockClient::connect(&db.url).await.unwrap();
    let guard = a.lock("l").ttl(6 * S).acquire().await.unwrap();
    let mut c = db.connection().await;
    let mut tx = c.begin().await.unwrap();
    guard.verify_in(&mut tx).await.unwrap();
    let start = Instant::now();
    let released = guard.release().await;
    println!(
        "E16: release() before the commit, ttl 6 s: {released:?} after {:?}",
        start.elapsed()
    );
    tx.commit().await.unwrap();
    println!(
        "E16: table {:?}",
        a.inspect("l").await.unwrap().unwrap().state
    );
    // and a try_acquire of the same process meanwhile
    let guard = a.lock("m").ttl(30 * S).acquire().await.unwrap();
    let mut tx = c.begin().await.unwrap();
    guard.verify_in(&mut tx).await.unwrap();
    drop(guard);
    let start = Instant::now();
    let tried = a.lock("m").try_acquire().await;
    println!(
        "E16: try_acquire after the guard was dropped with its transaction open: {:?} after {:?}",
        tried.map(|g| g.is_some()),
        start.elapsed()
    );
}

// E17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e17_far_away() {
    for each_way in [0, 10, 40, 75, 120] {
        let db = TestDatabase::new().await;
        let proxy = Proxy::before(&db.url).await.unwrap();
        let near = db.client().await;
        let far = connected(patient(&proxy.url(&db.url))).await;
        far.lock("warm")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        proxy.set_delay(ms(each_way), ms(each_way));
        let end = Instant::now() + 15 * S;
        let mut tasks = JoinSet::new();
        for (which, client) in [("near", near), ("far", far)] {
            for _ in 0..4 {
                let client = client.clone();
                tasks.spawn(async move { (which, loop_plain(client, end, ms(2)).await) });
            }
        }
        let all = tasks.join_all().await;
        let sum = |which: &str| {
            all.iter()
                .filter(|(w, _)| *w == which)
                .fold((0, Duration::ZERO), |a, (_, b)| (a.0 + b.0, a.1.max(b.1)))
        };
        println!(
            "E17 {each_way} ms each way: near {:?}, far {:?} (grants, longest wait)",
            sum("near"),
            sum("far")
        );
    }
}

// E19
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e19_list_blocks_the_reader() {
    let db = TestDatabase::new().await;
    let mut c = db.connection().await;
    run(&mut c, "INSERT INTO t_tag_lock (lock_name,kind,slot,create_time,modify_time) SELECT CONCAT('name number ',seq),1,0,UTC_TIMESTAMP(6),UTC_TIMESTAMP(6) FROM seq_1_to_600000").await;
    let (a, b) = (db.client().await, db.client().await);
    for listing in [false, true] {
        let stop = Arc::new(AtomicBool::new(false));
        let lister = tokio::spawn({
            let (b, stop) = (b.clone(), Arc::clone(&stop));
            async move {
                let mut longest = Duration::ZERO;
                while listing && !stop.load(Ordering::Relaxed) {
                    let s = Instant::now();
                    let r = b.list(None, 10).await;
                    longest = longest.max(s.elapsed());
                    if let Err(e) = r {
                        println!("E19 list: {e}");
                    }
                    tokio::time::sleep(ms(1)).await;
                }
                longest
            }
        });
        let mut gaps = Vec::new();
        for _ in 0..15 {
            let guard = a.lock("x").acquire().await.unwrap();
            let waiter = tokio::spawn({
                let b = b.clone();
                async move {
                    let g = b.lock("x").acquire().await.unwrap();
                    (Instant::now(), g)
                }
            });
            tokio::time::sleep(ms(40)).await;
            guard.release().await.unwrap();
            let released = Instant::now();
            let (granted, g) = waiter.await.unwrap();
            gaps.push(granted.saturating_duration_since(released));
            g.release().await.unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        gaps.sort();
        println!(
            "E19 listing={listing}: release to grant median {:?} longest {:?}; longest list {:?}",
            gaps[7],
            gaps[14],
            lister.await.unwrap()
        );
    }
}

// E20
#[tokio::test(flavor = "multi_thread")]
async fn e20_outage() {
    let db = TestDatabase::new().await;
    let proxy = Proxy::before(&db.url).await.unwrap();
    let client = LockClient::connect(&proxy.url(&db.url)).await.unwrap();
    client
        .lock("x")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    proxy.pause();
    let start = Instant::now();
    let first = tokio::spawn({
        let client = client.clone();
        async move {
            let s = Instant::now();
            let r = client.lock("x").wait(ms(500)).acquire().await;
            (r.map(|_| ()).map_err(|e| e.to_string()), s.elapsed())
        }
    });
    tokio::time::sleep(ms(100)).await;
    let tried = client.lock("x").try_acquire().await;
    println!(
        "E20: server silent; try_acquire beside another attempt: {:?} after {:?} (the lock is free)",
        tried.map(|g| g.is_some()),
        start.elapsed()
    );
    println!("E20: wait(500ms): {:?}", first.await.unwrap());
    proxy.resume();
}

// E23
#[tokio::test(flavor = "multi_thread")]
async fn e23_release_in_and_is_held() {
    let db = TestDatabase::new().await;
    let (a, b) = (db.client().await, db.client().await);
    let guard = a.lock("l").ttl(30 * S).acquire().await.unwrap();
    let view = guard.view();
    let mut c = db.connection().await;
    let mut tx = c.begin().await.unwrap();
    guard.release_in(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let other = b.lock("l").acquire().await.unwrap();
    tokio::time::sleep(ms(500)).await;
    println!(
        "E23: released in a committed transaction, another holds: guard.is_held {}, view.is_held {}, remaining {:?}",
        guard.is_held(),
        view.is_held(),
        guard.remaining()
    );
    println!("E23: guard.release {:?}", guard.release().await);
    drop(other);
}

// E24: many owners of one process want one lock
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e24_many_owners() {
    for (owners, n) in [(false, 200), (true, 50), (true, 100), (true, 200)] {
        let db = TestDatabase::new().await;
        let proxy = Proxy::before(&db.url).await.unwrap();
        let client = connected(patient(&proxy.url(&db.url))).await;
        client
            .lock("x")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        let before = proxy.round_trips();
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for i in 0..n {
            let client = client.clone();
            tasks.spawn(async move {
                let mut request = client.lock("x").ttl(2 * S);
                if owners {
                    request = request.owner(format!("o{i}"));
                }
                let guard = request.acquire().await.unwrap();
                tokio::time::sleep(ms(1)).await;
                guard.release().await
            });
        }
        let all = tasks.join_all().await;
        println!(
            "E24 owners={owners} {n} tasks once each: {:?}, {} round trips, failed releases {}",
            start.elapsed(),
            proxy.round_trips() - before,
            all.iter().filter(|r| r.is_err()).count()
        );
    }
}

// E25: a crashed level of an owner that goes on
#[tokio::test(flavor = "multi_thread")]
async fn e25_leaked_level() {
    let db = TestDatabase::new().await;
    let (a, b, c) = (db.client().await, db.client().await, db.client().await);
    let ttl = 2 * S;
    let outer = a.lock("l").owner("o").ttl(ttl).acquire().await.unwrap();
    let inner = b.lock("l").owner("o").ttl(ttl).acquire().await.unwrap();
    // b dies: nobody renews, nobody releases
    b.close(AtClose::Keep).await;
    std::mem::forget(inner);
    outer.release().await.unwrap();
    let start = Instant::now();
    let waiter = tokio::spawn(async move {
        let r = c.lock("l").wait(10 * S).acquire().await;
        (r.map(|_| ()).map_err(|e| e.to_string()), start.elapsed())
    });
    for _ in 0..14 {
        tokio::time::sleep(ms(700)).await;
        if let Ok(Some(guard)) = a.lock("l").owner("o").ttl(ttl).try_acquire().await {
            guard.release().await.unwrap();
        }
    }
    println!(
        "E25: another owner waits while o enters and leaves every 0.7 s (ttl 2 s): {:?}",
        waiter.await.unwrap()
    );
}

// E26: a panic in a lane (a tracing writer that fails once)
struct Panics;
static PANIC: AtomicBool = AtomicBool::new(false);
impl std::io::Write for Panics {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        if String::from_utf8_lossy(buffer).contains("a batch was committed")
            && PANIC.swap(false, Ordering::SeqCst)
        {
            panic!("a writer of logs panics once");
        }
        Ok(buffer.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
#[tokio::test(flavor = "multi_thread")]
async fn e26_panic_in_a_lane() {
    let db = TestDatabase::new().await;
    let a = db.client().await;
    let mut guards = Vec::new();
    for i in 0..40 {
        guards.push(
            a.lock(&format!("held {i}"))
                .ttl(3 * S)
                .acquire()
                .await
                .unwrap(),
        );
    }
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(|| Panics)
        .init();
    PANIC.store(true, Ordering::SeqCst);
    let first = a.counter("c").add(1).await;
    println!("E26 the request in the batch: {first:?}");
    tokio::time::sleep(5 * S).await;
    let mut errors = std::collections::BTreeMap::new();
    for i in 0..40 {
        let r = a.lock(&format!("new {i}")).try_acquire().await;
        *errors
            .entry(
                r.map(|_| "granted".to_owned())
                    .unwrap_or_else(|e| e.to_string()),
            )
            .or_insert(0) += 1;
    }
    println!(
        "E26 afterwards, 40 names: {errors:?}; of 40 leases with renewal still held {}",
        guards.iter().filter(|g| g.is_held()).count()
    );
}

// E24b: leases lost although renewed, behind the acquires of the same process
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f24b_owners_lose_leases() {
    for (owners, ttl_ms, n) in [(false, 1_000, 400), (true, 1_000, 400), (true, 2_000, 400)] {
        let db = TestDatabase::new().await;
        let client = connected(patient(&db.url)).await;
        client
            .lock("x")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        let end = Instant::now() + 40 * S;
        let mut tasks = JoinSet::new();
        for i in 0..n {
            let client = client.clone();
            tasks.spawn(async move {
                let (mut grants, mut lost, mut other, mut slowest) =
                    (0, 0, String::new(), Duration::ZERO);
                while Instant::now() < end {
                    let mut request = client
                        .lock("x")
                        .ttl(ms(ttl_ms))
                        .wait(end.saturating_duration_since(Instant::now()));
                    if owners {
                        request = request.owner(format!("o{i}"));
                    }
                    let Ok(guard) = request.acquire().await else {
                        continue;
                    };
                    grants += 1;
                    tokio::time::sleep(ms(20)).await;
                    let start = Instant::now();
                    match guard.release().await {
                        Ok(()) => {}
                        Err(Error::LockLost { .. }) => lost += 1,
                        Err(e) => other = e.to_string(),
                    }
                    slowest = slowest.max(start.elapsed());
                }
                (grants, lost, other, slowest)
            });
        }
        let all = tasks.join_all().await;
        println!(
            "F24b owners={owners} {n} tasks, ttl {ttl_ms} ms, work 20 ms, 40 s: {} grants, {} LockLost on release, other {:?}, slowest release {:?}",
            all.iter().map(|a| a.0).sum::<u64>(),
            all.iter().map(|a| a.1).sum::<u64>(),
            all.iter().map(|a| &a.2).find(|a| !a.is_empty()),
            all.iter().map(|a| a.3).max().unwrap()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f31_levels_share_one_lease() {
    let db = TestDatabase::new().await;
    let a = db.client().await;
    let outer = a.lock("l").owner("o").ttl(3 * S).acquire().await.unwrap();
    let inner = a
        .lock("l")
        .owner("o")
        .ttl(ms(500))
        .auto_renew(false)
        .acquire()
        .await
        .unwrap();
    let token = inner.cancellation_token();
    tokio::time::sleep(ms(800)).await;
    println!(
        "F31: outer is_held {}, inner (auto_renew(false), 500 ms) is_held {}, lost {}, table {:?}; inner.release {:?}",
        outer.is_held(),
        inner.is_held(),
        token.is_cancelled(),
        a.inspect("l").await.unwrap().unwrap().remaining,
        inner.release().await
    );
}

#[test]
fn f34_token_after_the_runtime() {
    let build = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    };
    let rt = build();
    let guard = rt.block_on(async {
        let db = TestDatabase::new().await;
        let client = db.client().await;
        client.lock("l").ttl(S).acquire().await.unwrap()
    });
    let token = guard.cancellation_token();
    drop(rt);
    let rt2 = build();
    rt2.block_on(async {
        tokio::time::sleep(ms(2_500)).await;
        println!(
            "F34: 2.5 s after the client's runtime ended (ttl 1 s): is_held {}, token cancelled {}",
            guard.is_held(),
            token.is_cancelled()
        );
    });
}
