//! Tasks that hold a lock shared and read twice what must stay as it is, and tasks that hold it for themselves and write that.

use std::time::Duration;

use rand::RngExt;
use sqlx::mysql::MySqlConnection;
use sqlx::{Connection, Row};
use tag_lock::{Error, LeaseView, LockGuard, SharedGuard};

use super::bank::{Ending, Failed, LIMIT, outcome_in_transaction};
use super::holds::NEVER;
use super::task::{Place, Task, outcome_of};
use crate::bank::Transfer;
use crate::history::{Event, Operation, Outcome};
use crate::instant::{nanos, now};
use crate::setup;

const SHARED: u32 = 6;
/// The longest wait for a lock: longer than the longest that the oracle allows for.
const PATIENCE: Duration = Duration::from_secs(16);
/// How long reading takes, mostly.
const READING: Duration = Duration::from_millis(20);
/// How long a writer's lease idles, if it does.
const LINGER: Duration = Duration::from_millis(200);
/// The longest pause of a writer: at times nobody wants to write, and those who read join each other.
const PAUSE: Duration = Duration::from_millis(1_000);

impl Task {
    /// One of the locks that are held shared.
    fn shared_place(&mut self, names: std::ops::Range<u32>) -> Place {
        let number = self.random.random_range(names);
        let name = format!("{}:{number}", setup::SHARED_LOCKS);
        Place::new(SHARED, number, name)
    }

    pub(super) async fn reads(mut self) {
        while !self.is_stopped() {
            let place = self.shared_place(0..setup::SHARED_NAMES);
            let Some(guard) = self.acquire_shared(&place, false).await else {
                continue;
            };
            self.look_under(&place, &guard.view()).await;
            self.give_shared_back(&place, guard).await;
            if self.chance(20) {
                self.rest().await;
            }
        }
    }

    pub(super) async fn vouches(mut self) {
        let mut connection = None;
        while !self.is_stopped() {
            if connection.is_none() {
                connection = self.open().await;
            }
            let Some(usable) = connection.as_mut() else {
                self.rest().await;
                continue;
            };
            let place = self.shared_place(0..setup::SHARED_IN_TRANSACTIONS);
            let Some(guard) = self.acquire_shared(&place, true).await else {
                continue;
            };
            if !self.vouch(usable, &place, guard).await {
                // What is still under way on it must not meet the next transaction.
                connection = None;
            }
        }
    }

    pub(super) async fn writes(mut self) {
        let mut connection = None;
        while !self.is_stopped() {
            if connection.is_none() {
                connection = self.open().await;
            }
            let way = self.random.random_range(0..100);
            match (way, connection.as_mut()) {
                (0..5, _) => {
                    let place = self.shared_place(0..setup::SHARED_NAMES);
                    self.nested(&place).await;
                }
                (5..10, _) => {
                    let place = self.shared_place(0..setup::SHARED_NAMES);
                    self.write_under_all(&place).await;
                }
                (90.., Some(usable)) => {
                    let place = self.shared_place(0..setup::SHARED_IN_TRANSACTIONS);
                    if !self.transfer_in(usable, &place).await {
                        connection = None;
                    }
                }
                (10..65, _) => {
                    let place = self.shared_place(0..setup::SHARED_NAMES);
                    let Some(guard) = self.acquire_to_write(&place).await else {
                        continue;
                    };
                    self.change_under(&place, &guard.view()).await;
                    if way < 30 {
                        self.give_back(&place, guard, true).await;
                    } else {
                        self.downgrade(&place, guard).await;
                    }
                }
                (_, Some(usable)) => {
                    let place = self.shared_place(0..setup::SHARED_IN_TRANSACTIONS);
                    let Some(guard) = self.acquire_to_write(&place).await else {
                        continue;
                    };
                    let ending = self.ending();
                    if !self.transfer(usable, &place, guard, ending).await {
                        connection = None;
                    }
                }
                _ => {}
            }
            let longest = if self.chance(50) { PAUSE / 10 } else { PAUSE };
            let pause = self.up_to(longest);
            tokio::time::sleep(pause).await;
        }
    }

    /// Half of the leases idle when they are released.
    async fn acquire_to_write(&mut self, place: &Place) -> Option<LockGuard> {
        let mut request = self.client.lock(&place.name);
        if self.chance(50) {
            request = request.linger(LINGER);
        }
        self.acquire_by(place, request, PATIENCE).await
    }

    /// Takes the lock as one of several at once, which is the only one.
    async fn write_under_all(&mut self, place: &Place) {
        let ttl = self.setup.ttl();
        let wait = self.up_to(PATIENCE);
        let request = self.client.lock_all([&*place.name]).wait(wait).ttl(ttl);
        let invoked = self.invoked(&place.name, Operation::Acquire);
        let guard = match request.acquire().await {
            Ok(guard) => guard,
            Err(error) => {
                let outcome = outcome_of(&error);
                self.ended(&place.name, invoked, Event::NotGranted { outcome });
                return;
            }
        };
        let token = guard.fencing_token(&place.name).unwrap_or_default();
        let ttl = nanos(ttl);
        self.ended(&place.name, invoked, Event::Granted { token, ttl });
        let pause = self.pause();
        let lost = guard.cancellation_token();
        let worked = tokio::select! {
            biased;
            () = lost.cancelled() => false,
            worked = self.section(place, token, pause, || guard.is_held()) => worked,
        };
        let asked = now();
        let is_held = worked && guard.is_held();
        self.held(place, token, if is_held { asked } else { NEVER });
        if let Some((invoked, outcome)) = self.end(guard.release()).await {
            self.ended(&place.name, invoked, Event::Released { token, outcome });
        }
    }

    /// One transaction that takes the lock, and moves an amount under it. Whether the connection can be used again.
    async fn transfer_in(&mut self, connection: &mut MySqlConnection, place: &Place) -> bool {
        let amount = self.random.random_range(-100..=100);
        let pause = self.up_to(READING);
        let task = &*self;
        let invoked = task.invoked(&place.name, Operation::Acquire);
        // The token, and since when it has it, which is when the transfer began.
        let mut granted = None;
        let mut outcome = Outcome::Failed;
        let mut committing = NEVER;
        let transaction = async {
            let mut transaction = connection.begin().await?;
            let lock = task.client.lock_in(&mut transaction, &place.name).await?;
            let token = lock.fencing_token;
            let begun = task.invoked(&place.name, Operation::Transfer { token, amount });
            granted = Some((token, begun));
            tokio::time::sleep(pause).await;
            let transfer = Transfer {
                name: place.name.to_string(),
                worker: task.worker,
                task: task.number,
                invoked: begun,
                token,
                amount,
            };
            transfer.write(&mut transaction).await?;
            // From here on it may be committed.
            outcome = Outcome::Unknown;
            committing = now();
            transaction.commit().await?;
            outcome = Outcome::Done;
            Ok::<_, Failed>(())
        };
        let ended = tokio::time::timeout(PATIENCE, transaction).await;
        let Some((token, begun)) = granted else {
            let outcome = match &ended {
                Ok(Err(Failed::Lock(error))) => outcome_of(error),
                Ok(_) => Outcome::Failed,
                Err(_) => Outcome::Unknown,
            };
            self.ended(&place.name, invoked, Event::NotGranted { outcome });
            return false;
        };
        if let (Outcome::Failed, Ok(Err(error))) = (outcome, &ended) {
            outcome = outcome_in_transaction(error);
        }
        if outcome == Outcome::Done {
            let ttl = nanos(self.setup.ttl());
            let event = Event::Granted { token, ttl };
            self.ended_at(&place.name, (invoked, begun), event);
            self.held(place, token, committing);
        } else {
            // What is rolled back leaves no trace: its token may be another one's.
            let outcome = Outcome::Unknown;
            self.ended(&place.name, invoked, Event::NotGranted { outcome });
        }
        let event = Event::Transfer {
            token,
            amount,
            committing,
            outcome,
        };
        self.ended(&place.name, begun, event);
        matches!(ended, Ok(Ok(())))
    }

    /// Takes a shared hold in one of the ways in which one can.
    async fn acquire_shared(&mut self, place: &Place, apart: bool) -> Option<SharedGuard> {
        let mut ttl = self.setup.ttl();
        let wait = self.up_to(PATIENCE);
        let way = self.random.random_range(0..100);
        let impatience = self.up_to(Duration::from_millis(40));
        let lock = self.client.lock(&place.name).wait(wait).ttl(ttl);
        let mut request = match way {
            0..4 => lock.auto_renew(false).shared(),
            4..6 => {
                ttl /= 2;
                lock.ttl(ttl).max_hold(ttl).shared()
            }
            _ => lock.shared(),
        };
        if apart || way == 99 {
            request = request.apart();
        }
        let invoked = self.invoked(&place.name, Operation::Share);
        let answer = match way {
            6..14 => told(request.try_acquire().await),
            // The future is dropped somewhere on its way.
            14..20 => match tokio::time::timeout(impatience, request.acquire()).await {
                Ok(answer) => told(answer.map(Some)),
                Err(_) => Err(Outcome::Unknown),
            },
            _ => told(request.acquire().await.map(Some)),
        };
        self.waited(&place.name, invoked, (6..14).contains(&way), wait);
        match answer {
            Ok(guard) => {
                let event = Event::Shared {
                    token: guard.fencing_token(),
                    ttl: nanos(ttl),
                    from: 0,
                };
                self.ended(&place.name, invoked, event);
                Some(guard)
            }
            Err(outcome) => {
                self.ended(&place.name, invoked, Event::NotShared { outcome });
                if outcome != Outcome::Unknown {
                    self.rest().await;
                }
                None
            }
        }
    }

    /// Makes a hold a shared one, and reads.
    async fn downgrade(&mut self, place: &Place, guard: LockGuard) {
        let from = guard.fencing_token();
        let limit = if self.chance(10) {
            self.up_to(Duration::from_millis(5))
        } else {
            Duration::MAX
        };
        let invoked = self.invoked(&place.name, Operation::Share);
        let answer = match tokio::time::timeout(limit, guard.downgrade()).await {
            Ok(answer) => answer.map_err(|error| outcome_of(&error)),
            Err(_) => Err(Outcome::Unknown),
        };
        let (event, outcome) = match &answer {
            Ok(shared) => {
                let event = Event::Shared {
                    token: shared.fencing_token(),
                    ttl: nanos(self.setup.ttl()),
                    from,
                };
                (event, Outcome::Done)
            }
            Err(outcome) => (Event::NotShared { outcome: *outcome }, *outcome),
        };
        self.ended(&place.name, invoked, event);
        let token = from;
        self.ended(&place.name, invoked, Event::Released { token, outcome });
        if let Ok(shared) = answer {
            self.look_under(place, &shared.view()).await;
            self.give_shared_back(place, shared).await;
        }
    }

    /// Reads the unprotected value twice, as long as the hold is there.
    async fn look_under(&mut self, place: &Place, guard: &LeaseView) {
        // At times longer than the lease without a renewal.
        let pause = self.pause() + self.up_to(READING);
        let lost = guard.cancellation_token();
        let token = guard.fencing_token();
        let invoked = now();
        let found = self.read(place);
        let is_lost = tokio::select! {
            biased;
            () = lost.cancelled() => true,
            () = tokio::time::sleep(pause) => false,
        };
        let again = self.read(place);
        let event = Event::Looked {
            token,
            found,
            again,
        };
        self.ended(&place.name, invoked, event);
        let asked = now();
        let is_held = !is_lost && guard.is_held();
        self.held(place, token, if is_held { asked } else { NEVER });
    }

    async fn give_shared_back(&mut self, place: &Place, guard: SharedGuard) {
        let token = guard.fencing_token();
        if let Some((invoked, outcome)) = self.end(guard.release()).await {
            self.ended(&place.name, invoked, Event::Released { token, outcome });
        }
    }

    /// One transaction that verifies its hold and counts the transfers twice. Whether the connection can be used again.
    async fn vouch(
        &mut self,
        connection: &mut MySqlConnection,
        place: &Place,
        guard: SharedGuard,
    ) -> bool {
        let token = guard.fencing_token();
        let ending = self.ending();
        let longest = match self.random.random_range(0..1_000) {
            0..400 => Duration::ZERO,
            400..990 => READING,
            // Who wants to write is kept waiting by it.
            _ => Duration::from_millis(2_500),
        };
        let pause = self.up_to(longest);
        let invoked = now();
        let mut guard = Some(guard);
        let mut outcome = Outcome::Failed;
        let (mut found, mut again) = (0, 0);
        let mut committing = NEVER;
        let transaction = async {
            let Some(held) = guard.as_ref() else {
                return Ok(());
            };
            let mut transaction = connection.begin().await?;
            held.verify_in(&mut transaction).await?;
            found = transfers(&mut transaction, place).await?;
            tokio::time::sleep(pause).await;
            again = transfers(&mut transaction, place).await?;
            match ending {
                Ending::Undone => {
                    transaction.rollback().await?;
                    return Ok(());
                }
                Ending::Within => held.release_in(&mut transaction).await?,
                // The transaction holds the row of the hold: until it ends, this is as good as the guard.
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
        let event = Event::Vouched {
            token,
            found,
            again,
            committing,
            outcome,
        };
        self.ended(&place.name, invoked, event);
        // Only of a transaction that was committed is it certain that its row was locked until then.
        let trusted_until = if outcome == Outcome::Done {
            committing
        } else {
            NEVER
        };
        self.held(place, token, trusted_until);
        match guard {
            Some(guard) if ending != Ending::Within || !clean => {
                self.give_shared_back(place, guard).await;
            }
            guard => drop(guard),
        }
        clean
    }
}

/// How many transfers were committed between the accounts of the lock, as the transaction sees it.
async fn transfers(connection: &mut MySqlConnection, place: &Place) -> Result<u64, sqlx::Error> {
    let row = sqlx::query("SELECT version FROM account WHERE name = ?")
        .bind(&*place.name)
        .fetch_one(connection)
        .await?;
    row.try_get(0)
}

fn told(answer: Result<Option<SharedGuard>, Error>) -> Result<SharedGuard, Outcome> {
    match answer {
        Ok(Some(guard)) => Ok(guard),
        Ok(None) => Err(Outcome::Refused),
        Err(error) => Err(outcome_of(&error)),
    }
}
