//! Tasks that have a lock and a counter each for themselves: few packets at a time, of few rows, and everything that is said
//! of them follows from what the task did itself.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;

use super::counters::told;
use super::holds::NEVER;
use super::task::{Task, outcome_of};
use crate::history::{Event, Operation, Outcome};
use crate::instant::{nanos, now};

/// One round in so many begins with rows that do not exist yet.
const FRESH: u32 = 400;

/// About as long as an answer takes where nothing is in its way.
const SHORT_WAIT: Duration = Duration::from_millis(2);

impl Task {
    pub(super) async fn solo(mut self) {
        let mut names = 0;
        while !self.is_stopped() {
            names += 1;
            let name = |word| format!("{word}:{}:{}:{names}", self.worker, self.number).into();
            let (lock, counter): (Arc<str>, Arc<str>) = (name("solo"), name("tally"));
            // What is unknown may still happen, and what was refused is not as it should be: the next rows know nothing of it.
            while !self.is_stopped()
                && self.hold_alone(&lock).await
                && self.add_alone(&counter).await
                && self.random.random_range(0..FRESH) > 0
            {}
        }
    }

    /// Takes the lock and releases it. Whether it is known to be free again.
    async fn hold_alone(&mut self, name: &Arc<str>) -> bool {
        let client = self.client.clone();
        let ttl = self.setup.ttl();
        let request = client.lock(name).ttl(ttl);
        // However short the wait, the lock is asked for once.
        let wait = self.chance(10).then(|| self.up_to(SHORT_WAIT));
        let invoked = self.invoked(name, Operation::Acquire);
        let answer = match wait {
            Some(wait) => request.wait(wait).acquire().await.map(Some),
            None => request.try_acquire().await,
        };
        let outcome = match answer {
            Ok(Some(guard)) => {
                let token = guard.fencing_token();
                let ttl = nanos(ttl);
                self.ended(name, invoked, Event::Granted { token, ttl });
                let asked = now();
                let trusted_until = if guard.is_held() { asked } else { NEVER };
                let end = Event::HeldUntil {
                    token,
                    trusted_until,
                };
                self.ended(name, now(), end);
                let invoked = now();
                let released = guard.release().await;
                let outcome = released.map_or_else(|error| outcome_of(&error), |()| Outcome::Done);
                self.ended(name, invoked, Event::Released { token, outcome });
                outcome
            }
            refused => {
                let outcome = match refused {
                    Err(error) => outcome_of(&error),
                    Ok(_) => Outcome::Refused,
                };
                self.ended(name, invoked, Event::NotGranted { outcome });
                outcome
            }
        };
        if outcome != Outcome::Done {
            self.rest().await;
        }
        // Of a short wait that nobody answered the question may still be on its way.
        outcome == Outcome::Done || outcome == Outcome::Failed && wait.is_none()
    }

    /// Adds to the counter, and reads it at times. Whether it is known what became of it.
    async fn add_alone(&mut self, name: &Arc<str>) -> bool {
        let client = self.client.clone();
        let (delta, low, high) = (1, None, None);
        let invoked = self.invoked(name, Operation::Add { delta, low, high });
        let (value, outcome) = told(client.counter(name).add(delta).await);
        let event = Event::Added {
            delta,
            low,
            high,
            value,
            outcome,
        };
        self.ended(name, invoked, event);
        self.after(outcome).await;
        if self.chance(20) {
            self.read_counter(name).await;
        }
        outcome != Outcome::Unknown
    }
}
