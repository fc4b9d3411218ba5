//! Who may hold a lock: one at a time, and the tasks of one client in the order in which they asked.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::support::TestDatabase;
use tag_lock::{Error, LockGuard};

const HOUR: Duration = Duration::from_secs(3_600);

type Acquiring<'c> = Pin<Box<dyn Future<Output = Result<LockGuard, Error>> + Send + 'c>>;

async fn poll_once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clients_exclude_each_other() {
    const TASKS: u64 = 8;
    const ROUNDS: u64 = 25;
    let database = TestDatabase::new().await;
    let shared = Arc::new((AtomicBool::new(false), AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let client = database.client().await;
        for _ in 0..TASKS {
            let (client, shared) = (client.clone(), Arc::clone(&shared));
            tasks.push(tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = client.lock("job").acquire().await.unwrap();
                    let (inside, count) = &*shared;
                    assert!(!inside.swap(true, Ordering::SeqCst), "two at once");
                    let seen = count.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    count.store(seen + 1, Ordering::SeqCst);
                    inside.store(false, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(shared.1.load(Ordering::SeqCst), 2 * TASKS * ROUNDS);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_one_client_are_served_in_order() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    // Leases of equal terms pass on in memory, those of different terms through the table.
    for ttls in [[HOUR, HOUR], [HOUR, 2 * HOUR]] {
        let first = client.lock("job").ttl(HOUR).acquire().await.unwrap();
        let mut waiting: Vec<Acquiring<'_>> = Vec::new();
        for number in 0..20 {
            let request = client.lock("job").ttl(ttls[number % 2]);
            let mut acquiring: Acquiring<'_> = Box::pin(request.acquire());
            // The place in the queue is taken with the first poll.
            assert!(poll_once(acquiring.as_mut()).await.is_pending());
            waiting.push(acquiring);
        }
        // One of those that wait goes away.
        drop(waiting.remove(5));
        let mut last = first.fencing_token();
        first.release().await.unwrap();
        while !waiting.is_empty() {
            let (served, guard) = poll_fn(|context| {
                for (position, acquiring) in waiting.iter_mut().enumerate() {
                    if let Poll::Ready(guard) = acquiring.as_mut().poll(context) {
                        return Poll::Ready((position, guard.unwrap()));
                    }
                }
                Poll::Pending
            })
            .await;
            assert_eq!(served, 0, "served out of turn");
            drop(waiting.remove(served));
            assert!(guard.fencing_token() > last);
            last = guard.fencing_token();
            guard.release().await.unwrap();
        }
    }
    database.remove().await;
}
