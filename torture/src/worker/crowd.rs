//! Tasks of all kinds of clients that want the same few locks: near and far, new for every turn, owners, and those who go away before they have
//! the lock. Each worker is one kind, so that the turns of workers are those of kinds.

use std::time::Duration;

use rand::RngExt;
use tag_lock::{AtClose, LockClient};

use super::task::{Place, Task};
use super::{PACKET_TIMEOUT, REQUEST_TIMEOUT};
use crate::history::{Event, Operation, Outcome};
use crate::instant::{nanos, now};

const CROWD: u32 = 7;
/// How long who goes away wanted to keep the lock at least: longer than somebody may wait for a lock that nobody holds where there are no faults.
const LEAST_HOLD: Duration = Duration::from_secs(6);
/// The longest wait: who starves is passed over often enough to be seen, also where turns are slow.
const PATIENCE: Duration = Duration::from_secs(30);
/// For how long an owner goes on to take a lock of which one of its processes has died: longer than anybody may wait for a lock that nobody holds
/// where there are no faults.
const ACTIVE: Duration = Duration::from_secs(15);
/// A client that was made for one turn is closed within this time, as a program that ends.
const CLOSING: Duration = Duration::from_secs(3);

/// What a worker's clients are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// They last. (Of these some are far away.)
    Lasting,
    /// Each lives for one turn.
    OneTurn,
    /// One client, with an owner for each turn.
    Owners,
}

impl Kind {
    fn of(slot: u32) -> Self {
        match slot % 4 {
            2 => Self::OneTurn,
            3 => Self::Owners,
            _ => Self::Lasting,
        }
    }
}

impl Task {
    pub(super) async fn crowd(mut self, slot: u32) {
        let kind = Kind::of(slot);
        if kind == Kind::OneTurn {
            self.is_apart();
        }
        while !self.is_stopped() {
            let place = self.few_places(CROWD, "crowd");
            match kind {
                Kind::Lasting if self.chance(4) => self.goes_away(&place).await,
                Kind::Lasting => {
                    let client = self.client.clone();
                    self.turn(&place, &client).await;
                }
                Kind::OneTurn if self.chance(2) => self.dies_as_owner(&place).await,
                Kind::OneTurn => self.one_turn(&place).await,
                Kind::Owners => self.nested(&place).await,
            }
        }
    }

    /// A critical section.
    async fn turn(&mut self, place: &Place, client: &LockClient) {
        let request = client.lock(&place.name);
        let Some(guard) = self.acquire_by(place, request, PATIENCE).await else {
            return;
        };
        self.change_under(place, &guard.view()).await;
        self.give_back(place, guard, true).await;
    }

    /// A client that nobody has seen before, nor will again.
    async fn new_client(&mut self) -> Option<LockClient> {
        let builder = LockClient::builder(self.options.clone())
            .packet_timeout(PACKET_TIMEOUT)
            .request_timeout(REQUEST_TIMEOUT)
            .holder(format!("worker {} for one turn", self.worker));
        let client = builder.connect().await.ok();
        if client.is_none() {
            self.rest().await;
        }
        client
    }

    /// A critical section of such a client.
    async fn one_turn(&mut self, place: &Place) {
        let Some(client) = self.new_client().await else {
            return;
        };
        self.turn(place, &client).await;
        client.close_within(AtClose::Release, CLOSING).await;
    }

    /// One client of an owner ends without its release, as a process that is killed, and another one goes on to take and release the lock.
    async fn dies_as_owner(&mut self, place: &Place) {
        let Some(client) = self.new_client().await else {
            return;
        };
        let owner = format!("{:x}", self.random.random::<u128>());
        let request = client.lock(&place.name).owner(&owner);
        let Some(guard) = self.acquire_by(place, request, PATIENCE).await else {
            client.close_within(AtClose::Release, CLOSING).await;
            return;
        };
        self.change_under(place, &guard.view()).await;
        let token = guard.fencing_token();
        client.close_within(AtClose::Keep, CLOSING).await;
        drop(guard);
        let until = tokio::time::Instant::now() + ACTIVE;
        while tokio::time::Instant::now() < until
            && !self.is_stopped()
            && self.takes_a_level(place, &owner, token).await
        {
            self.rest().await;
        }
    }

    /// Takes the lock and releases it. Whether that was a level of the hold with this token, which is on file already.
    async fn takes_a_level(&mut self, place: &Place, owner: &str, token: u64) -> bool {
        let ttl = self.setup.ttl();
        let request = self.client.lock(&place.name).owner(owner).ttl(ttl);
        let invoked = now();
        let Ok(Some(guard)) = request.try_acquire().await else {
            return false;
        };
        if guard.fencing_token() == token {
            return guard.release().await.is_ok();
        }
        let (token, ttl) = (guard.fencing_token(), nanos(ttl));
        self.begins(&place.name, invoked, Operation::Acquire);
        self.ended(&place.name, invoked, Event::Granted { token, ttl });
        self.change_under(place, &guard.view()).await;
        self.give_back(place, guard, true).await;
        false
    }

    /// Asks for the lock, to keep it for long at the least, and goes away before it has it.
    async fn goes_away(&mut self, place: &Place) {
        let ttl = self.setup.ttl();
        let request = self.client.lock(&place.name).ttl(ttl);
        let request = request.hold_at_least(LEAST_HOLD);
        let impatience = self.up_to(Duration::from_millis(2));
        let invoked = self.invoked(&place.name, Operation::Acquire);
        match tokio::time::timeout(impatience, request.acquire()).await {
            // It came before it went: then it keeps the lock for as long as it said.
            Ok(Ok(guard)) => {
                let (token, ttl) = (guard.fencing_token(), nanos(LEAST_HOLD));
                self.ended(&place.name, invoked, Event::Granted { token, ttl });
                let lost = guard.cancellation_token();
                let _ = tokio::time::timeout(LEAST_HOLD, lost.cancelled()).await;
                self.change_under(place, &guard.view()).await;
                self.give_back(place, guard, true).await;
            }
            Ok(Err(error)) => {
                let outcome = super::task::outcome_of(&error);
                self.ended(&place.name, invoked, Event::NotGranted { outcome });
            }
            Err(_) => {
                let outcome = Outcome::Unknown;
                self.ended(&place.name, invoked, Event::NotGranted { outcome });
            }
        }
    }

    /// One of the few locks that all want.
    fn few_places(&mut self, kind: u32, word: &str) -> Place {
        let number = self.random.random_range(0..crate::setup::CROWD_NAMES);
        Place::new(kind, number, format!("{word}:{number}"))
    }
}
