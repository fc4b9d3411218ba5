//! A worker process: tasks that use the library as an application would, and log what they see.

mod bank;
mod counters;
mod crowd;
mod election;
mod holds;
mod jobs;
mod permits;
mod shared;
mod solo;
mod task;
mod together;

use std::error::Error;
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use sqlx::mysql::MySqlConnectOptions;
use tag_lock::{AtClose, LockClient};
use tokio::task::JoinSet;

use self::task::{Books, Task};
use crate::log::Writer;
use crate::setup::{self, Setup};

/// How often a worker tells how far it is.
const TELL: Duration = Duration::from_millis(250);
/// Below the library's default, so that a half-open connection costs less of the run.
const PACKET_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a request may take that waits for no lock.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// After how long a call has its answer, or is told that nobody knows: a packet that was sent in the last moment is settled, and waits for a
/// lock meanwhile.
const CALL: Duration = Duration::from_secs(18);

type Failure = Box<dyn Error + Send + Sync>;

/// Works until standard input ends.
///
/// # Errors
///
/// If the worker cannot start; a fault of the server is none.
pub async fn run(directory: &Path, worker: u32) -> Result<(), Failure> {
    let setup = Arc::new(Setup::read(directory)?);
    let url = std::env::var(setup::URL).map_err(|_| {
        format!(
            "{} is not set: workers are started by a run, not by hand",
            setup::URL
        )
    })?;
    let options: MySqlConnectOptions = url.parse()?;
    let client = connect(&options, worker, &setup).await?;
    // With lanes of its own, for packets that nobody else's work is in.
    let solo_client = connect(&options, worker, &setup).await?;
    let books = Arc::new(Books::new(Writer::create(directory, worker)?));
    let shared = Arc::new(
        std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(Setup::shared(directory))?,
    );
    let mut tasks = JoinSet::new();
    let shares = setup.workload.shares();
    let mut number = 0;
    let mut task = |client: &LockClient| {
        number += 1;
        let mut random = ChaCha8Rng::seed_from_u64(setup.seed);
        random.set_stream(u64::from(worker) << 32 | u64::from(number));
        Task {
            client: client.clone(),
            setup: Arc::clone(&setup),
            books: Arc::clone(&books),
            shared: Arc::clone(&shared),
            options: options.clone(),
            worker,
            number,
            random,
            writes: 0,
        }
    };
    for _ in 0..shares.mutex {
        tasks.spawn(task(&client).mutex());
    }
    for _ in 0..shares.fenced {
        tasks.spawn(task(&client).fenced());
    }
    for _ in 0..shares.tickets {
        tasks.spawn(task(&client).tickets());
    }
    for _ in 0..shares.stock {
        tasks.spawn(task(&client).stock());
    }
    for _ in 0..shares.bank {
        tasks.spawn(task(&client).bank());
    }
    for _ in 0..shares.solo {
        tasks.spawn(task(&solo_client).solo());
    }
    for _ in 0..shares.jobs {
        tasks.spawn(task(&client).jobs());
    }
    for _ in 0..shares.permits {
        tasks.spawn(task(&client).permits());
    }
    for _ in 0..shares.together {
        tasks.spawn(task(&client).together());
    }
    for _ in 0..shares.beside {
        tasks.spawn(task(&client).beside());
    }
    for number in 0..shares.readers {
        // Two clients of one process are as strange to each other as two processes.
        let client = [&client, &solo_client][number as usize % 2];
        tasks.spawn(task(client).reads());
    }
    for _ in 0..shares.vouchers {
        tasks.spawn(task(&client).vouches());
    }
    for _ in 0..shares.writers {
        tasks.spawn(task(&client).writes());
    }
    for _ in 0..shares.candidates {
        tasks.spawn(task(&client).candidate());
    }
    let slot = std::env::var(setup::SLOT).unwrap_or_default();
    let slot: u32 = slot.parse().unwrap_or_default();
    for _ in 0..shares.crowd {
        tasks.spawn(task(&client).crowd(slot));
    }
    for _ in 0..shares.observers {
        tasks.spawn(task(&client).observer());
    }
    // Standard input ends when the run wants the end, and when the run itself is gone.
    let ended = Arc::clone(&books);
    std::thread::spawn(move || {
        for _ in std::io::stdin().lock().lines() {}
        ended.stop();
    });
    let mut tick = tokio::time::interval(TELL);
    while !tasks.is_empty() {
        tokio::select! {
            _ = tick.tick() => tell(&books),
            // A panic in a task is a finding: it ends the worker with a status of its own.
            Some(done) = tasks.join_next() => done?,
        }
    }
    client.close(AtClose::Release).await;
    solo_client.close(AtClose::Release).await;
    tell(&books);
    books.complete();
    Ok(())
}

/// The server may be away in this very moment.
async fn connect(
    options: &MySqlConnectOptions,
    worker: u32,
    setup: &Setup,
) -> Result<LockClient, Failure> {
    loop {
        let builder = LockClient::builder(options.clone())
            .packet_timeout(PACKET_TIMEOUT)
            .request_timeout(REQUEST_TIMEOUT)
            .linger(setup.linger())
            .holder(format!("worker {worker}"));
        match builder.connect().await {
            Ok(client) => return Ok(client),
            Err(tag_lock::Error::InvalidOption { option, reason }) => {
                return Err(format!("{option}: {reason}").into());
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

fn tell(books: &Books) {
    let (sections, increments, operations) = books.so_far();
    let mut out = std::io::stdout().lock();
    // When the run is gone, standard input ends too.
    let _ = writeln!(out, "{sections} {increments} {operations}").and_then(|()| out.flush());
}
