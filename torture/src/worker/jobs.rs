//! Tasks that run slots of a job: a slot comes with each tick, and is asked for by many, some of them late.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt;
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;
use tag_lock::{Error, JobLease, RunOnce};

use super::bank::LIMIT;
use super::task::{Task, expect_a_fault, outcome_of};
use crate::bank;
use crate::history::{Booked, Event, Operation, Outcome};
use crate::instant::{nanos, now};

/// How often a slot comes.
const TICK: Duration = Duration::from_millis(100);

/// What the work is to do.
#[derive(Debug, Clone, Copy)]
struct Plan {
    pause: Duration,
    /// It fails behind the pause.
    fails: bool,
    /// It records its slot as done in a transaction of its own.
    booked: bool,
    /// Nobody waits for its end any more behind this time.
    patience: Duration,
}

/// How far an attempt came.
#[derive(Default)]
struct Course {
    /// 0: the work did not begin.
    token: AtomicU64,
    /// 1: from here on the slot may be done.
    ends: AtomicU64,
}

impl Task {
    pub(super) async fn jobs(mut self) {
        let mut connection = None;
        while !self.is_stopped() {
            if connection.is_none() {
                connection = self.open().await;
            }
            let Some(usable) = connection.as_mut() else {
                self.rest().await;
                continue;
            };
            if !self.attempt(usable).await {
                connection = None;
            }
            self.rest().await;
        }
    }

    /// One attempt. Whether the connection can be used again.
    async fn attempt(&mut self, connection: &mut MySqlConnection) -> bool {
        let behind = match self.random.random_range(0..10) {
            0..7 => 3,
            7..9 => 30,
            _ => 300,
        };
        let slot = (now() / nanos(TICK)).saturating_sub(self.random.random_range(0..behind));
        let name: Arc<str> = format!("jobs@{slot}").into();
        let longest = match self.random.random_range(0..100) {
            0..80 => Duration::from_millis(5),
            80..99 => Duration::from_millis(200),
            // Longer than a lease.
            _ => 2 * self.setup.ttl(),
        };
        let plan = Plan {
            pause: self.up_to(longest),
            fails: self.chance(15),
            booked: self.chance(50),
            patience: if self.chance(5) {
                self.up_to(Duration::from_millis(30))
            } else {
                Duration::MAX
            },
        };
        let booked = plan.booked;
        let invoked = self.invoked(&name, Operation::Attempt { booked });
        let row = Booked {
            name: Arc::clone(&name),
            worker: self.worker,
            task: self.number,
            invoked,
        };
        let course = Course::default();
        let work = async |lease: JobLease| {
            course.token.store(lease.fencing_token(), Ordering::Relaxed);
            work(connection, &lease, &row, plan, &course).await
        };
        let attempt = self.client.job("jobs").slot(slot).ttl(self.setup.ttl());
        let ran = tokio::time::timeout(plan.patience, attempt.run_once(work)).await;
        let token = course.token.load(Ordering::Relaxed);
        let ends = course.ends.load(Ordering::Relaxed) > 0;
        let (outcome, done, clean) = match ran {
            Ok(Ok(RunOnce::Done(()))) => (Outcome::Done, true, true),
            Ok(Ok(RunOnce::AlreadyDone)) => (Outcome::Refused, true, true),
            Ok(Ok(RunOnce::Busy)) => (Outcome::Refused, false, true),
            Ok(Err(failed)) => {
                let outcome = match &failed {
                    Failed::Work | Failed::Connection => Outcome::Failed,
                    Failed::Lock(error) => outcome_of(error),
                };
                let outcome = match outcome {
                    // Its transaction was committed: where it stands in the ledger, the library is wrong.
                    outcome if is_unfinished(&failed) => outcome,
                    // It may be done all the same.
                    Outcome::Failed if ends => Outcome::Unknown,
                    outcome => outcome,
                };
                (outcome, false, matches!(failed, Failed::Work))
            }
            // Dropped: the work, or the record that it has ended.
            Err(_) if ends => (Outcome::Unknown, false, false),
            Err(_) => (Outcome::Failed, false, false),
        };
        let event = Event::Attempt {
            token,
            booked,
            done,
            outcome,
        };
        self.ended(&name, invoked, event);
        clean
    }
}

async fn work(
    connection: &mut MySqlConnection,
    lease: &JobLease,
    row: &Booked,
    plan: Plan,
    course: &Course,
) -> Result<(), Failed> {
    tokio::time::sleep(plan.pause).await;
    if plan.booked {
        let transaction = async {
            let mut transaction = connection.begin().await?;
            lease.finish_in(&mut transaction).await?;
            bank::book(&mut transaction, row).await?;
            if plan.fails {
                transaction.rollback().await?;
                return Err(Failed::Work);
            }
            course.ends.store(1, Ordering::Relaxed);
            transaction.commit().await?;
            Ok(())
        };
        let limited = tokio::time::timeout(LIMIT, transaction).await;
        return limited.unwrap_or(Err(Failed::Connection));
    }
    if plan.fails {
        return Err(Failed::Work);
    }
    course.ends.store(1, Ordering::Relaxed);
    Ok(())
}

/// The library says that the transaction of work that has succeeded was not committed.
fn is_unfinished(failed: &Failed) -> bool {
    matches!(failed, Failed::Lock(Error::NotFinished { .. }))
}

/// Why an attempt went no further.
enum Failed {
    Work,
    Lock(Error),
    Connection,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        expect_a_fault(&error);
        Self::Connection
    }
}
