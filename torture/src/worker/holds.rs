//! Tasks that hold locks: critical sections over unprotected values, and writes to the resource that checks tokens.

use std::time::Duration;

use rand::RngExt;
use tag_lock::{Error, LeaseView, LockGuard, LockRequest};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::CALL;
use super::task::{Place, Task, fatal, outcome_of};
use crate::history::{Event, Operation, Outcome};
use crate::instant::{nanos, now};

/// A connection to the resource that checks tokens.
pub(super) type Resource = BufReader<TcpStream>;

const MUTEX: u32 = 0;
const FENCED: u32 = 1;
/// When a hold was trusted that `is_held` never said yes for.
pub(super) const NEVER: u64 = 0;
/// The longest wait for a lock.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);
/// The longest pause in most critical sections.
const PAUSE: Duration = Duration::from_millis(2);

impl Task {
    pub(super) async fn mutex(mut self) {
        while !self.is_stopped() {
            let place = self.place(MUTEX, "mutex");
            if self.random.random_ratio(1, 20) {
                self.nested(&place).await;
                continue;
            }
            let Some(guard) = self.acquire(&place).await else {
                continue;
            };
            self.change_under(&place, &guard.view()).await;
            self.give_back(&place, guard, true).await;
        }
    }

    /// Work on the unprotected value, as long as the lock is held.
    pub(super) async fn change_under(&mut self, place: &Place, guard: &LeaseView) {
        let pause = self.pause();
        let lost = guard.cancellation_token();
        let token = guard.fencing_token();
        let worked = tokio::select! {
            biased;
            () = lost.cancelled() => false,
            worked = self.section(place, token, pause, || guard.is_held()) => worked,
        };
        let asked = now();
        let trusted_until = if worked && guard.is_held() {
            asked
        } else {
            NEVER
        };
        self.held(place, token, trusted_until);
    }

    /// Holds the lock as an owner that lives for this once, with a level more that ends before the work.
    pub(super) async fn nested(&mut self, place: &Place) {
        let client = self.client.clone();
        let owner = format!("{:x}", self.random.random::<u128>());
        let ttl = self.setup.ttl();
        let level = || client.lock(&place.name).owner(&owner).ttl(ttl);
        let wait = self.up_to(PATIENCE);
        let invoked = self.invoked(&place.name, Operation::Acquire);
        let answer = told(level().wait(wait).acquire().await.map(Some));
        let Some(outer) = self.answered(place, invoked, ttl, answer).await else {
            return;
        };
        // Of the same hold, with the same token. Where its end is not known it may keep the lock for as long as its lease lasts.
        let is_known = match level().wait(ttl).acquire().await {
            Ok(inner) if self.chance(90) => inner.release().await.is_ok(),
            Ok(_) | Err(_) => false,
        };
        self.change_under(place, &outer.view()).await;
        self.give_back(place, outer, is_known).await;
    }

    pub(super) async fn fenced(mut self) {
        let mut resource = self.resource().await;
        while !self.is_stopped() {
            let place = self.place(FENCED, "fenced");
            let Some(guard) = self.acquire(&place).await else {
                continue;
            };
            self.write_under(&place, &guard.view(), &mut resource).await;
            self.give_back(&place, guard, true).await;
        }
    }

    /// A connection to the resource that checks tokens.
    pub(super) async fn resource(&self) -> Resource {
        match TcpStream::connect(self.setup.resource).await {
            Ok(stream) => BufReader::new(stream),
            Err(error) => fatal(&format!("the resource cannot be reached: {error}")),
        }
    }

    /// Writes to the resource that checks tokens.
    pub(super) async fn write_under(
        &mut self,
        place: &Place,
        guard: &LeaseView,
        resource: &mut Resource,
    ) {
        let token = guard.fencing_token();
        let mut trusted_until = NEVER;
        for _ in 0..self.random.random_range(1..=3) {
            // It does not ask whether it still holds the lock: that is what the token is for.
            tokio::time::sleep(self.pause()).await;
            let invoked = self.invoked(&place.name, Operation::FencedWrite { token });
            let accepted = write(resource, &place.name, token).await;
            self.ended(&place.name, invoked, Event::FencedWrite { token, accepted });
            let asked = now();
            if guard.is_held() {
                trusted_until = asked;
            }
        }
        self.held(place, token, trusted_until);
    }

    /// How long the work takes: mostly next to nothing, at times longer than the lease without a renewal.
    pub(super) fn pause(&mut self) -> Duration {
        match self.random.random_range(0..1_000) {
            0..850 => Duration::ZERO,
            850..999 => self.up_to(PAUSE),
            _ => self.up_to(self.setup.ttl() * 3 / 2),
        }
    }

    /// Acquires in one of the ways in which one can.
    pub(super) async fn acquire(&mut self, place: &Place) -> Option<LockGuard> {
        let request = self.client.lock(&place.name);
        self.acquire_by(place, request, PATIENCE).await
    }

    /// The same, by a request that has options already, and with another patience.
    pub(super) async fn acquire_by(
        &mut self,
        place: &Place,
        request: LockRequest,
        patience: Duration,
    ) -> Option<LockGuard> {
        let mut ttl = self.setup.ttl();
        let wait = self.up_to(patience);
        let way = self.random.random_range(0..100);
        let impatience = self.up_to(Duration::from_millis(40));
        let request = match way {
            // What is not passed on does not idle either.
            88..94 => request.linger(Duration::ZERO),
            _ => request,
        };
        let request = request.wait(wait);
        let invoked = self.invoked(&place.name, Operation::Acquire);
        let answer: Result<Option<LockGuard>, Outcome> = match way {
            0..82 => told(request.ttl(ttl).acquire().await.map(Some)),
            82..88 => told(request.ttl(ttl).try_acquire().await),
            // Not renewed, so never passed on in memory.
            88..92 => told(request.ttl(ttl).auto_renew(false).acquire().await.map(Some)),
            92..94 => {
                ttl /= 2;
                told(request.ttl(ttl).max_hold(ttl).acquire().await.map(Some))
            }
            // The future is dropped somewhere on its way.
            _ => match tokio::time::timeout(impatience, request.ttl(ttl).acquire()).await {
                Ok(answer) => told(answer.map(Some)),
                Err(_) => Err(Outcome::Unknown),
            },
        };
        self.waited(&place.name, invoked, (82..88).contains(&way), wait);
        self.answered(place, invoked, ttl, answer).await
    }

    /// Writes what became of an acquire.
    async fn answered(
        &mut self,
        place: &Place,
        invoked: u64,
        ttl: Duration,
        answer: Result<Option<LockGuard>, Outcome>,
    ) -> Option<LockGuard> {
        match answer {
            Ok(Some(guard)) => {
                let token = guard.fencing_token();
                let ttl = nanos(ttl);
                self.ended(&place.name, invoked, Event::Granted { token, ttl });
                Some(guard)
            }
            Ok(None) => {
                let outcome = Outcome::Refused;
                self.ended(&place.name, invoked, Event::NotGranted { outcome });
                self.rest().await;
                None
            }
            Err(outcome) => {
                self.ended(&place.name, invoked, Event::NotGranted { outcome });
                if outcome == Outcome::Failed {
                    self.rest().await;
                }
                None
            }
        }
    }

    /// What was refused at once would be asked for again at once.
    pub(super) async fn rest(&mut self) {
        let rest = self.up_to(Duration::from_millis(30));
        tokio::time::sleep(rest).await;
    }

    /// Writes until when the hold was trusted.
    pub(super) fn held(&self, place: &Place, token: u64, trusted_until: u64) {
        let event = Event::HeldUntil {
            token,
            trusted_until,
        };
        self.ended(&place.name, now(), event);
    }

    /// Releases, or drops the guard, or drops the future of the release. `is_known`: nothing else may keep the lock.
    pub(super) async fn give_back(&mut self, place: &Place, guard: LockGuard, is_known: bool) {
        let token = guard.fencing_token();
        // Of a lease that is known to be lost nobody is asked.
        let limit = if is_known && guard.cancellation_token().is_cancelled() {
            Duration::ZERO
        } else {
            self.setup.ttl() + CALL
        };
        if let Some((invoked, outcome)) = self.end(guard.release()).await {
            self.was_to_end_within(&place.name, invoked, limit);
            let outcome = match outcome {
                Outcome::Done if !is_known => Outcome::Unknown,
                outcome => outcome,
            };
            self.ended(&place.name, invoked, Event::Released { token, outcome });
        }
    }

    /// Ends a hold by its release, or drops the release in its course, or does not begin it, which drops the guard in it. When the release
    /// was called, and what it said.
    pub(super) async fn end(
        &mut self,
        release: impl Future<Output = Result<(), Error>>,
    ) -> Option<(u64, Outcome)> {
        let way = self.random.random_range(0..100);
        if way >= 90 {
            drop(release);
            return None;
        }
        let limit = if way >= 85 {
            self.up_to(Duration::from_millis(5))
        } else {
            Duration::MAX
        };
        let invoked = now();
        let outcome = match tokio::time::timeout(limit, release).await {
            Ok(released) => released.map_or_else(|error| outcome_of(&error), |()| Outcome::Done),
            Err(_) => Outcome::Unknown,
        };
        Some((invoked, outcome))
    }
}

fn told(answer: Result<Option<LockGuard>, Error>) -> Result<Option<LockGuard>, Outcome> {
    answer.map_err(|error| outcome_of(&error))
}

/// Asks the resource to take a write.
async fn write(resource: &mut Resource, name: &str, token: u64) -> bool {
    let mut said = String::new();
    let asked = async {
        resource
            .write_all(format!("{name} {token}\n").as_bytes())
            .await?;
        resource.read_line(&mut said).await
    };
    match asked.await {
        Ok(_) if said == "1\n" => true,
        Ok(_) if said == "0\n" => false,
        Ok(_) => fatal("the resource has gone"),
        Err(error) => fatal(&format!("the resource does not answer: {error}")),
    }
}
