//! Locks: taking, waiting, giving back, and what happens to a lease that ends.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::support;
use crate::support::TestDatabase;
use futures_util::future::join_all;
use sqlx::Row;
use tag_lock::{AtClose, Error, LockClient, LockState};

const HOUR: Duration = Duration::from_secs(3_600);
/// Short, but long enough that the packet which takes it is answered within it.
const SHORT: Duration = Duration::from_secs(1);
/// Short, but long enough that a machine renews in time that stood still for seconds.
const RENEWED: Duration = Duration::from_secs(7);

async fn named_client(database: &TestDatabase, holder: &str) -> LockClient {
    LockClient::builder(database.url.parse().unwrap())
        .holder(holder)
        .connect()
        .await
        .unwrap()
}

async fn poll_once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

async fn is_taken(client: &LockClient, name: &str) -> bool {
    client.lock(name).try_acquire().await.unwrap().is_none()
}

#[tokio::test(flavor = "multi_thread")]
async fn held_until_released() {
    let database = TestDatabase::new().await;
    let (a, b) = (database.client().await, database.client().await);
    for _ in 0..3 {
        let guard = a.lock("job").try_acquire().await.unwrap().unwrap();
        assert_eq!(guard.name(), "job");
        assert!(guard.is_held() && guard.remaining() > Duration::ZERO);
        assert!(is_taken(&b, "job").await, "another client");
        assert!(is_taken(&a, "job").await, "another task of the same client");
        assert!(!is_taken(&b, "another job").await);
        guard.release().await.unwrap();
        let guard = b.lock("job").acquire().await.unwrap();
        assert!(is_taken(&a, "job").await);
        guard.release().await.unwrap();
    }
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_guard_releases() {
    let database = TestDatabase::new().await;
    let (a, b) = (database.client().await, database.client().await);
    drop(a.lock("job").ttl(HOUR).acquire().await.unwrap());
    // Far less than the ttl: only the release can have freed it.
    drop(b.lock("job").wait(HOUR / 4).acquire().await.unwrap());
    let view = a.lock("view").ttl(HOUR).acquire().await.unwrap().view();
    drop(b.lock("view").wait(HOUR / 4).acquire().await.unwrap());
    assert!(!view.is_held(), "a view does not hold the lock");
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_lease_is_taken_over_and_its_guard_learns_it() {
    let database = TestDatabase::new().await;
    let (a, b) = (database.client().await, database.client().await);
    for client in [&a, &b] {
        let old = a
            .lock("job")
            .ttl(SHORT)
            .auto_renew(false)
            .acquire()
            .await
            .unwrap();
        let new = client.lock("job").ttl(HOUR).acquire().await.unwrap();
        assert!(!old.is_held(), "trust ends before the next grant");
        assert_eq!(old.remaining(), Duration::ZERO);
        old.lost().await;
        assert!(old.cancellation_token().is_cancelled());
        assert!(new.fencing_token() > old.fencing_token());

        let before = b.inspect("job").await.unwrap().unwrap();
        assert!(matches!(old.extend(HOUR).await, Err(Error::LockLost { name }) if name == "job"));
        assert!(matches!(old.release().await, Err(Error::LockLost { name }) if name == "job"));
        let mut after = b.inspect("job").await.unwrap().unwrap();
        // The one thing that passes by itself.
        after.remaining = before.remaining;
        assert_eq!(after, before, "the new holder's row was touched");
        new.release().await.unwrap();
    }
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_guard_leaves_the_new_holder_alone() {
    let database = TestDatabase::new().await;
    let (a, b) = (database.client().await, database.client().await);
    let request = a.lock("job").ttl(SHORT).auto_renew(false);
    let old = request.acquire().await.unwrap();
    let new = b.lock("job").ttl(HOUR).acquire().await.unwrap();
    drop(old);
    // Ends only after the drop's release has been sent.
    a.close(AtClose::Release).await;
    let info = b.inspect("job").await.unwrap().unwrap();
    assert_eq!(info.state, LockState::Held);
    new.release().await.unwrap();
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renewal_outlives_the_ttl() {
    let database = TestDatabase::new().await;
    let (a, b) = (database.client().await, database.client().await);
    let guard = a.lock("job").ttl(RENEWED).acquire().await.unwrap();
    // It would end while the other one is renewed.
    let extended = a.lock("extended").ttl(RENEWED * 3 / 4).auto_renew(false);
    let extended = extended.acquire().await.unwrap();
    extended.extend(HOUR).await.unwrap();
    let first = b.inspect("job").await.unwrap().unwrap().deadline;
    support::eventually(
        "the lease was renewed for longer than its ttl",
        async || {
            let deadline = b.inspect("job").await.unwrap().unwrap().deadline;
            deadline > first + RENEWED
        },
    )
    .await;
    assert!(is_taken(&b, "job").await && is_taken(&b, "extended").await);
    guard.release().await.unwrap();
    extended.release().await.unwrap();
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inspection_shows_what_is_held() {
    let database = TestDatabase::new().await;
    let a = named_client(&database, "host-a/1").await;
    assert_eq!(a.inspect("n0").await.unwrap(), None);
    assert_eq!(a.list("", None, 10).await.unwrap(), []);
    let mut guards = Vec::new();
    for number in 0..7 {
        let name = format!("n{number}");
        let request = a.lock(&name).ttl(HOUR).description(name.clone());
        guards.push(request.acquire().await.unwrap());
    }
    a.counter("n1").add(1).await.unwrap();
    guards.remove(3).release().await.unwrap();
    let lapsed = a.lock("lapsed").ttl(SHORT).auto_renew(false);
    let lapsed = lapsed.acquire().await.unwrap();
    support::eventually("a lease ends", async || {
        let info = a.inspect("lapsed").await.unwrap().unwrap();
        info.state == LockState::Free
    })
    .await;

    let info = a.inspect("n2").await.unwrap().unwrap();
    assert_eq!(info.name, "n2");
    assert_eq!(info.state, LockState::Held);
    assert_eq!(
        (info.held_by.as_str(), info.description.as_str()),
        ("host-a/1", "n2")
    );
    assert!(info.remaining > HOUR / 2 && info.remaining <= HOUR);
    assert!(info.deadline > info.modified);
    assert!(info.highest_fencing_token >= guards[2].fencing_token());
    assert_eq!(info.depth, 1);
    let free = a.inspect("n3").await.unwrap().unwrap();
    assert_eq!(
        (free.state, free.remaining),
        (LockState::Free, Duration::ZERO)
    );

    let names = async |after: Option<&str>, limit| {
        let page = a.list("", after, limit).await.unwrap();
        page.into_iter().map(|info| info.name).collect::<Vec<_>>()
    };
    assert_eq!(names(None, 3).await, ["n0", "n1", "n2"]);
    assert_eq!(names(Some("n2"), 3).await, ["n4", "n5", "n6"]);
    assert_eq!(names(Some("n6"), 3).await, [""; 0]);
    assert_eq!(names(None, 100).await.len(), 6);
    assert_eq!(names(None, 0).await.len(), 0);
    drop(lapsed);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_owner_goes_deeper_in_two_clients() {
    let database = TestDatabase::new().await;
    let (a, b) = (database.client().await, database.client().await);
    let first = a.lock("job").owner("order 7").acquire().await.unwrap();
    let second = b.lock("job").owner("order 7").acquire().await.unwrap();
    let third = a.lock("job").owner("order 7").acquire().await.unwrap();
    assert_eq!(first.fencing_token(), second.fencing_token());
    assert_eq!(first.fencing_token(), third.fencing_token());
    for (guard, depth) in [(second, 3), (first, 2), (third, 1)] {
        assert_eq!(a.inspect("job").await.unwrap().unwrap().depth, depth);
        let stranger = b.lock("job").owner("order 8").try_acquire().await.unwrap();
        assert!(stranger.is_none(), "another owner, at depth {depth}");
        assert!(is_taken(&a, "job").await, "nobody's, at depth {depth}");
        guard.release().await.unwrap();
    }
    assert!(!is_taken(&b, "job").await);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minimum_hold_outlasts_the_release() {
    let database = TestDatabase::new().await;
    let (a, b) = (database.client().await, database.client().await);
    let long = a.lock("job").hold_at_least(HOUR).acquire().await.unwrap();
    long.release().await.unwrap();
    let info = b.inspect("job").await.unwrap().unwrap();
    assert_eq!(info.state, LockState::Kept);
    assert!(info.remaining > HOUR / 2 && info.remaining <= HOUR);
    assert!(is_taken(&a, "job").await && is_taken(&b, "job").await);
    assert!(b.force_release("job").await.unwrap());
    assert!(!is_taken(&a, "job").await);

    let start = Instant::now();
    drop(a.lock("j").hold_at_least(SHORT).acquire().await.unwrap());
    drop(b.lock("j").acquire().await.unwrap());
    assert!(start.elapsed() >= SHORT);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_release_is_a_loss_for_the_holder() {
    let database = TestDatabase::new().await;
    let (a, b) = (database.client().await, database.client().await);
    assert!(!b.force_release("job").await.unwrap(), "never taken");
    let old = a.lock("job").ttl(SHORT).acquire().await.unwrap();
    assert!(b.force_release("job").await.unwrap());
    assert!(!b.force_release("job").await.unwrap(), "free already");
    let new = b.lock("job").try_acquire().await.unwrap().unwrap();
    assert!(new.fencing_token() > old.fencing_token());
    old.lost().await;
    assert!(matches!(old.release().await, Err(Error::LockLost { .. })));
    new.release().await.unwrap();
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_client_releases_or_keeps() {
    let database = TestDatabase::new().await;
    let b = database.client().await;
    for (at_close, taken) in [(AtClose::Release, false), (AtClose::Keep, true)] {
        let a = database.client().await;
        let name = format!("{at_close:?}");
        let guard = a.lock(&name).ttl(HOUR).acquire().await.unwrap();
        let signal = guard.cancellation_token();
        let mut waiting = Box::pin(a.lock(&name).ttl(HOUR).acquire());
        assert!(poll_once(waiting.as_mut()).await.is_pending());
        a.close(at_close).await;
        assert!(matches!(waiting.await, Err(Error::Closed)));
        assert!(matches!(
            a.lock("x").try_acquire().await,
            Err(Error::Closed)
        ));
        assert!(matches!(a.counter("x").add(1).await, Err(Error::Closed)));
        assert!(matches!(a.inspect("x").await, Err(Error::Closed)));
        assert_eq!(signal.is_cancelled(), !taken);
        guard.release().await.unwrap_err();
        a.close(at_close).await;
        assert_eq!(is_taken(&b, &name).await, taken, "{at_close:?}");
    }
    database.remove().await;
}

/// Notes that it was dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// As an application has them.
#[derive(Debug, PartialEq)]
enum Failed {
    Printer(&'static str),
    Lock,
}

impl From<Error> for Failed {
    fn from(_: Error) -> Self {
        Self::Lock
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_releases_whatever_comes() {
    let database = TestDatabase::new().await;
    let (a, b) = (database.client().await, database.client().await);
    let sum = a.lock("job").run(async |lease| {
        assert!(lease.is_held() && lease.name() == "job" && lease.fencing_token() > 0);
        assert!(is_taken(&b, "job").await);
        Ok::<_, Error>(1 + 1)
    });
    assert_eq!(sum.await.unwrap(), 2);
    assert!(!is_taken(&b, "job").await);

    let failed = a
        .lock("job")
        .run(async |_| Err::<(), _>(Failed::Printer("no paper")));
    assert_eq!(failed.await.unwrap_err(), Failed::Printer("no paper"));
    assert!(!is_taken(&b, "job").await);
    let invalid = a.lock("").run(async |_| Ok::<(), Failed>(()));
    assert_eq!(invalid.await.unwrap_err(), Failed::Lock);

    let client = a.clone();
    let panicked = tokio::spawn(async move {
        let request = client.lock("job").ttl(HOUR);
        request.run(async |_| -> () { panic!("on purpose") }).await
    });
    assert!(panicked.await.unwrap_err().is_panic());
    let guard = b.lock("job").wait(HOUR / 4).acquire().await.unwrap();
    guard.release().await.unwrap();

    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Flag(Arc::clone(&dropped));
    let cancelled = a.lock("job").ttl(SHORT).run(async move |_| {
        let _flag = flag;
        assert!(b.force_release("job").await.unwrap());
        std::future::pending::<()>().await;
    });
    assert!(matches!(cancelled.await, Err(Error::LockLost { name }) if name == "job"));
    assert!(dropped.load(Ordering::SeqCst), "the work was cancelled");
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_without_sense_are_refused_at_once() {
    let database = TestDatabase::empty().await;
    // Nothing is sent: there is not even a table.
    let client = database.client().await;
    let too_long = "x".repeat(256);
    let requests = [
        (client.lock("job").ttl(Duration::ZERO), "ttl"),
        (client.lock("job").ttl(Duration::MAX), "ttl"),
        (client.lock("job").max_hold(Duration::ZERO), "max_hold"),
        (
            client.lock("job").hold_at_least(Duration::MAX),
            "hold_at_least",
        ),
        (client.lock("job").description(too_long), "description"),
        (client.lock("job").owner(""), "owner"),
    ];
    for (request, expected) in requests {
        match request.try_acquire().await {
            Err(Error::InvalidOption { option, .. }) => assert_eq!(option, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
    database.remove().await;
}

/// All columns of all rows but the stripes.
async fn table(database: &TestDatabase) -> Vec<String> {
    let mut connection = database.connection().await;
    let sql = "SELECT CONCAT_WS(',',lock_name,kind,count,previous,deadline,status,HEX(holder),fence,wanted_until,\
               description,held_by,create_time,modify_time) FROM t_tag_lock WHERE kind <> 0 ORDER BY 1";
    let rows = sqlx::raw_sql(sql).fetch_all(&mut connection).await.unwrap();
    rows.iter()
        .map(|row| row.try_get_unchecked(0).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_changes_nothing() {
    let database = TestDatabase::new().await;
    let (a, b) = (database.client().await, database.client().await);
    let names: Vec<String> = (0..20).map(|number| format!("refused {number}")).collect();
    let mut guards = Vec::new();
    for name in &names {
        let request = a.lock(name).ttl(HOUR).auto_renew(false);
        guards.push(request.try_acquire().await.unwrap().unwrap());
        a.counter(name).set(9).await.unwrap();
    }
    let before = table(&database).await;
    assert_eq!(before.len(), 40);
    // Alone in a packet, and many together with others that are granted.
    for number in [1, names.len()] {
        let others: Vec<String> = (0..number).map(|other| format!("other {other}")).collect();
        let held = join_all(names[..number].iter().map(|name| is_taken(&b, name)));
        let full = join_all(names[..number].iter().map(async |name| {
            let counter = b.counter(name);
            counter.add_within(1, 0..=9).await.unwrap().is_none()
        }));
        let free = join_all(others.iter().map(async |name| {
            let guard = b.lock(name).try_acquire().await.unwrap();
            guard.unwrap().release().await.unwrap();
            b.counter(name).add_within(1, 0..=9).await.unwrap().unwrap();
        }));
        let (held, full, _) = tokio::join!(held, full, free);
        assert!(held.into_iter().all(|held| held) && full.into_iter().all(|full| full));
    }
    let mut after = table(&database).await;
    after.retain(|row| row.starts_with("refused"));
    assert_eq!(after.len(), before.len());
    for (after, before) in after.iter().zip(&before) {
        assert_eq!(after, before);
    }
    drop(guards);
    database.remove().await;
}
