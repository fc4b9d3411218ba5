//! How late the machine is: what a test may hold against the library is what is left without that.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use sqlx::{AssertSqlSafe, Connection};

use super::{connect, server_url};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// A look that takes longer, its pause excepted, is late.
const USUAL: Duration = Duration::from_millis(30);
/// How often an attempt is made, each with twice the time of the one before.
const ATTEMPTS: u32 = 6;

/// Looks all the time at how long a pause and a commit take, from a thread of its own, past all proxies: a process, a
/// server or a machine that stands still, or is slow, shows in both.
pub struct Lateness {
    began: Instant,
    sums: Arc<Sums>,
}

#[derive(Default)]
struct Sums {
    /// Microseconds by which looks were late that have ended.
    late: AtomicU64,
    /// How long the longest look took, in microseconds.
    longest: AtomicU64,
    /// When the present look began, in microseconds since the first.
    look: AtomicU64,
    /// The looks that were late.
    periods: Mutex<Vec<(Instant, Instant)>>,
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("a short time")
}

/// How late a look is that has taken so long.
fn late(took: Duration) -> Duration {
    match took.checked_sub(PAUSE) {
        Some(late) if late > USUAL => late,
        _ => Duration::ZERO,
    }
}

impl Lateness {
    /// Begins to look. It ends with the value.
    pub fn watch() -> Self {
        let (began, sums) = (Instant::now(), Arc::<Sums>::default());
        let (ready, begun) = std::sync::mpsc::channel();
        let mine = Arc::clone(&sums);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(look(began, &mine, ready));
        });
        begun.recv().expect("it looks");
        Self { began, sums }
    }

    /// When it was late so far, from the beginning to the end of each look.
    pub fn periods(&self) -> Vec<(Instant, Instant)> {
        self.sums.periods.lock().expect("no panic").clone()
    }

    /// How long a commit took at the most, of those that have ended.
    pub fn longest(&self) -> Duration {
        let longest = Duration::from_micros(self.sums.longest.load(Ordering::SeqCst));
        longest.saturating_sub(PAUSE)
    }

    /// By how much the machine was late in all.
    pub fn so_far(&self) -> Duration {
        let look = Duration::from_micros(self.sums.look.load(Ordering::SeqCst));
        let present = late(self.began.elapsed().saturating_sub(look));
        Duration::from_micros(self.sums.late.load(Ordering::SeqCst)) + present
    }
}

/// Until nobody wants to know any more.
async fn look(began: Instant, sums: &Arc<Sums>, ready: std::sync::mpsc::Sender<()>) {
    let mut connection = connect(&server_url()).await;
    let table = format!("lateness_{:016x}", rand::random::<u64>());
    let mut change = async |sql: &str| {
        let sql = AssertSqlSafe(sql.replace("{}", &table));
        // A server that is gone for a while is no reason to fail: a look that fails is a short one.
        let _ = sqlx::raw_sql(sql).execute(&mut connection).await;
    };
    change("CREATE TABLE {} (n BIGINT NOT NULL); INSERT INTO {} VALUES (0)").await;
    sums.look.store(micros(began.elapsed()), Ordering::SeqCst);
    let _ = ready.send(());
    let mut last = Instant::now();
    while Arc::strong_count(sums) > 1 {
        tokio::time::sleep(PAUSE).await;
        change("UPDATE {} SET n = n + 1").await;
        let now = Instant::now();
        sums.longest.fetch_max(micros(now - last), Ordering::SeqCst);
        if !late(now - last).is_zero() {
            sums.periods.lock().expect("no panic").push((last, now));
        }
        sums.late
            .fetch_add(micros(late(now - last)), Ordering::SeqCst);
        sums.look.store(micros(now - began), Ordering::SeqCst);
        last = now;
    }
    change("DROP TABLE {}").await;
    let _ = connection.close().await;
}

/// What no lateness excuses.
struct Wrong;

/// Asserts what has to hold on every machine, however late it is: no other attempt makes up for it.
#[track_caller]
pub fn assert_on_any_machine(holds: bool, what: &str) {
    if !holds {
        eprintln!("{}: {what}", std::panic::Location::caller());
        std::panic::panic_any(Wrong);
    }
}

/// What a task gave; if it panicked, so does this.
pub async fn joined<T>(task: tokio::task::JoinHandle<T>) -> T {
    match task.await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Runs a test that needs its machine to be on time, with a ttl. An attempt that fails while the machine was late by
/// more than an eighth of the ttl shows nothing: it is made again, with twice the ttl. One that fails on a machine
/// that is on time fails the test, as does the last one.
pub async fn with_ttl(ttl: Duration, attempt: impl AsyncFn(Duration)) {
    for number in 0.. {
        let ttl = ttl * 2_u32.pow(number);
        let lateness = Lateness::watch();
        let Err(failure) = AssertUnwindSafe(attempt(ttl)).catch_unwind().await else {
            return;
        };
        let late = lateness.so_far();
        if late <= ttl / 8 || number + 1 == ATTEMPTS || failure.is::<Wrong>() {
            println!("failed with a ttl of {ttl:?}; the machine was late by {late:?}");
            std::panic::resume_unwind(failure);
        }
        println!("the machine was late by {late:?}: again, with twice the ttl of {ttl:?}");
    }
}
