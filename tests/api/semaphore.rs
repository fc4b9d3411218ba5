//! Permits: at most so many holders at once, over all clients; whoever waits gets whichever is free first.

use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{
    TestDatabase, connect, connected, eventually, no_deadlocks_since, patient, run,
    server_deadlocks, signal, spawn_worker,
};
use rustix::process::Signal;
use tag_lock::{AtClose, Error, LockClient, LockState, Permit, Semaphore};
use tokio::task::JoinSet;

const HOUR: Duration = Duration::from_secs(3_600);
/// Longer than any machine stands still.
const LONG: Duration = Duration::from_secs(60);

/// One whose leases a machine that stands still for a while does not lose.
fn semaphore(client: &LockClient, permits: u32) -> Semaphore {
    client.semaphore("api", permits).ttl(HOUR).wait(LONG)
}

async fn taken(client: &LockClient, permits: u32) -> Permit {
    semaphore(client, permits).acquire().await.expect("granted")
}

async fn tried(client: &LockClient, permits: u32) -> Option<Permit> {
    semaphore(client, permits)
        .try_acquire()
        .await
        .expect("an answer")
}

/// Who holds what, as an observer beside the library sees it.
#[derive(Default)]
struct Holders {
    now: AtomicI32,
    most: AtomicI32,
    slots: [AtomicBool; 16],
    tokens: [AtomicU64; 16],
    turns: AtomicU32,
}

impl Holders {
    fn begin(&self, permit: &Permit) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let slot = usize::try_from(permit.slot()).expect("small");
        let before = self.slots[slot].swap(true, Ordering::SeqCst);
        assert!(!before, "slot {slot} has two holders");
        let token = permit.fencing_token();
        let last = self.tokens[slot].swap(token, Ordering::SeqCst);
        assert!(last < token, "slot {slot}: {token} after {last}");
        self.turns.fetch_add(1, Ordering::SeqCst);
    }

    fn end(&self, permit: &Permit) {
        assert!(permit.is_held());
        let slot = usize::try_from(permit.slot()).expect("small");
        self.slots[slot].store(false, Ordering::SeqCst);
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn never_more_than_there_are_permits() {
    const PERMITS: u32 = 3;
    let database = TestDatabase::new().await;
    let deadlocks = server_deadlocks().await;
    let holders = Arc::new(Holders::default());
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let client = database.client().await;
        for task in 0..6_u64 {
            let (client, holders) = (client.clone(), Arc::clone(&holders));
            tasks.spawn(async move {
                for round in 0..10 {
                    // Some ask again and again, some leave the queue, most wait.
                    let permit = match task {
                        0 => tried(&client, PERMITS).await,
                        1 => {
                            let waits = semaphore(&client, PERMITS).wait(Duration::from_millis(20));
                            waits.acquire().await.ok()
                        }
                        _ => Some(taken(&client, PERMITS).await),
                    };
                    let Some(permit) = permit else { continue };
                    assert!(permit.slot() < PERMITS);
                    holders.begin(&permit);
                    tokio::time::sleep(Duration::from_millis((task + round) % 7)).await;
                    holders.end(&permit);
                    if (task + round) % 3 == 0 {
                        drop(permit);
                    } else {
                        permit.release().await.expect("releases");
                    }
                }
            });
        }
    }
    tasks.join_all().await;
    let most = holders.most.load(Ordering::SeqCst);
    assert!((2..=3).contains(&most), "{most} at once");
    assert!(holders.turns.load(Ordering::SeqCst) >= 160);
    no_deadlocks_since(deadlocks).await;
    // All come free again.
    let client = database.client().await;
    eventually("all are free", async || {
        semaphore(&client, PERMITS)
            .list()
            .await
            .expect("lists")
            .is_empty()
    })
    .await;
    database.remove().await;
}

#[tokio::test]
async fn what_a_semaphore_says_of_itself() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let mut permits = Vec::new();
    for client in [&one, &other, &one] {
        let described = semaphore(client, 3).description("a call");
        permits.push(described.acquire().await.expect("granted"));
    }
    let mut slots: Vec<u32> = permits.iter().map(Permit::slot).collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2]);
    assert!(
        permits
            .iter()
            .all(|permit| permit.name() == "api" && permit.is_held())
    );
    // Others, of this client and of another one, are told at once.
    for client in [&one, &other] {
        assert!(tried(client, 3).await.is_none());
        let impatient = semaphore(client, 3).wait(Duration::from_millis(300));
        let Err(Error::Timeout { name, holder, .. }) = impatient.acquire().await else {
            panic!("all are taken");
        };
        assert_eq!(name, "api");
        let holder = holder.expect("somebody");
        assert!(holder.ends_with(" (a call)"), "{holder}");
    }
    let listed = semaphore(&other, 3).list().await.expect("lists");
    let names: Vec<&str> = listed.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names, ["api#0", "api#1", "api#2"]);
    assert!(listed.iter().all(|info| info.state == LockState::Held));
    for permit in &permits {
        let slot = usize::try_from(permit.slot()).expect("small");
        assert!(listed[slot].highest_fencing_token >= permit.fencing_token());
    }
    // A lock of a slot's name, and other semaphores, are something else.
    let guard = one.lock("api#0").try_acquire().await.expect("an answer");
    guard.expect("free").release().await.expect("releases");
    assert!(one.list("", None, 10).await.expect("lists").is_empty());
    let apart = one.semaphore("api2", 1).try_acquire().await;
    apart
        .expect("an answer")
        .expect("free")
        .release()
        .await
        .expect("releases");
    // A caller who knows of more permits has more; one who knows of fewer has none.
    let fourth = tried(&one, 4).await.expect("one is left");
    assert_eq!(fourth.slot(), 3);
    assert!(tried(&other, 4).await.is_none());
    assert!(tried(&other, 2).await.is_none());
    // A release is one more for anybody.
    let freed = permits.pop().expect("three");
    let slot = freed.slot();
    freed.release().await.expect("releases");
    let permit = tried(&other, 3).await.expect("one is free");
    assert_eq!(permit.slot(), slot);
    database.remove().await;
}

#[tokio::test]
async fn what_cannot_be_a_semaphore_is_refused() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    for permits in [0, 1_025] {
        let refused = client.semaphore("api", permits).try_acquire().await;
        let Err(Error::InvalidOption { option, reason }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(option, "permits");
        assert!(reason.contains("1 to 1024"), "{reason}");
    }
    for name in ["", "a#b", "a ", &"a".repeat(251)] {
        let refused = client.semaphore(name, 1).acquire().await;
        assert!(
            matches!(refused, Err(Error::InvalidName { .. })),
            "{refused:?}"
        );
    }
    let refused = client.semaphore("a", 1).ttl(Duration::ZERO).acquire().await;
    assert!(matches!(
        refused,
        Err(Error::InvalidOption { option: "ttl", .. })
    ));
    let refused = client.semaphore("a", 2).force_release(2).await;
    assert!(matches!(
        refused,
        Err(Error::InvalidOption { option: "slot", .. })
    ));
    // The most, under the longest name.
    let longest = client.semaphore(&"é".repeat(250), 1_024);
    let permit = longest.try_acquire().await.expect("an answer");
    let permit = permit.expect("one of 1,024 is free");
    assert_eq!(longest.list().await.expect("lists").len(), 1);
    permit.release().await.expect("releases");
    database.remove().await;
}

/// Whoever waits gets the slot that becomes free first, from whichever client, by a release or by a drop.
#[tokio::test]
async fn a_waiter_gets_whichever_is_free_first() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let mut permits = vec![
        taken(&one, 3).await,
        taken(&other, 3).await,
        taken(&one, 3).await,
    ];
    for round in 0..6 {
        let waiting = semaphore(if round < 3 { &other } else { &one }, 3);
        let mut acquires = Box::pin(waiting.acquire());
        let early = tokio::time::timeout(Duration::from_millis(150), &mut acquires).await;
        assert!(early.is_err(), "all are taken");
        let first = permits.remove(round % 3);
        let slot = first.slot();
        if round % 2 == 0 {
            drop(first);
        } else {
            first.release().await.expect("releases");
        }
        let next = acquires.await.expect("granted");
        assert_eq!(next.slot(), slot);
        permits.push(next);
    }
    database.remove().await;
}

/// A future that is dropped while it waits, or while its grant is on its way, keeps nothing.
#[tokio::test]
async fn a_dropped_acquire_leaves_nothing() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    for round in 0..40_u64 {
        let waiting = semaphore(&one, 2);
        let acquire = waiting.acquire();
        let pause = Duration::from_micros(round * 100);
        drop(tokio::time::timeout(pause, acquire).await);
    }
    eventually("both are free", async || {
        let both = (tried(&other, 2).await, tried(&other, 2).await);
        matches!(both, (Some(_), Some(_)))
    })
    .await;
    let _both = (taken(&other, 2).await, taken(&other, 2).await);
    for _ in 0..3 {
        let waiting = semaphore(&one, 2);
        let waits = tokio::time::timeout(Duration::from_millis(50), waiting.acquire()).await;
        assert!(waits.is_err(), "both are taken");
    }
    drop(_both);
    eventually("both are free again", async || {
        let both = (tried(&one, 2).await, tried(&one, 2).await);
        matches!(both, (Some(_), Some(_)))
    })
    .await;
    database.remove().await;
}

/// What is released by force is told to its holder, and taken up by who waits; the late release takes nothing from the new holder.
#[tokio::test]
async fn a_permit_that_was_lost_is_taken_up_again() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let mortal = one
        .semaphore("api", 2)
        .ttl(Duration::from_secs(6))
        .wait(LONG);
    // A lease may be lost by itself where the machine stands still.
    let (first, _second) = (mortal.acquire().await, mortal.acquire().await);
    let first = first.expect("granted");
    let slot = first.slot();
    assert!(
        !semaphore(&other, 3)
            .force_release(2)
            .await
            .expect("an answer")
    );
    semaphore(&other, 2)
        .force_release(slot)
        .await
        .expect("an answer");
    let next = taken(&other, 2).await;
    assert!(next.slot() < 2);
    if next.slot() == slot {
        assert!(next.fencing_token() > first.fencing_token());
    }
    tokio::time::timeout(LONG, first.lost())
        .await
        .expect("told");
    assert!(!first.is_held());
    let released = first.release().await;
    assert!(
        matches!(released, Err(Error::LockLost { .. })),
        "{released:?}"
    );
    next.release().await.expect("is its own");
    // The client that lost it uses the slot again.
    eventually("it is taken again", async || {
        tried(&one, 2).await.is_some_and(|permit| permit.slot() < 2)
    })
    .await;
    database.remove().await;
}

/// A process that is killed gives its permits back when their leases end.
#[tokio::test]
async fn a_dead_clients_permits_come_free() {
    let database = TestDatabase::new().await;
    let mut worker = spawn_worker("worker", &[("PERMITS_URL", database.url.clone())]);
    let output = worker.stdout.take().expect("piped");
    let mut lines = BufReader::new(output).lines();
    let ready = tokio::task::spawn_blocking(move || {
        lines.any(|line| line.expect("text").contains("has both"))
    });
    assert!(ready.await.expect("reads"), "the worker has both");
    let client = database.client().await;
    signal(&worker, Signal::KILL);
    worker.wait().expect("has ended");
    let both = (taken(&client, 2).await, taken(&client, 2).await);
    assert_ne!(both.0.slot(), both.1.slot());
    database.remove().await;
}

#[tokio::test]
#[ignore = "a worker process of another test"]
async fn worker() {
    let url = std::env::var("PERMITS_URL").expect("a URL");
    let client = connected(patient(&url)).await;
    let mortal = client.semaphore("api", 2).ttl(Duration::from_secs(3));
    loop {
        // They are lost if the machine stands still.
        let both = (mortal.acquire().await, mortal.acquire().await);
        println!("has both");
        tokio::time::sleep(LONG).await;
        drop(both);
    }
}

/// Clients with more tasks than there are permits, which never pause: each client, and each task, has its turns.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_starves() {
    const TURNS: u32 = 5;
    let database = TestDatabase::new().await;
    let turns: Arc<[AtomicU32; 12]> = Arc::default();
    let mut tasks = JoinSet::new();
    for client in 0..3 {
        let locks = database.client().await;
        for task in 0..4 {
            let (locks, turns) = (locks.clone(), Arc::clone(&turns));
            tasks.spawn(async move {
                // Until all have had their turns: whoever has had his goes on to be in the way of the others.
                while turns
                    .iter()
                    .any(|turns| turns.load(Ordering::SeqCst) < TURNS)
                {
                    let permit = taken(&locks, 2).await;
                    turns[client * 4 + task].fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    drop(permit);
                }
            });
        }
    }
    let ended = tokio::time::timeout(2 * LONG, tasks.join_all()).await;
    assert!(ended.is_ok(), "{turns:?}");
    database.remove().await;
}

/// Tasks of one client wait in one line, and what they pass on in memory costs no grant.
#[tokio::test]
async fn tasks_of_one_client_pass_permits_on() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let first = taken(&client, 1).await;
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    let last = first.fencing_token();
    for number in 0..20 {
        let waiting = semaphore(&client, 1);
        let noted = Arc::clone(&order);
        let mut acquires = Box::pin(async move { waiting.acquire().await });
        // It is in the line before the next one comes.
        let early = tokio::time::timeout(Duration::ZERO, &mut acquires).await;
        assert!(early.is_err());
        tasks.spawn(async move {
            let permit = acquires.await.expect("granted");
            noted
                .lock()
                .expect("whole")
                .push((number, permit.fencing_token()));
            permit.release().await.expect("releases");
        });
    }
    first.release().await.expect("releases");
    tasks.join_all().await;
    let order = order.lock().expect("whole").clone();
    let numbers: Vec<i32> = order.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    assert!(
        order
            .iter()
            .zip(&order[1..])
            .all(|(one, next)| one.1 < next.1)
    );
    assert!(order[0].1 > last);
    database.remove().await;
}

#[tokio::test]
async fn a_closed_client_gives_its_permits_back_or_keeps_them() {
    let database = TestDatabase::new().await;
    for (held, free) in [(AtClose::Release, true), (AtClose::Keep, false)] {
        let (one, other) = (database.client().await, database.client().await);
        let permit = taken(&one, 1).await;
        let waiting = semaphore(&one, 1);
        let mut waits = Box::pin(waiting.acquire());
        let early = tokio::time::timeout(Duration::from_millis(50), &mut waits).await;
        assert!(early.is_err(), "it is taken");
        one.close(held).await;
        assert!(matches!(waits.await, Err(Error::Closed)));
        assert!(matches!(
            semaphore(&one, 1).acquire().await,
            Err(Error::Closed)
        ));
        assert_eq!(permit.is_held(), !free);
        assert_eq!(tried(&other, 1).await.is_some(), free);
        drop(permit);
        eventually("it is as it was", async || {
            other.semaphore("api", 1).list().await.is_ok()
        })
        .await;
    }
    database.remove().await;
}

/// A transaction that has verified the permit keeps it to its end; and one whose permit is gone does not commit.
#[tokio::test]
async fn a_permit_is_verified_in_a_transaction() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let permit = taken(&one, 1).await;
    let mut connection = connect(&database.url).await;
    run(&mut connection, "BEGIN").await;
    permit.verify_in(&mut connection).await.expect("ours");
    run(&mut connection, "COMMIT").await;
    assert!(
        semaphore(&other, 1)
            .force_release(0)
            .await
            .expect("an answer")
    );
    run(&mut connection, "BEGIN").await;
    let verified = permit.verify_in(&mut connection).await;
    assert!(
        matches!(verified, Err(Error::LockLost { .. })),
        "{verified:?}"
    );
    run(&mut connection, "ROLLBACK").await;
    drop(connection);
    let released = permit.release().await;
    assert!(
        matches!(released, Err(Error::LockLost { .. })),
        "{released:?}"
    );
    database.remove().await;
}
