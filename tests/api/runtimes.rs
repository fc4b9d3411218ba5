//! A client and the runtimes on which it is used: its own, one that nobody drives, one that is blocked, one that has ended.

use std::time::{Duration, Instant};

use crate::support;
use crate::support::lateness::with_ttl;
use crate::support::{TestDatabase, connected};
use tag_lock::{AtClose, Error, LockClient};
use tokio::runtime::{Builder, Runtime};

/// One test at a time has clients with threads of their own.
static THREADS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// On a thread that may block.
async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

fn builder(database: &TestDatabase) -> tag_lock::LockClientBuilder {
    LockClient::builder(database.url.parse().unwrap())
        .packet_timeout(Duration::from_millis(500))
        .request_timeout(Duration::from_secs(1))
}

/// Each call from another runtime ends with an error that says what is wrong, while nobody drives the client's.
#[test]
fn calls_end_though_nobody_drives_the_runtime_of_the_client() {
    let (first, second) = (runtime(), runtime());
    let (database, client, guard) = first.block_on(async {
        let database = TestDatabase::new().await;
        let client = connected(builder(&database)).await;
        let guard = client.lock("held").acquire().await.unwrap();
        (database, client, guard)
    });
    let start = Instant::now();
    second.block_on(async {
        let (counter, other, waited) = (client.counter("n"), client.lock("a"), client.lock("b"));
        let calls = async {
            tokio::join!(
                async { counter.add(1).await.err() },
                async { counter.get().await.err() },
                async { client.inspect("held").await.err() },
                async { client.list("", None, 1).await.err() },
                async { other.try_acquire().await.err() },
                async { waited.acquire().await.err() },
                async { guard.extend(Duration::from_secs(60)).await.err() },
            )
        };
        let ended = tokio::time::timeout(Duration::from_secs(60), calls).await;
        let (a, b, c, d, e, f, g) = ended.expect("calls hang");
        for error in [a, b, c, d, e, f, g] {
            assert!(matches!(error, Some(Error::NotDriven)), "{error:?}");
        }
        let released = tokio::time::timeout(Duration::from_secs(60), guard.release()).await;
        let released = released.expect("a release hangs");
        assert!(matches!(released, Err(Error::NotDriven)), "{released:?}");
        let close = client.close_within(AtClose::Release, Duration::from_secs(60));
        assert!(!close.await, "nothing has ended");
    });
    println!("all had ended after {:?}", start.elapsed());
    first.block_on(database.remove());
}

/// The same calls succeed when somebody drives it.
#[test]
fn calls_from_another_runtime_succeed_where_the_first_is_driven() {
    let (first, second) = (
        Builder::new_multi_thread().enable_all().build().unwrap(),
        runtime(),
    );
    let (database, client) = first.block_on(async {
        let database = TestDatabase::new().await;
        let client = database.client().await;
        (database, client)
    });
    second.block_on(async {
        assert_eq!(client.counter("n").add(1).await.unwrap(), 1);
        assert_eq!(client.counter("n").get().await.unwrap(), 1);
        let guard = client.lock("l").acquire().await.unwrap();
        guard.release().await.unwrap();
        client.close(AtClose::Release).await;
    });
    first.block_on(database.remove());
}

/// A client with a thread of its own renews while the caller's runtime is blocked, and when it has ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_its_own_thread_needs_no_runtime_of_its_caller() {
    let _alone = THREADS.lock().await;
    with_ttl(Duration::from_secs(2), async |ttl| {
        let database = TestDatabase::new().await;
        let url = database.url.clone();
        elsewhere(move || {
            let first = runtime();
            let (client, guard) = first.block_on(async {
                let client = support::patient(&url).own_thread(true);
                let client = connected(client).await;
                let guard = client.lock("l").ttl(ttl).acquire().await.unwrap();
                (client, guard)
            });
            // Nobody drives it.
            std::thread::sleep(ttl * 3 / 2);
            assert!(
                guard.is_held(),
                "lost while the caller's runtime was blocked"
            );
            drop(first);
            std::thread::sleep(ttl * 3 / 2);
            assert!(guard.is_held(), "lost with the caller's runtime");
            let second = runtime();
            second.block_on(async {
                assert_eq!(client.counter("n").add(1).await.unwrap(), 1);
                assert_eq!(client.counter("n").get().await.unwrap(), 1);
                assert_eq!(client.list("", None, 9).await.unwrap().len(), 1);
                guard.release().await.unwrap();
                client.close(AtClose::Release).await;
            });
        })
        .await;
        database.remove().await;
    })
    .await;
}

/// A guard that is dropped where there is no runtime gives its lock back; and the thread ends with its client.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn the_thread_ends_with_its_client() {
    let _alone = THREADS.lock().await;
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
        names
            .filter(|name| name.as_ref().is_ok_and(|name| name.trim() == "tag-lock"))
            .count()
    };
    let database = TestDatabase::new().await;
    let before = threads();
    let client = connected(support::patient(&database.url).own_thread(true)).await;
    assert!(threads() > before);
    let guard = client.lock("l").acquire().await.unwrap();
    elsewhere(move || drop((guard, client))).await;
    support::eventually("the thread has ended", async || threads() <= before).await;
    let other = database.client().await;
    let guard = other.lock("l").try_acquire().await.unwrap();
    drop(guard.expect("it was given back"));
    database.remove().await;
}
