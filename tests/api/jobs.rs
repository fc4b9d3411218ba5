//! Jobs: once for each slot, on however many machines; what is not done is taken up again.

use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::proxy::{Command, Fault, Proxy, RandomFaults, Upstream, once};
use crate::support::{
    TestDatabase, connected, eventually, is_batch, no_deadlocks_since, number, patient, run,
    server_deadlocks, signal, spawn_worker,
};
use rustix::process::Signal;
use tag_lock::{AtClose, Error, JobSlot, LockClient, LockState, RunOnce};
use tokio::sync::Notify;
use tokio::task::JoinSet;

const HOUR: Duration = Duration::from_secs(3_600);

type Answer = Result<RunOnce<()>, Error>;

/// A lease that a machine which stands still for a while does not lose.
fn slot(client: &LockClient, slot: &str) -> JobSlot {
    client.job("job").slot(slot).ttl(HOUR)
}

/// One that is soon over when nobody renews it.
fn mortal(client: &LockClient, slot: &str) -> JobSlot {
    client.job("job").slot(slot).ttl(Duration::from_secs(3))
}

async fn run_now(client: &LockClient, name: &str) -> RunOnce<()> {
    let ran = slot(client, name).run_once(async |_| ()).await;
    ran.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_of_many_clients_run_a_slot_once() {
    const SLOTS: usize = 8;
    let database = TestDatabase::new().await;
    let deadlocks = server_deadlocks().await;
    let ends: Arc<[AtomicU32; SLOTS]> = Arc::default();
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let client = database.client().await;
        for task in 0..8 * SLOTS {
            let (client, ends) = (client.clone(), Arc::clone(&ends));
            tasks.spawn(async move {
                let number = task % SLOTS;
                loop {
                    let attempt = slot(&client, &number.to_string());
                    let ran = attempt.run_once(async |_| {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        ends[number].fetch_add(1, Ordering::SeqCst);
                    });
                    match ran.await.expect("an answer") {
                        RunOnce::Done(()) => return 1,
                        RunOnce::AlreadyDone => return 0,
                        RunOnce::Busy => tokio::time::sleep(Duration::from_millis(5)).await,
                    }
                }
            });
        }
    }
    let done: usize = tasks.join_all().await.into_iter().sum();
    assert_eq!(done, SLOTS);
    for ends in ends.iter() {
        assert_eq!(ends.load(Ordering::SeqCst), 1);
    }
    no_deadlocks_since(deadlocks).await;
    database.remove().await;
}

#[tokio::test]
async fn what_a_slot_says_of_itself() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    assert_eq!(slot(&one, "1").inspect().await.expect("inspects"), None);
    assert!(!slot(&one, "1").is_done().await.expect("an answer"));
    let ran = slot(&one, "1")
        .description("the first")
        .run_once(async |lease| {
            assert!(lease.is_held());
            assert_eq!(lease.slot(), "1");
            assert_eq!(run_now(&other, "1").await, RunOnce::Busy);
            assert_eq!(run_now(&one, "1").await, RunOnce::Busy);
            let info = slot(&other, "1").inspect().await?.expect("a row");
            assert_eq!(info.state, LockState::Held);
            assert_eq!(info.name, "job@1");
            assert_eq!(info.description, "the first");
            assert_eq!(info.highest_fencing_token, lease.fencing_token());
            assert!(!slot(&other, "1").is_done().await?);
            Ok::<_, Error>(7)
        });
    assert_eq!(ran.await.expect("done"), RunOnce::Done(7));
    for client in [&one, &other] {
        assert_eq!(run_now(client, "1").await, RunOnce::AlreadyDone);
        assert!(slot(client, "1").is_done().await.expect("an answer"));
    }
    let info = slot(&other, "1").inspect().await.expect("inspects");
    let info = info.expect("a row");
    assert_eq!((info.state, info.depth), (LockState::Done, 0));
    assert_eq!(info.description, "the first");
    assert!(info.remaining.is_zero());
    // Other slots, other jobs, and locks of the same name are something else.
    assert_eq!(run_now(&other, "2").await, RunOnce::Done(()));
    let another = other.job("jo").slot("b@1").run_once(async |_| ()).await;
    assert_eq!(another.expect("an answer"), RunOnce::Done(()));
    let guard = other.lock("job@1").try_acquire().await.expect("an answer");
    guard.expect("free").release().await.expect("releases");
    assert!(other.list("", None, 10).await.expect("lists").is_empty());
    let _ = mortal(&other, "3")
        .run_once(async |_| Err::<(), _>(Error::Closed))
        .await;
    let listed = one.job("job").list(None, 10).await.expect("lists");
    let names: Vec<&str> = listed.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names, ["job@1", "job@2"]);
    let page = one.job("job").list(Some("1"), 10).await.expect("lists");
    assert_eq!(page, listed[1..]);
    for (job, slot) in [("a@b", "1"), ("", "1"), ("a", ""), ("a", "1 ")] {
        let refused = one.job(job).slot(slot).run_once(async |_| ()).await;
        assert!(
            matches!(refused, Err(Error::InvalidName { .. })),
            "{refused:?}"
        );
    }
    let refused = one
        .job("a")
        .slot(1)
        .ttl(Duration::ZERO)
        .run_once(async |_| ())
        .await;
    assert!(matches!(
        refused,
        Err(Error::InvalidOption { option: "ttl", .. })
    ));
    database.remove().await;
}

/// A failure, a panic, and a future that is dropped: the slot is free at once, not when its lease ends.
#[tokio::test]
async fn what_has_failed_is_taken_up_again() {
    let database = TestDatabase::new().await;
    let (one, other) = (database.client().await, database.client().await);
    let mut tokens = Vec::new();
    let failed = slot(&one, "error").run_once(async |lease| {
        tokens.push(lease.fencing_token());
        Err::<(), _>(Error::OperationMismatch {
            id: "its own".to_owned(),
        })
    });
    assert!(matches!(failed.await, Err(Error::OperationMismatch { .. })));
    let ran = slot(&other, "error").run_once(async |lease| tokens.push(lease.fencing_token()));
    assert_eq!(ran.await.expect("an answer"), RunOnce::Done(()));
    assert!(tokens[0] < tokens[1], "{tokens:?}");

    let client = one.clone();
    let panics = tokio::spawn(async move {
        let work = async |_| assert_eq!(1, 2, "the work's own panic");
        slot(&client, "panic").run_once(work).await
    });
    let panicked: Result<Answer, _> = panics.await;
    assert!(panicked.expect_err("a panic").is_panic());
    taken_up("panic", &other).await;

    let (client, begun) = (one.clone(), Arc::new(Notify::new()));
    let begins = Arc::clone(&begun);
    let dropped = tokio::spawn(async move {
        let waits = async |_| {
            begins.notify_one();
            std::future::pending::<()>().await;
        };
        slot(&client, "dropped").run_once(waits).await
    });
    begun.notified().await;
    dropped.abort();
    assert!(dropped.await.expect_err("aborted").is_cancelled());
    taken_up("dropped", &other).await;
    database.remove().await;
}

async fn taken_up(name: &str, client: &LockClient) {
    eventually("it is taken up again", async || {
        run_now(client, name).await == RunOnce::Done(())
    })
    .await;
}

/// A machine that dies in the middle of its work: a process that is killed.
#[tokio::test]
async fn what_a_dead_machine_left_is_taken_up_again() {
    let database = TestDatabase::new().await;
    let mut worker = spawn_worker("worker", &[("JOB_URL", database.url.clone())]);
    let output = worker.stdout.take().expect("piped");
    let mut lines = BufReader::new(output).lines();
    let ready = tokio::task::spawn_blocking(move || {
        lines.any(|line| line.expect("text").contains("at it"))
    });
    assert!(ready.await.expect("reads"), "the worker is at it");
    let client = database.client().await;
    signal(&worker, Signal::KILL);
    worker.wait().expect("has ended");
    taken_up("killed", &client).await;
    assert_eq!(run_now(&client, "killed").await, RunOnce::AlreadyDone);
    database.remove().await;
}

#[tokio::test]
#[ignore = "a worker process of another test"]
async fn worker() {
    let url = std::env::var("JOB_URL").expect("a URL");
    let client = connected(patient(&url)).await;
    let waits = async |_| {
        println!("at it");
        std::future::pending::<()>().await;
    };
    // Its lease is lost if the machine stands still.
    while mortal(&client, "killed").run_once(waits).await.is_err() {}
}

/// A machine that is cut off stops its work before another one begins it, and cannot record it any more.
#[tokio::test]
async fn the_work_of_a_lost_lease_is_dropped() {
    struct Drops(Arc<AtomicU32>);
    impl Drop for Drops {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let (dropped, begun) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let (drops, begins, at) = (Arc::clone(&dropped), Arc::clone(&begun), client.clone());
    let works = tokio::spawn(async move {
        let work = async |_| {
            let _drops = Drops(drops);
            begins.notify_one();
            std::future::pending::<()>().await;
        };
        // Renewed after some seconds: a machine may stand still for more.
        let slot = mortal(&at, "reset").ttl(Duration::from_secs(15));
        slot.run_once(work).await
    });
    begun.notified().await;
    assert!(slot(&client, "reset").reset().await.expect("an answer"));
    let lost: Answer = works.await.expect("no panic");
    assert!(matches!(lost, Err(Error::LockLost { .. })), "{lost:?}");
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    assert_eq!(run_now(&client, "reset").await, RunOnce::Done(()));

    // It has ended its work, and does not know that the slot was given to another one.
    let other = database.client().await;
    let late = slot(&client, "late").run_once(async |_| {
        assert!(slot(&other, "late").reset().await.expect("an answer"));
        assert_eq!(run_now(&other, "late").await, RunOnce::Done(()));
    });
    let late = late.await;
    assert!(matches!(late, Err(Error::LockLost { .. })), "{late:?}");
    assert_eq!(run_now(&client, "late").await, RunOnce::AlreadyDone);
    database.remove().await;
}

#[tokio::test]
async fn a_client_that_closes_gives_the_slot_back() {
    let database = TestDatabase::new().await;
    let (closes, other) = (database.client().await, database.client().await);
    let at = closes.clone();
    let closed = slot(&at, "closed").run_once(async |_| closes.close(AtClose::Release).await);
    let closed = closed.await;
    assert!(closed.is_err(), "{closed:?}");
    taken_up("closed", &other).await;
    let refused = slot(&at, "closed").run_once(async |_| ()).await;
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
    database.remove().await;
}

/// Each way to lose the reply to the packet that records a slot as done.
#[tokio::test]
async fn a_lost_reply_is_found_out() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let client = connected(patient(&proxy.url(&database.url))).await;
    let other = database.client().await;
    for (number, fault) in [
        Fault::CutAfter(Upstream::Forwarded),
        Fault::CutAfter(Upstream::FirstByte),
        Fault::CutAfter(Upstream::Replied),
        Fault::TruncateReply,
        Fault::CutBefore,
        Fault::Truncate,
        Fault::Reset,
    ]
    .into_iter()
    .enumerate()
    {
        let name = number.to_string();
        let faults = proxy.counters().all_faults();
        let ran = slot(&client, &name).run_once(async |_| {
            proxy.on_command(once(is_batch, fault.clone()));
        });
        let ran = ran
            .await
            .unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(ran, RunOnce::Done(()), "{fault:?}");
        assert_eq!(proxy.counters().all_faults(), faults + 1, "{fault:?}");
        assert_eq!(
            run_now(&other, &name).await,
            RunOnce::AlreadyDone,
            "{fault:?}"
        );
    }
    database.remove().await;
}

/// Packets are cut at random around their `COMMIT`: no slot is run twice to its end, and each is done in the end.
#[tokio::test(flavor = "multi_thread")]
async fn under_random_cuts_no_slot_runs_twice_to_its_end() {
    const SLOTS: usize = 60;
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let faults = RandomFaults::new(rand::random())
        .only(Command::contains_commit)
        .with(0.05, Fault::CutAfter(Upstream::Forwarded))
        .with(0.05, Fault::CutAfter(Upstream::FirstByte))
        .with(0.05, Fault::CutAfter(Upstream::Replied))
        .with(0.05, Fault::CutBefore)
        .with(0.02, Fault::TruncateReply)
        .with(0.02, Fault::Reset);
    let ends: Arc<[AtomicU32; SLOTS]> = Arc::new(std::array::from_fn(|_| AtomicU32::new(0)));
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(connected(patient(&proxy.url(&database.url))).await);
    }
    proxy.on_command(faults.into_hook());
    let mut tasks = JoinSet::new();
    for task in 0..24 {
        let (client, ends) = (clients[task % 3].clone(), Arc::clone(&ends));
        tasks.spawn(async move {
            for number in 0..SLOTS {
                let number = (number + task * 7) % SLOTS;
                let ran = slot(&client, &number.to_string()).run_once(async |_| {
                    // Some of the attempts fail.
                    if rand::random_bool(0.3) {
                        return Err(Error::OperationMismatch {
                            id: "its own".to_owned(),
                        });
                    }
                    ends[number].fetch_add(1, Ordering::SeqCst);
                    Ok(())
                });
                match ran.await {
                    Ok(_) | Err(Error::OperationMismatch { .. }) => {}
                    Err(error) => panic!("slot {number}: {error}"),
                }
            }
        });
    }
    tasks.join_all().await;
    proxy.pass_all();
    let client = database.client().await;
    for (number, ends) in ends.iter().enumerate() {
        let name = number.to_string();
        let once = ends.load(Ordering::SeqCst);
        assert!(once <= 1, "slot {number} has run {once} times");
        assert_eq!(
            slot(&client, &name).is_done().await.expect("an answer"),
            once == 1
        );
    }
    println!("{:?}", proxy.counters().faults);
    database.remove().await;
}

/// A slot that is done stays so until it is older than the purge's age; one that nobody is at goes as a lock does.
#[tokio::test]
async fn a_purge_leaves_what_was_done_lately() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    for name in ["old", "young", "reset"] {
        assert_eq!(run_now(&client, name).await, RunOnce::Done(()));
    }
    let failed = slot(&client, "failed").run_once(async |_| Err::<(), _>(Error::Closed));
    assert!(failed.await.is_err());
    assert!(slot(&client, "reset").reset().await.expect("an answer"));
    assert!(!slot(&client, "reset").reset().await.expect("an answer"));
    let before = slot(&client, "old")
        .inspect()
        .await
        .expect("inspects")
        .expect("a row");
    let two_hours_old = "UPDATE t_tag_lock SET modify_time = modify_time - INTERVAL 2 HOUR \
        WHERE kind = 4 AND lock_name <> 'job@young'";
    run(&mut connection, two_hours_old).await;
    assert_eq!(client.purge(3 * HOUR).await.expect("purges").rows, 0);
    let ran = slot(&client, "running").run_once(async |_| {
        run(
            &mut connection,
            &two_hours_old.replace("<> 'job@young'", "= 'job@running'"),
        )
        .await;
        assert_eq!(run_now(&client, "old").await, RunOnce::AlreadyDone);
        assert_eq!(client.purge(HOUR).await.expect("purges").rows, 3);
    });
    assert_eq!(ran.await.expect("done"), RunOnce::Done(()));
    assert_eq!(run_now(&client, "young").await, RunOnce::AlreadyDone);
    assert_eq!(
        number(
            &mut connection,
            "SELECT COUNT(*) FROM t_tag_lock WHERE kind = 4"
        )
        .await,
        2
    );
    // Forgotten: it runs again, with a higher token.
    let again = slot(&client, "old").run_once(async |lease| {
        assert!(lease.fencing_token() > before.highest_fencing_token);
    });
    assert_eq!(again.await.expect("done"), RunOnce::Done(()));
    database.remove().await;
}

/// The clock of the server decides nothing about a slot that is done; locks of its name and transactions do not touch it.
#[tokio::test]
async fn nothing_makes_a_done_slot_free() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let mut connection = database.connection().await;
    assert_eq!(run_now(&client, "1").await, RunOnce::Done(()));
    assert!(!client.force_release("job@1").await.expect("an answer"));
    run(&mut connection, "START TRANSACTION").await;
    client
        .lock_in(&mut connection, "job@1")
        .await
        .expect("a lock of that name");
    run(&mut connection, "COMMIT").await;
    run(
        &mut connection,
        "SET timestamp = UNIX_TIMESTAMP('2037-12-31')",
    )
    .await;
    let free = "SELECT COUNT(*) FROM t_tag_lock WHERE kind = 4 AND (status = 0 OR deadline <= UTC_TIMESTAMP(6))";
    assert_eq!(number(&mut connection, free).await, 0);
    assert_eq!(run_now(&client, "1").await, RunOnce::AlreadyDone);
    database.remove().await;
}
