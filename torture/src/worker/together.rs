//! Tasks that want several locks at once, for critical sections over all their values and for transfers between their accounts; and
//! tasks that want one of them.

use std::time::Duration;

use rand::RngExt;
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;
use tag_lock::{Error, LockAllGuard};

use super::bank::{Ending, Failed, LIMIT, outcome_in_transaction};
use super::holds::{NEVER, PATIENCE};
use super::task::{Place, Task, outcome_of};
use crate::bank::Transfer;
use crate::history::{Event, Operation, Outcome};
use crate::instant::{nanos, now};
use crate::setup;

const TOGETHER: u32 = 4;
/// How many names are asked for at once. One that is drawn twice counts once.
const NAMES: std::ops::RangeInclusive<usize> = 2..=4;

/// One of several that are held at once, with its fencing token.
pub(super) struct Held {
    pub(super) place: Place,
    pub(super) token: u64,
}

impl Task {
    pub(super) async fn beside(mut self) {
        while !self.is_stopped() {
            let place = self.crowded_place(TOGETHER, setup::TOGETHER);
            let Some(guard) = self.acquire(&place).await else {
                continue;
            };
            self.change_under(&place, &guard.view()).await;
            self.give_back(&place, guard, true).await;
            self.rest().await;
        }
    }

    pub(super) async fn together(mut self) {
        let mut connection = None;
        while !self.is_stopped() {
            if connection.is_none() {
                connection = self.open().await;
            }
            let Some(usable) = connection.as_mut() else {
                self.rest().await;
                continue;
            };
            let Some((guard, held)) = self.acquire_all().await else {
                continue;
            };
            if self.chance(30) {
                let lost = guard.cancellation_token().cancelled_owned();
                self.change_all(lost, || guard.is_held(), &held).await;
                self.give_all_back(&held, guard.release()).await;
            } else if !self.transfer_between(usable, guard, &held).await {
                // What is still under way on it must not meet the next transaction.
                connection = None;
            }
        }
    }

    /// Takes a few locks at once, and writes what was said of each.
    async fn acquire_all(&mut self) -> Option<(LockAllGuard, Vec<Held>)> {
        let count = self.random.random_range(NAMES);
        // In any order: the library has one of its own.
        let names: Vec<Place> = (0..count)
            .map(|_| self.crowded_place(TOGETHER, setup::TOGETHER))
            .collect();
        let mut places = names.clone();
        places.sort_by(|a, b| a.name.cmp(&b.name));
        places.dedup_by(|a, b| a.name == b.name);
        let ttl = self.setup.ttl();
        let wait = self.up_to(PATIENCE);
        let way = self.random.random_range(0..100);
        let impatience = self.up_to(Duration::from_millis(60));
        let names = names.iter().map(|place| &*place.name);
        let request = self.client.lock_all(names).wait(wait).ttl(ttl);
        let invoked = now();
        for place in &places {
            self.begins(&place.name, invoked, Operation::Together);
        }
        let answer = match way {
            0..75 => told(request.acquire().await.map(Some)),
            75..90 => told(request.try_acquire().await),
            // The future is dropped somewhere on its way.
            _ => match tokio::time::timeout(impatience, request.acquire()).await {
                Ok(answer) => told(answer.map(Some)),
                Err(_) => Err(Outcome::Unknown),
            },
        };
        let first = &places[0].name;
        self.waited(first, invoked, (75..90).contains(&way), wait);
        let ttl = nanos(ttl);
        let guard = match answer {
            Ok(guard) => guard,
            Err(outcome) => {
                for place in &places {
                    let token = 0;
                    let event = Event::Together {
                        token,
                        ttl,
                        outcome,
                    };
                    self.ended(&place.name, invoked, event);
                }
                if outcome != Outcome::Unknown {
                    self.rest().await;
                }
                return None;
            }
        };
        let mut held = Vec::new();
        for place in places {
            // What the guard does not have was not granted, whatever it says of the others.
            let token = guard.fencing_token(&place.name).unwrap_or_default();
            let outcome = if token > 0 {
                Outcome::Done
            } else {
                Outcome::Refused
            };
            let event = Event::Together {
                token,
                ttl,
                outcome,
            };
            self.ended(&place.name, invoked, event);
            if token > 0 {
                held.push(Held { place, token });
            }
        }
        Some((guard, held))
    }

    /// Work on all unprotected values, as long as all are held.
    pub(super) async fn change_all(
        &mut self,
        lost: impl Future<Output = ()>,
        is_held: impl Fn() -> bool,
        held: &[Held],
    ) {
        let pause = self.pause();
        let read: Vec<u64> = held.iter().map(|one| self.read(&one.place)).collect();
        let is_lost = tokio::select! {
            biased;
            () = lost => true,
            () = tokio::time::sleep(pause) => false,
        };
        if !is_lost && is_held() {
            for (Held { place, token }, read) in held.iter().zip(read) {
                let (token, wrote) = (*token, self.fresh_value());
                let invoked = self.invoked(&place.name, Operation::Section { token, read, wrote });
                self.write(place, wrote);
                self.ended(&place.name, invoked, Event::Section { token, read, wrote });
            }
        }
        let asked = now();
        let trusted_until = if !is_lost && is_held() { asked } else { NEVER };
        for Held { place, token } in held {
            self.held(place, *token, trusted_until);
        }
    }

    pub(super) async fn give_all_back(
        &mut self,
        held: &[Held],
        release: impl Future<Output = Result<(), Error>>,
    ) {
        let Some((invoked, outcome)) = self.end(release).await else {
            return;
        };
        for Held { place, token } in held {
            let token = *token;
            self.ended(&place.name, invoked, Event::Released { token, outcome });
        }
    }

    /// One transaction that moves amounts between the accounts of all locks. Whether the connection can be used again.
    async fn transfer_between(
        &mut self,
        connection: &mut MySqlConnection,
        guard: LockAllGuard,
        held: &[Held],
    ) -> bool {
        let ending = self.ending();
        let invoked = now();
        // What one account gives the others have: the sum of all is kept.
        let mut left = 0;
        let mut transfers = Vec::new();
        for (number, Held { place, token }) in held.iter().enumerate() {
            let amount = if number + 1 < held.len() {
                self.random.random_range(-100..=100)
            } else {
                -left
            };
            left += amount;
            let token = *token;
            self.begins(&place.name, invoked, Operation::Transfer { token, amount });
            transfers.push(Transfer {
                name: place.name.to_string(),
                worker: self.worker,
                task: self.number,
                invoked,
                token,
                amount,
            });
        }
        let longest = match self.random.random_range(0..1_000) {
            0..500 => Duration::ZERO,
            500..990 => Duration::from_millis(30),
            // Whoever does not want these very locks must not be kept waiting by it.
            _ => Duration::from_millis(2_500),
        };
        let pause = self.up_to(longest);
        let mut guard = Some(guard);
        let mut outcome = Outcome::Failed;
        let mut committing = NEVER;
        let transaction = async {
            let Some(held) = guard.as_ref() else {
                return Ok(());
            };
            let mut transaction = connection.begin().await?;
            held.verify_in(&mut transaction).await?;
            tokio::time::sleep(pause).await;
            for transfer in &transfers {
                transfer.write(&mut transaction).await?;
            }
            match ending {
                Ending::Undone => {
                    transaction.rollback().await?;
                    return Ok(());
                }
                Ending::Within => held.release_in(&mut transaction).await?,
                // The transaction holds the locks' rows: until it ends, this is as good as the guard.
                Ending::Before => guard = None,
                Ending::After => {}
            }
            // From here on it may be committed.
            outcome = Outcome::Unknown;
            committing = now();
            transaction.commit().await?;
            outcome = Outcome::Done;
            Ok::<_, Failed>(())
        };
        let clean = match tokio::time::timeout(LIMIT, transaction).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                if outcome == Outcome::Failed {
                    outcome = outcome_in_transaction(&error);
                }
                false
            }
            Err(_) => false,
        };
        // Only of a transaction that was committed is it certain that its rows were locked until then.
        let trusted_until = if outcome == Outcome::Done {
            committing
        } else {
            NEVER
        };
        for (Held { place, token }, transfer) in held.iter().zip(&transfers) {
            let (token, amount) = (*token, transfer.amount);
            let event = Event::Transfer {
                token,
                amount,
                committing,
                outcome,
            };
            self.ended(&place.name, invoked, event);
            self.held(place, token, trusted_until);
        }
        match guard {
            Some(guard) if ending != Ending::Within || !clean => {
                self.give_all_back(held, guard.release()).await;
            }
            guard => drop(guard),
        }
        clean
    }
}

fn told(answer: Result<Option<LockAllGuard>, Error>) -> Result<LockAllGuard, Outcome> {
    match answer {
        Ok(Some(guard)) => Ok(guard),
        Ok(None) => Err(Outcome::Refused),
        Err(error) => Err(outcome_of(&error)),
    }
}
