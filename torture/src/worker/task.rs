//! What all tasks have: names, chance, and books of what they did.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use sqlx::mysql::{MySqlConnectOptions, MySqlDatabaseError};
use tag_lock::{Error, LockClient};

use super::CALL;
use crate::history::{Event, Invocation, Operation, Outcome, Record};
use crate::instant::{nanos, now};
use crate::log::Writer;
use crate::setup::{self, Setup};

/// What may come later is a matter of the worker's own scheduling.
const NOTABLE: Duration = Duration::from_millis(250);
/// Errors of access, syntax, and unknown names:
/// <https://dev.mysql.com/doc/mysql-errors/en/server-error-reference.html>.
const MISTAKES: [u16; 7] = [1044, 1045, 1054, 1064, 1142, 1146, 1149];

/// A worker's log, and how far the worker is.
pub(super) struct Books {
    log: Writer,
    stopped: AtomicBool,
    sections: AtomicU64,
    increments: AtomicU64,
    operations: AtomicU64,
}

impl Books {
    pub(super) fn new(log: Writer) -> Self {
        Self {
            log,
            stopped: AtomicBool::new(false),
            sections: AtomicU64::new(0),
            increments: AtomicU64::new(0),
            operations: AtomicU64::new(0),
        }
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Critical sections, acknowledged increments, operations.
    pub(super) fn so_far(&self) -> (u64, u64, u64) {
        (
            self.sections.load(Ordering::Relaxed),
            self.increments.load(Ordering::Relaxed),
            self.operations.load(Ordering::Relaxed),
        )
    }

    pub(super) fn complete(&self) {
        written(self.log.complete());
    }

    fn note(&self, event: &Event) {
        self.operations.fetch_add(1, Ordering::Relaxed);
        match event {
            Event::Section { .. }
            | Event::Transfer {
                outcome: Outcome::Done,
                ..
            }
            | Event::Attempt {
                outcome: Outcome::Done,
                ..
            }
            | Event::FencedWrite { .. }
            | Event::Looked { .. }
            | Event::Vouched {
                outcome: Outcome::Done,
                ..
            } => {
                self.sections.fetch_add(1, Ordering::Relaxed);
            }
            Event::Added {
                delta,
                outcome: Outcome::Done,
                ..
            } if *delta != 0 => {
                self.increments.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// One task of a worker. It does one thing after another.
pub(super) struct Task {
    pub(super) client: LockClient,
    pub(super) setup: Arc<Setup>,
    pub(super) books: Arc<Books>,
    pub(super) shared: Arc<File>,
    /// For connections of the application's own.
    pub(super) options: MySqlConnectOptions,
    pub(super) worker: u32,
    pub(super) number: u32,
    pub(super) random: ChaCha8Rng,
    /// How many unprotected values it has written.
    pub(super) writes: u32,
}

/// A lock or counter, with its place in the file of unprotected values.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) name: Arc<str>,
    number: u32,
    offset: u64,
}

/// More than any kind of work has names. Where nothing was written, the file of unprotected values takes no room.
const MOST_NAMES: u32 = 1 << 16;

impl Place {
    /// `kind` tells the kinds' unprotected values apart.
    pub(super) fn new(kind: u32, number: u32, name: String) -> Self {
        Self {
            name: name.into(),
            number,
            offset: u64::from(kind * MOST_NAMES + number) * 8,
        }
    }

    /// Its number among those of its kind.
    pub(super) fn number(&self) -> u32 {
        self.number
    }
}

impl Task {
    pub(super) fn is_stopped(&self) -> bool {
        self.books.stopped.load(Ordering::Relaxed)
    }

    /// One of a few counters: many tasks add to each.
    pub(super) fn counter(&mut self, word: &str) -> Arc<str> {
        setup::counter(word, &mut self.random).into()
    }

    /// One of the locks of a kind of work. `kind` tells the kinds' unprotected values apart.
    pub(super) fn place(&mut self, kind: u32, word: &str) -> Place {
        let number = self.random.random_range(0..self.setup.names);
        Place::new(kind, number, format!("{word}:{number}"))
    }

    /// One of the few names of a kind of work for which there is a crowd.
    pub(super) fn crowded_place(&mut self, kind: u32, word: &str) -> Place {
        let names = self.setup.names.min(setup::CROWDED);
        let number = self.random.random_range(0..names);
        Place::new(kind, number, format!("{word}:{number}"))
    }

    pub(super) fn chance(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    pub(super) fn up_to(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.random.random())
    }

    /// Writes that the tasks of this worker have a client each.
    pub(super) fn is_apart(&self) {
        written(self.books.log.apart());
    }

    /// Writes that something is about to begin; gives the instant.
    pub(super) fn invoked(&self, name: &Arc<str>, operation: Operation) -> u64 {
        let invoked = now();
        self.begins(name, invoked, operation);
        invoked
    }

    /// Writes that something is about to begin that counts from then on.
    pub(super) fn begins(&self, name: &Arc<str>, invoked: u64, operation: Operation) {
        written(self.books.log.invoked(&Invocation {
            worker: self.worker,
            task: self.number,
            name: Arc::clone(name),
            invoked,
            operation,
        }));
    }

    /// Writes that it ended just now.
    pub(super) fn ended(&self, name: &Arc<str>, invoked: u64, event: Event) {
        self.ended_at(name, (invoked, now()), event);
    }

    /// Writes it down if a call that ended just now took notably longer than it was to.
    pub(super) fn was_to_end_within(&self, name: &Arc<str>, invoked: u64, limit: Duration) {
        let limit = nanos(limit);
        if now().saturating_sub(invoked) > limit.saturating_add(nanos(NOTABLE)) {
            self.ended(name, invoked, Event::Overran { limit });
        }
    }

    /// The same of an acquire that waited for so long at the most; one that tried took as long as any other call.
    pub(super) fn waited(&self, name: &Arc<str>, invoked: u64, tried: bool, wait: Duration) {
        let limit = if tried { CALL } else { wait };
        self.was_to_end_within(name, invoked, limit);
    }

    /// Writes that it began and ended at these instants.
    pub(super) fn ended_at(&self, name: &Arc<str>, (invoked, returned): (u64, u64), event: Event) {
        if !matches!(event, Event::Overran { .. }) {
            self.books.note(&event);
        }
        written(self.books.log.ended(&Record {
            worker: self.worker,
            task: self.number,
            name: Arc::clone(name),
            invoked,
            returned,
            event,
        }));
    }

    /// The unprotected value.
    pub(super) fn read(&self, place: &Place) -> u64 {
        let mut value = [0; 8];
        // Behind the end of the file there is nothing yet.
        match self.shared.read_at(&mut value, place.offset) {
            Ok(8) => u64::from_le_bytes(value),
            Ok(_) => 0,
            Err(error) => fatal(&format!("the shared values cannot be read: {error}")),
        }
    }

    pub(super) fn write(&self, place: &Place, value: u64) {
        if let Err(error) = self.shared.write_all_at(&value.to_le_bytes(), place.offset) {
            fatal(&format!("the shared values cannot be written: {error}"));
        }
    }

    /// A value that no other section writes.
    pub(super) fn fresh_value(&mut self) -> u64 {
        self.writes += 1;
        u64::from(self.worker) << 44 | u64::from(self.number) << 28 | u64::from(self.writes)
    }

    /// The value is read, some time passes, and it is written again: under a lock nobody else's write falls between.
    /// `false`: `is_held` said no before the write, and nothing was written.
    pub(super) async fn section(
        &mut self,
        place: &Place,
        token: u64,
        pause: Duration,
        is_held: impl Fn() -> bool,
    ) -> bool {
        let read = self.read(place);
        if pause.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(pause).await;
        }
        if !is_held() {
            return false;
        }
        let wrote = self.fresh_value();
        let invoked = self.invoked(&place.name, Operation::Section { token, read, wrote });
        self.write(place, wrote);
        self.ended(&place.name, invoked, Event::Section { token, read, wrote });
        true
    }
}

/// Ends the worker if the server says that the rig itself is wrong: no fault makes statements wrong.
pub(super) fn expect_a_fault(error: &sqlx::Error) {
    if let sqlx::Error::Database(said) = error
        && let Some(said) = said.try_downcast_ref::<MySqlDatabaseError>()
        && MISTAKES.contains(&said.number())
    {
        fatal(&format!("a statement of the rig's is wrong: {error}"));
    }
}

/// What an error says about whether something was done.
pub(super) fn outcome_of(error: &Error) -> Outcome {
    match error {
        Error::Timeout { .. } => Outcome::Refused,
        Error::LockLost { .. } => Outcome::Lost,
        Error::OutcomeUnknown { .. } => Outcome::Unknown,
        // These would be mistakes of the rig's or the library's, and no fault leads to them.
        Error::InvalidName { .. }
        | Error::InvalidOption { .. }
        | Error::NotMigrated { .. }
        | Error::NoDatabase { .. }
        | Error::OperationMismatch { .. }
        | Error::Overflow { .. }
        | Error::Closed => fatal(&format!("an error that no fault explains: {error}")),
        _ => Outcome::Failed,
    }
}

fn written(result: std::io::Result<()>) {
    if let Err(error) = result {
        fatal(&format!("the log cannot be written: {error}"));
    }
}

/// Ends the worker: the run takes its status for a finding.
pub(super) fn fatal(what: &str) -> ! {
    eprintln!("worker: {what}");
    std::process::exit(70);
}
