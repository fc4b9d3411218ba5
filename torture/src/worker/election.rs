//! Tasks that campaign, that lead, and that observe who does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use tag_lock::{Error, LeaseView};

use super::holds::NEVER;
use super::task::{Place, Task, fatal, outcome_of};
use crate::history::{Event, Operation, Outcome};
use crate::instant::{nanos, now};

const ELECTION: u32 = 5;
const WORD: &str = "election";
/// The longest candidacy that is given up.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest time for which one leads, mostly.
const TERM: Duration = Duration::from_millis(40);
/// How long a leader's work awaits at once.
const STEP: Duration = Duration::from_millis(25);
/// So often the work may go on when its lease has ended: who drops it may not have come to it yet.
const GRACE: u64 = 40;

impl Task {
    pub(super) async fn candidate(mut self) {
        while !self.is_stopped() {
            let place = self.crowded_place(ELECTION, WORD);
            if self.chance(30) {
                self.lead(&place).await;
            } else {
                self.campaign(&place).await;
            }
        }
    }

    /// Leads once, if it comes to that in time.
    async fn campaign(&mut self, place: &Place) {
        let ttl = self.setup.ttl();
        let value = self.fresh_value();
        let patience = self.up_to(PATIENCE);
        let invoked = self.invoked(&place.name, Operation::Acquire);
        let campaign = self.client.election(&place.name).ttl(ttl);
        let campaign = campaign.campaign(value.to_string());
        let outcome = match tokio::time::timeout(patience, campaign).await {
            Ok(Ok(leadership)) => {
                let token = leadership.fencing_token();
                self.leads(place, invoked, (token, value), true);
                if self.chance(50) {
                    let term = self.up_to(TERM);
                    tokio::time::sleep(term).await;
                }
                self.change_under(place, &leadership.view()).await;
                if let Some((invoked, outcome)) = self.end(leadership.resign()).await {
                    self.ended(&place.name, invoked, Event::Released { token, outcome });
                }
                return;
            }
            Ok(Err(error)) => outcome_of(&error),
            Err(_) => Outcome::Unknown,
        };
        self.ended(&place.name, invoked, Event::NotGranted { outcome });
        if outcome == Outcome::Failed {
            self.rest().await;
        }
    }

    /// Writes that it leads from now on.
    fn leads(&self, place: &Place, invoked: u64, (token, value): (u64, u64), once: bool) {
        let ttl = nanos(self.setup.ttl());
        self.ended(&place.name, invoked, Event::Granted { token, ttl });
        let event = Event::Leads { token, value, once };
        self.ended(&place.name, now(), event);
    }

    /// Has its work run whenever it leads, until the work ends by itself.
    async fn lead(&mut self, place: &Place) {
        let value = self.fresh_value();
        let random = Mutex::new(ChaCha8Rng::seed_from_u64(self.random.random()));
        let election = self.client.election(&place.name).ttl(self.setup.ttl());
        // The candidacy that is under way.
        let invoked = AtomicU64::new(self.invoked(&place.name, Operation::Acquire));
        let task = &*self;
        let led = election
            .lead(value.to_string(), |lease| {
                let began = invoked.load(Ordering::Relaxed);
                task.leads(place, began, (lease.fencing_token(), value), false);
                let term = Term {
                    task,
                    place,
                    lease,
                    invoked: &invoked,
                    trusted_until: NEVER,
                    is_over: false,
                };
                let random = &random;
                async move {
                    term.run(random).await;
                    Ok::<(), Error>(())
                }
            })
            .await;
        let outcome = led.map_or_else(|error| outcome_of(&error), |()| Outcome::Failed);
        let began = invoked.load(Ordering::Relaxed);
        if began > 0 {
            self.ended(&place.name, began, Event::NotGranted { outcome });
            self.rest().await;
        }
    }

    pub(super) async fn observer(mut self) {
        let place = self.crowded_place(ELECTION, WORD);
        let election = self.client.election(&place.name);
        while !self.is_stopped() {
            let mut leaders = match election.observe() {
                Ok(leaders) => leaders,
                Err(error) => fatal(&format!("nothing can be observed: {error}")),
            };
            let looks = self.random.random_range(10..100);
            for _ in 0..looks {
                // While the server is away it says nothing.
                let told = tokio::time::timeout(2 * TERM, leaders.next()).await;
                if self.is_stopped() {
                    break;
                }
                let leader = match told {
                    Err(_) | Ok(Some(Ok(None))) => continue,
                    Ok(Some(Ok(Some(leader)))) => leader,
                    Ok(Some(Err(_)) | None) => break,
                };
                let token = leader.fencing_token;
                let Ok(value) = leader.value.parse() else {
                    let value = &leader.value;
                    fatal(&format!("{value:?} is no candidate's value"));
                };
                self.ended(&place.name, now(), Event::Seen { token, value });
            }
            self.rest().await;
        }
    }
}

/// A leader's work. When it is dropped, the next candidacy begins.
struct Term<'t> {
    task: &'t Task,
    place: &'t Place,
    lease: LeaseView,
    invoked: &'t AtomicU64,
    trusted_until: u64,
    /// It came to its own end: no candidacy follows.
    is_over: bool,
}

impl Term<'_> {
    async fn run(mut self, random: &Mutex<ChaCha8Rng>) {
        self.work(random).await;
        self.is_over = true;
    }

    /// It awaits and works until its term is over. Who runs it drops it before that if its lease is lost.
    async fn work(&mut self, random: &Mutex<ChaCha8Rng>) {
        let (pause, steps, mut wrote) = {
            let mut random = random.lock().unwrap_or_else(PoisonError::into_inner);
            // Mostly short, at times longer than a lease.
            let (pause, steps) = if random.random_ratio(1, 10) {
                (STEP, random.random_range(1..100))
            } else {
                (STEP / 25, random.random_range(1..5))
            };
            (pause, steps, random.random::<u64>())
        };
        let (token, name) = (self.lease.fencing_token(), &self.place.name);
        let mut left: u32 = steps;
        let mut late = 0;
        while late > 0 || left > 0 && !self.task.is_stopped() {
            left = left.saturating_sub(1);
            let read = self.task.read(self.place);
            tokio::time::sleep(if late > 0 { STEP } else { pause }).await;
            if self.lease.is_held() {
                wrote = wrote.wrapping_add(1).max(1);
                let operation = Operation::Section { token, read, wrote };
                let invoked = self.task.invoked(name, operation);
                self.task.write(self.place, wrote);
                let event = Event::Section { token, read, wrote };
                self.task.ended(name, invoked, event);
            }
            let asked = now();
            if self.lease.is_held() {
                self.trusted_until = asked;
                continue;
            }
            // It should be dropped, at one of the next awaits.
            late += 1;
            if late > GRACE {
                let event = Event::WorkedOn { token, steps: late };
                self.task.ended(name, now(), event);
                return;
            }
        }
    }
}

impl Drop for Term<'_> {
    fn drop(&mut self) {
        let token = self.lease.fencing_token();
        self.task.held(self.place, token, self.trusted_until);
        let next = if self.is_over {
            NEVER
        } else {
            self.task.invoked(&self.place.name, Operation::Acquire)
        };
        self.invoked.store(next, Ordering::Relaxed);
    }
}
