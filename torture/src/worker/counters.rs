//! Tasks that add to counters: tickets of a sequence, and stocks that never leave their bounds.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;

use super::CALL;
use super::task::{Task, outcome_of};
use crate::history::{Event, Operation, Outcome};

/// The longest time until a future is dropped.
const IMPATIENCE: Duration = Duration::from_millis(40);
/// Of a thousand, so many look at the counter and add nothing.
const READS: u32 = 20;
/// How often an addition with an id is repeated while nobody knows whether it was done.
const REPEATS: u32 = 5;

impl Task {
    pub(super) async fn tickets(mut self) {
        while !self.is_stopped() {
            let name = self.counter("tickets");
            let client = self.client.clone();
            let counter = client.counter(&name);
            let way = self.random.random_range(0..1_000);
            if way < READS {
                self.read_counter(&name).await;
                continue;
            }
            let delta = 1;
            let impatience = self.up_to(IMPATIENCE);
            let id = format!(
                "{}/{}/{}",
                self.worker,
                self.number,
                self.random.random::<u64>()
            );
            let invoked = self.invoked(
                &name,
                Operation::Add {
                    delta,
                    low: None,
                    high: None,
                },
            );
            let answer = match way {
                READS..960 => told(counter.add(delta).await),
                960..990 => match tokio::time::timeout(impatience, counter.add(delta)).await {
                    Ok(answer) => told(answer),
                    Err(_) => (None, Outcome::Unknown),
                },
                _ => {
                    let mut answer = told(counter.add_once(&id, delta).await);
                    for _ in 0..REPEATS {
                        if answer.1 == Outcome::Done {
                            break;
                        }
                        answer = told(counter.add_once(&id, delta).await);
                    }
                    // A later attempt that failed says nothing about an earlier one that may have been done.
                    if answer.1 != Outcome::Done {
                        answer.1 = Outcome::Unknown;
                    }
                    answer
                }
            };
            let (value, outcome) = answer;
            // The others are several calls, perhaps.
            if way < 990 {
                self.was_to_end_within(&name, invoked, CALL);
            }
            self.ended(
                &name,
                invoked,
                Event::Added {
                    delta,
                    low: None,
                    high: None,
                    value,
                    outcome,
                },
            );
            self.after(outcome).await;
        }
    }

    /// Reads the value, as if 0 were added; nothing where a read may be old.
    pub(super) async fn read_counter(&mut self, name: &Arc<str>) {
        if !self.setup.reads_are_current {
            return;
        }
        let delta = 0;
        let (low, high) = (None, None);
        let invoked = self.invoked(name, Operation::Add { delta, low, high });
        let (value, outcome) = match self.client.counter(name).get().await {
            Ok(value) => (Some(value), Outcome::Done),
            Err(error) => {
                // Ends the worker if no fault explains it. A read changes nothing, whatever is unknown.
                outcome_of(&error);
                (None, Outcome::Failed)
            }
        };
        self.ended(
            name,
            invoked,
            Event::Added {
                delta,
                low,
                high,
                value,
                outcome,
            },
        );
        self.after(outcome).await;
    }

    pub(super) async fn stock(mut self) {
        let (low, high) = (0, self.setup.stock);
        while !self.is_stopped() {
            let name = self.counter("stock");
            let client = self.client.clone();
            let counter = client.counter(&name);
            let delta = [-3, -2, -1, -1, -1, 1, 1, 1, 2, 3][self.random.random_range(0..10)];
            let impatience = self.chance(3).then_some(IMPATIENCE);
            let impatience = impatience.map(|longest| self.up_to(longest));
            let invoked = self.invoked(
                &name,
                Operation::Add {
                    delta,
                    low: Some(low),
                    high: Some(high),
                },
            );
            let adding = counter.add_within(delta, low..=high);
            let answer = match impatience {
                None => Some(adding.await),
                Some(limit) => tokio::time::timeout(limit, adding).await.ok(),
            };
            let (value, outcome) = match answer {
                None => (None, Outcome::Unknown),
                Some(Ok(Some(value))) => (Some(value), Outcome::Done),
                Some(Ok(None)) => (None, Outcome::Refused),
                Some(Err(error)) => (None, outcome_of(&error)),
            };
            self.ended(
                &name,
                invoked,
                Event::Added {
                    delta,
                    low: Some(low),
                    high: Some(high),
                    value,
                    outcome,
                },
            );
            self.after(outcome).await;
        }
    }

    /// While the server is away, failures would come at the speed of the processor.
    pub(super) async fn after(&mut self, outcome: Outcome) {
        if outcome == Outcome::Failed {
            self.rest().await;
        }
    }
}

pub(super) fn told(answer: Result<i64, tag_lock::Error>) -> (Option<i64>, Outcome) {
    match answer {
        Ok(value) => (Some(value), Outcome::Done),
        Err(error) => (None, outcome_of(&error)),
    }
}
