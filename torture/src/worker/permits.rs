//! Tasks that want permits of semaphores, one or several at once: more of them than there are.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use tag_lock::{Error, Permit, Permits};

use super::CALL;
use super::holds::PATIENCE;
use super::task::{Place, Task, outcome_of};
use super::together::Held;
use crate::history::{Event, Operation, Outcome};
use crate::instant::nanos;
use crate::setup::{self, Semaphore};

const PERMITS: u32 = 3;
/// The most that a semaphore of the library's can have.
const MOST_PERMITS: u32 = 1_024;
/// The longest work under a permit that gives others the time to want it.
const WORK: Duration = Duration::from_millis(20);

impl Task {
    pub(super) async fn permits(mut self) {
        let mut resource = self.resource().await;
        let semaphores: Vec<Semaphore> = setup::semaphores().collect();
        while !self.is_stopped() {
            let number = self.random.random_range(0..semaphores.len());
            if self.chance(25) {
                self.several(number, &semaphores[number]).await;
                continue;
            }
            let Some(permit) = self.take_permit(&semaphores[number]).await else {
                continue;
            };
            let place = place(number, permit.name(), permit.slot());
            if self.chance(30) {
                let work = self.up_to(WORK);
                tokio::time::sleep(work).await;
            }
            if self.chance(80) {
                self.change_under(&place, &permit.view()).await;
            } else {
                self.write_under(&place, &permit.view(), &mut resource)
                    .await;
            }
            let token = permit.fencing_token();
            if let Some((invoked, outcome)) = self.end(permit.release()).await {
                self.ended(&place.name, invoked, Event::Released { token, outcome });
            }
        }
    }

    /// Takes several permits at once, and works under all of them.
    async fn several(&mut self, number: usize, semaphore: &Semaphore) {
        let Some(permits) = self.take_several(semaphore).await else {
            return;
        };
        let held: Vec<Held> = permits
            .fencing_tokens()
            .map(|(slot, token)| Held {
                place: place(number, permits.name(), slot),
                token,
            })
            .collect();
        let lost = permits.cancellation_token().cancelled_owned();
        self.change_all(lost, || permits.is_held(), &held).await;
        self.give_all_back(&held, permits.release()).await;
    }

    async fn take_several(&mut self, (name, permits): &Semaphore) -> Option<Permits> {
        let count = self.random.random_range(1..=*permits);
        let ttl = self.setup.ttl();
        let wait = self.up_to(PATIENCE);
        let way = self.random.random_range(0..100);
        let impatience = self.up_to(Duration::from_millis(60));
        let semaphore = self.client.semaphore(name, *permits).wait(wait).ttl(ttl);
        let name: Arc<str> = name.as_str().into();
        // One alone is as any other.
        let operation = if count > 1 {
            Operation::Together
        } else {
            Operation::Acquire
        };
        let invoked = self.invoked(&name, operation);
        let answer = match way {
            0..75 => told(semaphore.acquire_many(count).await.map(Some)),
            75..90 => told(semaphore.try_acquire_many(count).await),
            // The future is dropped somewhere on its way.
            _ => match tokio::time::timeout(impatience, semaphore.acquire_many(count)).await {
                Ok(answer) => told(answer.map(Some)),
                Err(_) => Err(Outcome::Unknown),
            },
        };
        let tried = (75..90).contains(&way);
        if tried && count > 1 {
            // Two requests: for the right to take several, and for the permits.
            self.was_to_end_within(&name, invoked, CALL * 2);
        } else {
            self.waited(&name, invoked, tried, wait);
        }
        let ttl = nanos(ttl);
        match answer {
            Ok(guard) => {
                for (slot, token) in guard.fencing_tokens() {
                    let event = Event::Permit {
                        permits: *permits,
                        count,
                        slot,
                        token,
                        ttl,
                    };
                    self.ended(&name, invoked, event);
                }
                Some(guard)
            }
            Err(outcome) => {
                let event = if count > 1 {
                    Event::Together {
                        token: 0,
                        ttl,
                        outcome,
                    }
                } else {
                    Event::NotGranted { outcome }
                };
                self.ended(&name, invoked, event);
                if outcome != Outcome::Unknown {
                    self.rest().await;
                }
                None
            }
        }
    }

    /// Takes a permit in one of the ways in which one can.
    async fn take_permit(&mut self, (name, permits): &Semaphore) -> Option<Permit> {
        let mut ttl = self.setup.ttl();
        let wait = self.up_to(PATIENCE);
        let way = self.random.random_range(0..100);
        let impatience = self.up_to(Duration::from_millis(40));
        let mut semaphore = self.client.semaphore(name, *permits).wait(wait).ttl(ttl);
        match way {
            // Not renewed, so never passed on in memory.
            0..6 => semaphore = semaphore.auto_renew(false),
            6..10 => {
                ttl /= 2;
                semaphore = semaphore.ttl(ttl).max_hold(ttl);
            }
            _ => {}
        }
        let name: Arc<str> = name.as_str().into();
        let invoked = self.invoked(&name, Operation::Acquire);
        let answer = match way {
            10..20 => told(semaphore.try_acquire().await),
            // The future is dropped somewhere on its way.
            20..28 => match tokio::time::timeout(impatience, semaphore.acquire()).await {
                Ok(answer) => told(answer.map(Some)),
                Err(_) => Err(Outcome::Unknown),
            },
            _ => told(semaphore.acquire().await.map(Some)),
        };
        self.waited(&name, invoked, (10..20).contains(&way), wait);
        let outcome = match answer {
            Ok(permit) => {
                let event = Event::Permit {
                    permits: *permits,
                    count: 1,
                    slot: permit.slot(),
                    token: permit.fencing_token(),
                    ttl: nanos(ttl),
                };
                self.ended(&name, invoked, event);
                return Some(permit);
            }
            Err(outcome) => outcome,
        };
        self.ended(&name, invoked, Event::NotGranted { outcome });
        if outcome != Outcome::Unknown {
            self.rest().await;
        }
        None
    }
}

/// A slot of the semaphore of this number.
fn place(semaphore: usize, name: &str, slot: u32) -> Place {
    let number = u32::try_from(semaphore).unwrap_or_default() * MOST_PERMITS + slot;
    Place::new(PERMITS, number, setup::slot(name, slot))
}

fn told<T>(answer: Result<Option<T>, Error>) -> Result<T, Outcome> {
    match answer {
        Ok(Some(permit)) => Ok(permit),
        Ok(None) => Err(Outcome::Refused),
        Err(error) => Err(outcome_of(&error)),
    }
}
