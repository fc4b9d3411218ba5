//! Tasks that move amounts between two accounts, in transactions of their own that verify their lock.

use std::time::Duration;

use rand::RngExt;
use sqlx::mysql::MySqlConnection;
use sqlx::{ConnectOptions, Connection};
use tag_lock::{Error, LockGuard};

use super::holds::NEVER;
use super::task::{Place, Task, expect_a_fault, outcome_of};
use crate::bank::{self, Transfer};
use crate::history::{Event, Operation, Outcome};
use crate::instant::now;

const BANK: u32 = 2;
/// How long a transaction may take, all statements together, before the task closes its connection.
pub(super) const LIMIT: Duration = Duration::from_secs(6);

/// What becomes of the lock in the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Released after the commit.
    After,
    /// Released by the transaction.
    Within,
    /// The guard is dropped before the commit: whoever is next has to wait for that.
    Before,
    /// The transaction is rolled back.
    Undone,
}

/// How a transaction went on.
struct Done {
    outcome: Outcome,
    /// When its COMMIT was sent.
    committing: u64,
    /// The addition to the counter that was part of it: when it was begun, and the value it gave, if it did.
    added: Option<(u64, Option<i64>)>,
}

impl Task {
    pub(super) async fn bank(mut self) {
        let mut connection = None;
        while !self.is_stopped() {
            if connection.is_none() {
                connection = self.open().await;
            }
            let Some(usable) = connection.as_mut() else {
                self.rest().await;
                continue;
            };
            let place = self.place(BANK, "bank");
            let Some(guard) = self.acquire(&place).await else {
                continue;
            };
            let ending = self.ending();
            let clean = self.transfer(usable, &place, guard, ending).await;
            if !clean {
                // What is still under way on it must not meet the next transaction.
                connection = None;
            }
        }
    }

    pub(super) fn ending(&mut self) -> Ending {
        match self.random.random_range(0..100) {
            0..55 => Ending::After,
            55..75 => Ending::Within,
            75..90 => Ending::Before,
            _ => Ending::Undone,
        }
    }

    pub(super) async fn open(&mut self) -> Option<MySqlConnection> {
        let options = self.options.clone().disable_statement_logging();
        let opening = async {
            let mut connection = options.connect().await?;
            let isolation = bank::isolation(self.number);
            bank::run(&mut connection, isolation).await?;
            Ok::<_, sqlx::Error>(connection)
        };
        let opened = tokio::time::timeout(LIMIT, opening).await.ok()?;
        opened.inspect_err(expect_a_fault).ok()
    }

    /// One transaction. Whether the connection can be used again.
    pub(super) async fn transfer(
        &mut self,
        connection: &mut MySqlConnection,
        place: &Place,
        guard: LockGuard,
        ending: Ending,
    ) -> bool {
        let token = guard.fencing_token();
        let amount = self.random.random_range(-100..=100);
        let adds = self.chance(30).then(|| format!("moved:{}", place.number()));
        let invoked = self.invoked(&place.name, Operation::Transfer { token, amount });
        let transfer = Transfer {
            name: place.name.to_string(),
            worker: self.worker,
            task: self.number,
            invoked,
            token,
            amount,
        };
        let mut guard = Some(guard);
        let mut done = Done {
            outcome: Outcome::Failed,
            committing: NEVER,
            added: None,
        };
        let work = self.work(
            connection,
            place,
            &transfer,
            adds.as_deref(),
            ending,
            &mut guard,
            &mut done,
        );
        let clean = match tokio::time::timeout(LIMIT, work).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                if done.outcome == Outcome::Failed {
                    done.outcome = outcome_in_transaction(&error);
                }
                false
            }
            Err(_) => false,
        };
        let outcome = done.outcome;
        if let (Some((begun, value)), Some(name)) = (done.added, adds) {
            self.ended(
                &name.into(),
                begun,
                Event::Added {
                    delta: amount,
                    low: None,
                    high: None,
                    value: value.filter(|_| outcome == Outcome::Done),
                    outcome,
                },
            );
        }
        self.ended(
            &place.name,
            invoked,
            Event::Transfer {
                token,
                amount,
                committing: done.committing,
                outcome,
            },
        );
        // Only of a transaction that was committed is it certain that its row was locked until then.
        let trusted_until = if outcome == Outcome::Done {
            done.committing
        } else {
            NEVER
        };
        self.held(place, token, trusted_until);
        match guard {
            Some(guard) if ending != Ending::Within || !clean => {
                self.give_back(place, guard, true).await
            }
            guard => drop(guard),
        }
        clean
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "the steps of one transaction share all of it"
    )]
    async fn work(
        &mut self,
        connection: &mut MySqlConnection,
        place: &Place,
        transfer: &Transfer,
        adds: Option<&str>,
        ending: Ending,
        guard: &mut Option<LockGuard>,
        done: &mut Done,
    ) -> Result<(), Failed> {
        let Some(held) = guard.as_ref() else {
            return Ok(());
        };
        let mut transaction = connection.begin().await?;
        held.verify_in(&mut transaction).await?;
        let longest = match self.random.random_range(0..1_000) {
            0..800 => Duration::ZERO,
            800..990 => Duration::from_millis(10),
            // Whoever does not want this very lock must not be kept waiting by it.
            _ => Duration::from_millis(2_500),
        };
        tokio::time::sleep(self.up_to(longest)).await;
        transfer.write(&mut transaction).await?;
        if let Some(name) = adds {
            let client = self.client.clone();
            let counter: std::sync::Arc<str> = name.into();
            let begun = self.invoked(
                &counter,
                Operation::Add {
                    delta: transfer.amount,
                    low: None,
                    high: None,
                },
            );
            done.added = Some((begun, None));
            let value = client
                .counter(name)
                .add_in(&mut transaction, transfer.amount)
                .await?;
            done.added = Some((begun, Some(value)));
        }
        match ending {
            Ending::Undone => {
                transaction.rollback().await?;
                return Ok(());
            }
            Ending::Within => held.release_in(&mut transaction).await?,
            Ending::Before => {
                // The transaction holds the lock's row: until it ends, this is as good as the guard.
                *guard = None;
                self.section(place, transfer.token, Duration::from_millis(3), || true)
                    .await;
            }
            Ending::After => {}
        }
        // From here on it may be committed.
        done.outcome = Outcome::Unknown;
        done.committing = now();
        transaction.commit().await?;
        done.outcome = Outcome::Done;
        Ok(())
    }
}

/// Why a transaction went no further.
pub(super) enum Failed {
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

pub(super) fn outcome_in_transaction(failed: &Failed) -> Outcome {
    match failed {
        // Nothing was committed, whatever is unknown.
        Failed::Lock(error) => match outcome_of(error) {
            Outcome::Lost => Outcome::Lost,
            _ => Outcome::Failed,
        },
        Failed::Connection => Outcome::Failed,
    }
}
