//! The lost signal: it fires when the lease is gone, before anybody else can have the lock, and not on a
//! release.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support;
use crate::support::lateness::{assert_on_any_machine, joined, with_ttl};
use crate::support::proxy::Proxy;
use crate::support::{TestDatabase, eventually, run};
use futures_util::FutureExt;
use tag_lock::{Error, LockClient, LockGuard};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Renewed after four seconds: what fires before the lease's end was found by a renewal.
const TTL: Duration = Duration::from_secs(12);
/// For those that wait for the end.
const SHORT: Duration = Duration::from_secs(3);

async fn acquire(client: &LockClient, name: &str, ttl: Duration) -> LockGuard {
    client.lock(name).ttl(ttl).acquire().await.expect("a lock")
}

/// Waits for the signal, which fires as soon as the trust in the lease is over: no later than a timer of this thread
/// that was set for the same moment, or for one a little behind it.
async fn signalled(guard: &LockGuard) {
    let mut lost = std::pin::pin!(guard.lost());
    loop {
        let end = guard.remaining() + Duration::from_millis(20);
        tokio::select! {
            biased;
            () = &mut lost => return,
            // Longer meanwhile, if it was renewed.
            () = tokio::time::sleep(end) => {
                assert!(!guard.remaining().is_zero(), "the trust is over without the signal");
            }
        }
    }
}

/// The signal fires within the ttl, in all its forms, and the release says so too.
async fn assert_lost(guard: LockGuard) {
    let left = guard.remaining();
    let since = Instant::now();
    signalled(&guard).await;
    // What a renewal has found does not wait for the end.
    let (took, late) = (since.elapsed(), Duration::from_millis(500));
    assert!(
        left.is_zero() || took + late < left,
        "found only after {took:?} of {left:?}"
    );
    assert!(!guard.is_held());
    assert!(guard.remaining().is_zero());
    assert!(guard.view().cancellation_token().is_cancelled());
    guard.view().lost().await;
    let extended = guard.extend(TTL).await;
    assert!(
        matches!(extended, Err(Error::LockLost { .. })),
        "{extended:?}"
    );
    let released = guard.release().await;
    assert!(
        matches!(released, Err(Error::LockLost { .. })),
        "{released:?}"
    );
}

#[tokio::test]
async fn it_fires_when_another_holder_has_taken_over() {
    let database = TestDatabase::new().await;
    let guard = acquire(&database.client().await, "taken", TTL).await;
    let mut connection = database.connection().await;
    run(
        &mut connection,
        "UPDATE t_tag_lock SET holder = REPEAT('x', 16), fence = fence + 70000 WHERE lock_name = 'taken'",
    )
    .await;
    assert_lost(guard).await;
    // The new holder's lock is left alone.
    let row = "SELECT COUNT(*) FROM t_tag_lock WHERE lock_name = 'taken' AND status = 1 AND holder = REPEAT('x', 16)";
    assert_eq!(support::number(&mut connection, row).await, 1);
    database.remove().await;
}

#[tokio::test]
async fn it_fires_when_the_lock_is_released_by_force() {
    let database = TestDatabase::new().await;
    let guard = acquire(&database.client().await, "forced", TTL).await;
    let operator = database.client().await;
    assert!(operator.force_release("forced").await.expect("frees it"));
    // It can be had at once, and keeps its new holder when the old one lets go.
    let next = acquire(&operator, "forced", TTL).await;
    assert!(next.fencing_token() > guard.fencing_token());
    assert_lost(guard).await;
    assert!(next.is_held());
    next.release().await.expect("it was held");
    database.remove().await;
}

#[tokio::test]
async fn it_fires_when_the_row_has_vanished() {
    let database = TestDatabase::new().await;
    let guard = acquire(&database.client().await, "vanished", TTL).await;
    let mut connection = database.connection().await;
    run(
        &mut connection,
        "DELETE FROM t_tag_lock WHERE lock_name = 'vanished'",
    )
    .await;
    assert_lost(guard).await;
    database.remove().await;
}

#[derive(Clone, Copy, Debug)]
enum Cut {
    /// Nothing moves, and nothing is refused.
    Silence,
    /// Connections break, and no new one is made.
    Refusal,
}

/// Acquires a lock after its holder, whose signal has to be there before the grant.
fn acquire_after(
    client: &LockClient,
    name: &'static str,
    ttl: Duration,
    holder: &LockGuard,
) -> JoinHandle<LockGuard> {
    let (client, holder) = (client.clone(), holder.view());
    tokio::spawn(async move {
        let guard = acquire(&client, name, ttl).await;
        // Not by comparing two tasks' clocks: a machine that stands still wakes both at the same time.
        let signal = holder.lost().now_or_never();
        assert_on_any_machine(signal.is_some(), "granted before the signal");
        assert_on_any_machine(!holder.is_held(), "granted while it was held");
        guard
    })
}

/// Cuts the holder off; its signal must come in time for the one that waits at the server.
async fn cut_off(cut: Cut, ttl: Duration) {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    let cut_client = LockClient::connect(&proxy.url(&database.url))
        .await
        .expect("connects");
    let others = database.client().await;
    let guard = acquire(&cut_client, "cut", ttl).await;
    // At least one renewal has passed.
    let first = guard.remaining();
    tokio::time::sleep(ttl / 2).await;
    eventually("a renewal", || async {
        assert!(guard.is_held(), "lost before it was cut off");
        guard.remaining() > first / 2
    })
    .await;
    let next = acquire_after(&others, "cut", ttl, &guard);

    match cut {
        Cut::Silence => proxy.pause(),
        Cut::Refusal => {
            proxy.refuse(true);
            proxy.cut_all();
        }
    }
    let (since, trusted) = (Instant::now(), guard.remaining());
    signalled(&guard).await;
    let early = since.elapsed();
    // Not to know is no loss: the lease is good until its end.
    assert!(
        early + Duration::from_millis(2) >= trusted,
        "{early:?} of {trusted:?}"
    );
    assert!(!guard.is_held());

    let next = joined(next).await;
    assert!(next.fencing_token() > guard.fencing_token());
    next.release().await.expect("it was held");
    proxy.resume();
    proxy.refuse(false);
    proxy.cut_all();
    let released = guard.release().await;
    assert!(
        matches!(released, Err(Error::LockLost { .. })),
        "{released:?}"
    );
    database.remove().await;
}

#[tokio::test]
async fn it_fires_before_another_is_granted_when_the_server_is_silent() {
    with_ttl(SHORT, async |ttl| cut_off(Cut::Silence, ttl).await).await;
}

#[tokio::test]
async fn it_fires_before_another_is_granted_when_the_server_is_gone() {
    with_ttl(SHORT, async |ttl| cut_off(Cut::Refusal, ttl).await).await;
}

#[tokio::test]
async fn it_fires_before_another_is_granted_when_nothing_renews() {
    let database = TestDatabase::new().await;
    let (holder, others) = (database.client().await, database.client().await);
    for _ in 0..5 {
        let ttl = Duration::from_millis(300);
        let request = holder.lock("fixed").ttl(ttl).auto_renew(false);
        let guard = request.acquire().await.expect("a lock");
        let next = acquire_after(&others, "fixed", TTL, &guard);
        signalled(&guard).await;
        let next = joined(next).await;
        next.release().await.expect("it was held");
    }
    database.remove().await;
}

#[tokio::test]
async fn it_does_not_fire_on_a_release_or_a_drop() {
    with_ttl(SHORT, not_fired).await;
}

async fn not_fired(ttl: Duration) {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let released = acquire(&client, "released", ttl).await;
    let dropped = acquire(&client, "dropped", ttl).await;
    let views = [released.view(), dropped.view()];
    let tokens = [released.cancellation_token(), dropped.cancellation_token()];
    released.release().await.expect("it was held");
    drop(dropped);
    // Longer than the lease would have lasted.
    let [a, b] = views.each_ref().map(|view| timeout(ttl * 2, view.lost()));
    let fired = tokio::join!(a, b);
    assert!(fired.0.is_err() && fired.1.is_err(), "released, not lost");
    assert!(views.iter().all(|view| !view.is_held()));
    assert!(tokens.iter().all(|token| !token.is_cancelled()));
    database.remove().await;
}

#[tokio::test]
async fn a_turn_that_ended_does_not_hear_of_the_next_ones_loss() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let first = acquire(&client, "turns", TTL).await;
    let second = tokio::spawn({
        let client = client.clone();
        async move { acquire(&client, "turns", TTL).await }
    });
    let third = tokio::spawn({
        let client = client.clone();
        async move { acquire(&client, "turns", TTL).await }
    });
    tokio::task::yield_now().await;
    let (view, token) = (first.view(), first.cancellation_token());
    first.release().await.expect("it was held");
    // The lease passed to one of the two in memory.
    let (second, third) = tokio::select! {
        guard = second => (guard.expect("a guard"), third),
        _ = tokio::time::sleep(Duration::from_secs(60)) => panic!("the turn did not pass on"),
    };
    let operator = database.client().await;
    assert!(operator.force_release("turns").await.expect("frees it"));
    second.lost().await;
    assert!(
        !token.is_cancelled(),
        "the first turn ended before the loss"
    );
    let heard = timeout(Duration::from_millis(100), view.lost()).await;
    assert!(heard.is_err(), "the first turn ended before the loss");
    // A lost lease is not handed on: the third one asks the table, while the second still has its guard.
    let third = third.await.expect("a guard");
    assert!(third.is_held());
    assert!(third.fencing_token() > second.fencing_token());
    assert!(second.release().await.is_err());
    assert!(third.is_held());
    third.release().await.expect("it was held");
    database.remove().await;
}

/// Notes that it was dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn run_cancels_its_work_when_the_lease_is_lost() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    let operator = database.client().await;
    let (started, cancelled) = (
        Arc::new(tokio::sync::Notify::new()),
        Arc::<AtomicBool>::default(),
    );
    let work = tokio::spawn({
        let (started, cancelled) = (Arc::clone(&started), Arc::clone(&cancelled));
        async move {
            let run = client.lock("run").ttl(TTL).run(|lease| async move {
                let _dropped = Dropped(cancelled);
                assert!(lease.is_held());
                started.notify_one();
                std::future::pending::<()>().await;
            });
            run.await
        }
    });
    started.notified().await;
    assert!(operator.force_release("run").await.expect("frees it"));
    let result = work.await.expect("no panic");
    assert!(matches!(result, Err(Error::LockLost { .. })), "{result:?}");
    assert!(cancelled.load(Ordering::SeqCst), "the work is over");
    database.remove().await;
}
