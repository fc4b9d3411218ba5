//! Futures of the public API dropped at any moment: nothing stays behind, and the client works on.
//!
//! `TAG_LOCK_TEST_ROUNDS` is the number of drops (2,000 by default), `TAG_LOCK_TEST_SEED` draws their moments.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::support::dropping::DropAfter;
use crate::support::lateness::Lateness;
use crate::support::ledger::{TTL, rounds, seed};
use crate::support::proxy::{Command, Fault, Gate, Hold, Proxy, RandomFaults, once};
use crate::support::{TestDatabase, connected, eventually, is_batch, number, patient};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tag_lock::{AtClose, Error, LockClient};
use tokio::task::JoinSet;

const TASKS: u64 = 24;
const NAMES: u32 = 12;

/// Runs a future to some moment of its life, and drops it; its output if it was faster.
async fn dropped<F: Future>(random: &mut StdRng, future: F) -> Option<F::Output> {
    if random.random_bool(0.5) {
        let polls = random.random_range(0..6);
        let future = Box::pin(future);
        DropAfter { future, polls }.await
    } else {
        let after = Duration::from_micros(random.random_range(0..25_000));
        tokio::time::timeout(after, future).await.ok()
    }
}

/// What the tasks did to the counters.
struct Books {
    attempted: AtomicI64,
    acknowledged: AtomicI64,
    dropped: AtomicU64,
    lateness: Lateness,
}

struct Task {
    client: LockClient,
    url: String,
    random: StdRng,
    books: Arc<Books>,
}

impl Task {
    fn name(&mut self) -> String {
        format!("lock {}", self.random.random_range(0..NAMES))
    }

    /// One future, dropped at some moment.
    async fn round(&mut self) {
        let client = self.client.clone();
        let kind = self.random.random_range(0..100);
        let finished = match kind {
            0..45 => self.lock(&client, kind % 3).await,
            45..80 => self.count(&client, kind % 5).await,
            80..92 => self.look(&client, kind % 3).await,
            92..94 => dropped(&mut self.random, client.migrate())
                .await
                .map(expect),
            _ => self.connect_and_close(kind % 3).await,
        };
        if finished.is_none() {
            self.books.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn lock(&mut self, client: &LockClient, kind: u32) -> Option<()> {
        let (name, renews) = (self.name(), self.random.random_bool(0.5));
        let pause = Duration::from_micros(self.random.random_range(0..3_000));
        let waits_briefly = kind > 1;
        let late_before = self.books.lateness.so_far();
        let mut request = client.lock(&name).ttl(TTL).auto_renew(renews);
        if self.random.random_bool(0.1) {
            request = request.owner(format!("owner {}", self.random.random_range(0..3)));
        }
        let holding = async {
            match kind {
                0 => {
                    let guard = request.acquire().await?;
                    tokio::time::sleep(pause).await;
                    guard.release().await
                }
                1 => match request.try_acquire().await? {
                    Some(guard) => {
                        guard.extend(TTL).await?;
                        guard.release().await
                    }
                    None => Ok(()),
                },
                _ => {
                    let work = |_| tokio::time::sleep(pause);
                    request.wait(4 * pause).run(work).await
                }
            }
        };
        let result = dropped(&mut self.random, holding).await;
        // However short the wait, a request has a second for its answer.
        let late = self.books.lateness.so_far() - late_before > Duration::from_millis(250);
        result.map(|result| match result {
            // Another task releases by force.
            Ok(()) | Err(Error::LockLost { .. } | Error::Timeout { .. }) => {}
            Err(Error::Unreachable { .. }) if waits_briefly && late => {}
            Err(other) => panic!("{other:?}"),
        })
    }

    async fn count(&mut self, client: &LockClient, kind: u32) -> Option<()> {
        let (counter, other) = (client.counter("added"), client.counter("other"));
        let random = &mut self.random;
        match kind {
            0 => {
                self.books.attempted.fetch_add(1, Ordering::SeqCst);
                let value = dropped(random, counter.add(1)).await?;
                expect(value);
                self.books.acknowledged.fetch_add(1, Ordering::SeqCst);
                Some(())
            }
            1 => {
                let stock = client.counter("stock");
                let value = dropped(random, stock.add_within(-1, 0..)).await?;
                assert!(expect(value).is_none_or(|left| left >= 0));
                Some(())
            }
            2 => dropped(random, other.set(1)).await.map(expect).map(drop),
            3 => dropped(random, other.compare_exchange(1, 2))
                .await
                .map(expect)
                .map(drop),
            _ => dropped(random, counter.get()).await.map(expect).map(drop),
        }
    }

    async fn look(&mut self, client: &LockClient, kind: u32) -> Option<()> {
        let name = self.name();
        let random = &mut self.random;
        match kind {
            0 => dropped(random, client.inspect(&name))
                .await
                .map(expect)
                .map(drop),
            1 => dropped(random, client.list("", None, 7))
                .await
                .map(expect)
                .map(drop),
            _ => dropped(random, client.force_release(&name))
                .await
                .map(expect)
                .map(drop),
        }
    }

    /// A client of its own, of which any await may be the last.
    async fn connect_and_close(&mut self, kind: u32) -> Option<()> {
        let url = self.url.clone();
        let client = dropped(&mut self.random, LockClient::connect(&url)).await;
        let Some(client) = client else {
            // Once more, so that there is something to close.
            let client = expect(LockClient::connect(&url).await);
            return self.close(client, kind).await;
        };
        self.close(expect(client), kind).await
    }

    async fn close(&mut self, client: LockClient, kind: u32) -> Option<()> {
        let name = self.name();
        let acquiring = {
            let (client, name) = (client.clone(), name.clone());
            tokio::spawn(async move {
                match client.lock(&name).ttl(TTL).acquire().await {
                    Ok(guard) => drop(guard),
                    Err(Error::Closed) => {}
                    Err(other) => panic!("{other:?}"),
                }
            })
        };
        tokio::time::sleep(Duration::from_micros(self.random.random_range(0..15_000))).await;
        let closed = dropped(&mut self.random, client.close(AtClose::Release)).await;
        if kind == 0 {
            acquiring.abort();
        }
        match acquiring.await {
            Ok(()) => {}
            Err(error) => assert!(error.is_cancelled(), "{error}"),
        }
        closed
    }
}

fn expect<T>(result: Result<T, Error>) -> T {
    result.expect("no error")
}

/// So many looks in a row, 20 ms apart: replies are held for 40 ms.
const QUIET: u32 = 25;

/// What is left of the clients on the server once they are quiet.
async fn assert_quiet(database: &TestDatabase) {
    let leases = "SELECT COUNT(*) FROM t_tag_lock WHERE kind = 1 AND status <> 0";
    let transactions = format!(
        "SELECT COUNT(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p \
         ON p.id = x.trx_mysql_thread_id WHERE p.db = '{}' AND p.id <> CONNECTION_ID()",
        database.name
    );
    // What was on its way comes to its end; the leases are so long that none ends by itself. An acquire that nobody waits for any more may
    // stand behind a packet whose reply is late: nobody sees it there. So it counts as quiet when it has been so for longer than that.
    eventually(
        "for a while neither a lease nor a transaction is there",
        async || {
            let mut connection = database.connection().await;
            for _ in 0..QUIET {
                let held = number(&mut connection, leases).await;
                if held + number(&mut connection, &transactions).await > 0 {
                    return false;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            true
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn any_future_dropped_at_any_moment() {
    let (rounds, seed) = (rounds(2_000), seed());
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(&database.url).await.expect("a proxy");
    proxy.set_delay(Duration::from_millis(1), Duration::from_millis(2));
    proxy.set_jitter(Duration::from_millis(3));
    let slow = Fault::HoldReply(Hold::For(Duration::from_millis(40)));
    let slow_commits = RandomFaults::new(seed)
        .only(Command::contains_commit)
        .with(0.05, slow);
    proxy.on_command(slow_commits.into_hook());
    let url = proxy.url(&database.url);
    // Two, so that locks also pass between clients.
    let clients = [
        connected(patient(&url)).await,
        connected(patient(&url)).await,
    ];
    expect(clients[0].counter("stock").set(200).await);
    let books = Arc::new(Books {
        attempted: AtomicI64::new(0),
        acknowledged: AtomicI64::new(0),
        dropped: AtomicU64::new(0),
        lateness: Lateness::watch(),
    });
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let mut task = Task {
            client: clients[usize::try_from(number % 2).unwrap()].clone(),
            url: url.clone(),
            random: StdRng::seed_from_u64(seed ^ number << 48),
            books: Arc::clone(&books),
        };
        tasks.spawn(async move {
            while task.books.dropped.load(Ordering::Relaxed) < rounds {
                task.round().await;
            }
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.expect("a task without a panic");
    }
    assert_quiet(&database).await;

    // The clients work, and every name can be had.
    for client in &clients {
        for name in 0..NAMES {
            let guard = client
                .lock(&format!("lock {name}"))
                .ttl(TTL)
                .acquire()
                .await;
            expect(expect(guard).release().await);
        }
        assert_eq!(expect(client.list("", None, 100).await), []);
    }
    let value = expect(clients[0].counter("added").get().await);
    let (acknowledged, attempted) = (
        books.acknowledged.load(Ordering::SeqCst),
        books.attempted.load(Ordering::SeqCst),
    );
    println!("{acknowledged} acknowledged <= {value} <= {attempted} attempted");
    assert!((acknowledged..=attempted).contains(&value));
    assert_eq!(expect(clients[1].counter("added").add(1).await), value + 1);

    for client in clients {
        client.close(AtClose::Release).await;
    }
    // Of the clients that were dropped while they connected or closed, too, no connection is left.
    proxy.all_closed().await;
    database.remove().await;
}

/// A grant that is on its way when the client is closed is released, whether its caller still waits or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_on_its_way_at_close_is_released() {
    for waits in [false, true] {
        let database = TestDatabase::new().await;
        let proxy = Proxy::before(&database.url).await.expect("a proxy");
        let client = LockClient::connect(&proxy.url(&database.url))
            .await
            .expect("connects");
        expect(client.counter("warm").add(1).await);
        let gate = Gate::new();
        let held = Fault::HoldReply(Hold::Until(gate.clone()));
        // Now the row exists: the next acquire is one batch.
        let guard = client.lock("closing").ttl(TTL).acquire().await;
        expect(expect(guard).release().await);
        proxy.on_command(once(is_batch, held));
        let acquiring = {
            let client = client.clone();
            tokio::spawn(async move { client.lock("closing").ttl(TTL).acquire().await.map(drop) })
        };
        gate.reached().await;
        if !waits {
            acquiring.abort();
        }
        let mut closing = Box::pin(client.close(AtClose::Release));
        let begun =
            std::future::poll_fn(|context| Poll::Ready(closing.as_mut().poll(context))).await;
        assert!(begun.is_pending(), "the lane waits for its reply");
        gate.open();
        closing.await;
        match acquiring.await {
            Ok(result) => assert!(matches!(result, Err(Error::Closed)), "{result:?}"),
            Err(error) => assert!(error.is_cancelled()),
        }
        let held = "SELECT COUNT(*) FROM t_tag_lock WHERE kind = 1 AND status <> 0";
        let leaked = number(&mut database.connection().await, held).await;
        assert_eq!(leaked, 0, "waits: {waits}");
        database.remove().await;
    }
}
