//! Deleting rows of locks, of permits, and of slots of jobs that nobody has used for long, of operation ids that were forgotten, and of counters
//! that were deleted or never set, or whose window has ended.
//!
//! Off unless it is called, or asked for: in production rows usually stay.

use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sqlx::Row;
use sqlx::mysql::{MySqlConnectOptions, MySqlRow};
use tokio_util::sync::CancellationToken;

use crate::client::LockClient;
use crate::clock::{Moment, micros};
use crate::engine::backoff::Backoff;
use crate::engine::session::{Failure, Session};
use crate::error::Error;
use crate::lock::registry::turn::Turn;
use crate::lock::registry::{Entered, Locks};
use crate::lock::terms::{Terms, Wait};
use crate::name::Name;
use crate::sql::dialect::Dialect;
use crate::sql::purge::{self, Doomed};
use crate::sql::row::Kind;
use crate::sql::script::Packet;
use crate::sql::server_error::Meaning;
use crate::sql::session::Commit;
use crate::stripe::Stripe;
use crate::timing::{LANE_AGE, MAX_DURATION};

/// Younger rows stay: a client may have made sure of them for a transaction of its caller's.
const MIN_AGE: Duration = Duration::from_secs(3_600);
/// How many rows one query looks at.
const PAGE: u32 = 2_000;
/// How many rows one step deletes: it holds their stripes for one packet.
const STEP: usize = 100;
/// A step that met a conflict is run again this often; then its rows stay for the next purge.
const ATTEMPTS: u32 = 5;

/// The name of the lock that says which client purges by itself, and for how long none needs to.
const TURN: &str = "tag_lock: purge";
/// The lease of that lock.
const TURN_TTL: Duration = Duration::from_secs(30);
/// How soon a client that purges by itself does so for the first time, at the latest.
const FIRST: Duration = Duration::from_secs(10);
/// The shortest and the longest time between two purges by themselves.
const PERIOD: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(3_600);
/// The pause behind each page and each step of a purge that nobody waits for.
const GENTLE: Duration = Duration::from_millis(20);

/// What a purge deleted, or [would take](LockClient::purgeable).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purged {
    /// Rows of locks, of permits, of shared holds, of slots of jobs, of operation ids, and of counters that were deleted or never set, or whose window has ended.
    pub rows: u64,
    /// Rows of lanes of clients that are gone.
    pub lanes: u64,
}

impl LockClient {
    /// Deletes the rows of locks and of permits that are free, of shared holds that have ended, of slots of [jobs](crate::Job) that nobody is at, of operation ids whose retention has ended, and of
    /// counters that were [deleted](crate::Counter::delete) or never set, or whose [window](crate::Counter::window) has ended, if nothing changed them for
    /// `older_than` (at least one hour). Other counters stay: they are data. The value of a purged counter is 0 as before; one whose window had ended
    /// counts as never set from then on, so that [`init`](crate::Counter::init) sets it. Fencing tokens still rise afterwards. A slot that was
    /// done is forgotten then, and would be run again: `older_than` is also how late a machine may ask for a slot.
    ///
    /// [`LockClientBuilder::purge_after`](crate::LockClientBuilder::purge_after) has it done again and again.
    ///
    /// It works in small steps beside a full load, on a connection of its own, and needs the DELETE
    /// privilege.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for less than an hour; [those of any call](Error#errors-that-any-call-may-return): what was
    /// deleted so far stays deleted.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends it after the current step at the latest.
    pub async fn purge(&self, older_than: Duration) -> Result<Purged, Error> {
        check_age("older_than", older_than)?;
        self.inner()
            .purger()
            .purge(older_than, Duration::ZERO)
            .await
    }

    /// How many rows [`purge`](Self::purge) would delete now: those that nobody needs, and that nothing changed for `older_than` (at least one hour; a day for
    /// rows of lanes, as a purge has it). It is the purge's own look, and deletes nothing.
    ///
    /// Others may use such a row before a purge comes, and a purge leaves rows that somebody has locked in that moment: it may take fewer. It may take
    /// more, too, by those that have grown old meanwhile.
    ///
    /// It reads all rows, 2,000 in a query, on a connection of its own, locks none, and needs the SELECT privilege only.
    ///
    /// ```no_run
    /// # async fn example(locks: tag_lock::LockClient) -> Result<(), tag_lock::Error> {
    /// use std::time::Duration;
    ///
    /// let month = Duration::from_secs(30 * 86_400);
    /// if locks.purgeable(month).await?.rows > 100_000 {
    ///     let purged = locks.purge(month).await?;
    ///     println!("{} rows are gone", purged.rows);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for less than an hour; others as the server gives cause for.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing. Dropping the future closes its connection.
    pub async fn purgeable(&self, older_than: Duration) -> Result<Purged, Error> {
        check_age("older_than", older_than)?;
        self.inner().purger().count(older_than).await
    }
}

/// Whether rows may be purged that nothing changed for so long.
pub(crate) fn check_age(option: &'static str, age: Duration) -> Result<(), Error> {
    if age < MIN_AGE || age > MAX_DURATION {
        return Err(Error::InvalidOption {
            option,
            reason: format!("use at least {MIN_AGE:?} and at most {MAX_DURATION:?}"),
        });
    }
    Ok(())
}

/// How to connect for a purge.
#[derive(Clone)]
pub(crate) struct Purger {
    pub(crate) connect: MySqlConnectOptions,
    /// How long a packet may take.
    pub(crate) limit: Duration,
}

impl Purger {
    /// `pause`: behind each page and each step.
    async fn purge(&self, older_than: Duration, pause: Duration) -> Result<Purged, Error> {
        let age = micros(older_than);
        let mut session = self.session().await?;
        let mut purged = Purged::default();
        let mut after = None;
        while let Some(found) = look(&mut session, &mut after, age).await? {
            let mut doomed = Vec::new();
            for Found { row, door } in found {
                // A door that was held shared is freed first, if it is held no more.
                if let Some(door) = door {
                    let close = |dialect| purge::close(&door, row.fence, age, dialect);
                    if self.step(&mut session, close).await? == 0 {
                        continue;
                    }
                    rest(pause).await;
                }
                doomed.push(row);
            }
            for rows in doomed.chunks(STEP) {
                purged.rows += self
                    .step(&mut session, |dialect| purge::step(rows, age, dialect))
                    .await?;
                rest(pause).await;
            }
            rest(pause).await;
        }
        purged.lanes = self.purge_lanes(&mut session, lane_age(age)).await?;
        Ok(purged)
    }

    /// What a purge would delete, by the same look.
    async fn count(&self, older_than: Duration) -> Result<Purged, Error> {
        let age = micros(older_than);
        let mut session = self.session().await?;
        let mut rows = 0;
        let mut after = None;
        while let Some(found) = look(&mut session, &mut after, age).await? {
            rows += u64::try_from(found.len()).unwrap_or(u64::MAX);
        }
        let lanes = session.query(purge::count_idle_lanes(lane_age(age))).await;
        let lanes = lanes.map_err(Error::from_sqlx)?;
        session.close().await;
        Ok(Purged {
            rows,
            lanes: lanes
                .and_then(|count| count.parse().ok())
                .unwrap_or_default(),
        })
    }

    async fn session(&self) -> Result<Session, Error> {
        Session::open(&self.connect, Commit::Explicit, self.limit)
            .await
            .map_err(Error::from_sqlx)
    }

    /// One packet of a purge, and how many rows it deleted; none if it met a conflict too often.
    async fn step(
        &self,
        session: &mut Session,
        write: impl Fn(Dialect) -> Packet,
    ) -> Result<u64, Error> {
        let mut backoff = Backoff::conflict();
        for _ in 0..ATTEMPTS {
            match session.packet(write(session.dialect)).await {
                Ok(count) => {
                    return Ok(count
                        .and_then(|count| count.parse().ok())
                        .unwrap_or_default());
                }
                Err(Failure::RolledBack {
                    meaning: Meaning::Conflict,
                    ..
                }) => tokio::time::sleep(backoff.delay()).await,
                Err(Failure::RolledBack { error, .. } | Failure::Unknown(error)) => {
                    return Err(Error::from_sqlx(error));
                }
            }
        }
        Ok(0)
    }

    /// Deletes what one query finds at a time, until that finds nothing or nothing of it can be deleted.
    async fn purge_lanes(&self, session: &mut Session, age: i64) -> Result<u64, Error> {
        let mut count = 0;
        loop {
            let sql = purge::idle_lanes(age, PAGE);
            let rows = session.rows(sql).await.map_err(Error::from_sqlx)?;
            let before = count;
            for row in rows {
                let id: String = row.try_get_unchecked(0).map_err(Error::from_sqlx)?;
                let id = u128::from_str_radix(&id, 16)
                    .unwrap_or_default()
                    .to_be_bytes();
                count += self
                    .step(session, |dialect| purge::delete_lane(&id, age, dialect))
                    .await?;
            }
            if count == before {
                return Ok(count);
            }
        }
    }
}

/// A row that may go.
struct Found {
    row: Doomed,
    /// The name of a door that was held shared, and has to be freed first.
    door: Option<Name>,
}

/// The next rows, behind `after`, that a purge takes; `None` behind the last one. `after` goes on to the last row that was seen.
async fn look(
    session: &mut Session,
    after: &mut Option<(String, u8, u32)>,
    age: i64,
) -> Result<Option<Vec<Found>>, Error> {
    let sql = purge::page(after.as_ref(), age, PAGE);
    let rows = session.rows(sql).await.map_err(Error::from_sqlx)?;
    let Some(last) = rows.last() else {
        return Ok(None);
    };
    let read = |row: &MySqlRow| -> Result<(String, u8, u64, i64, u32), sqlx::Error> {
        Ok((
            row.try_get_unchecked(0)?,
            row.try_get_unchecked(1)?,
            row.try_get_unchecked(2)?,
            row.try_get_unchecked(3)?,
            row.try_get_unchecked(4)?,
        ))
    };
    let (name, kind, _, _, slot) = read(last).map_err(Error::from_sqlx)?;
    *after = Some((name, kind, slot));
    let mut found = Vec::new();
    for row in &rows {
        let (name, kind, fence, may_go, slot) = read(row).map_err(Error::from_sqlx)?;
        let kind = match kind {
            1 => Kind::Lock,
            2 => Kind::Counter,
            3 => Kind::Once,
            4 => Kind::Job,
            5 => Kind::Permit,
            6 => Kind::Shared,
            _ => continue,
        };
        // A name that this library did not write stays.
        if may_go > 0
            && let Ok(checked) = Name::new(&name)
        {
            let stripe = Stripe::of(&checked);
            found.push(Found {
                row: Doomed {
                    stripe,
                    name,
                    kind,
                    slot,
                    fence,
                },
                door: (may_go == 2).then_some(checked),
            });
        }
    }
    Ok(Some(found))
}

/// From which age on lanes go, in microseconds.
fn lane_age(age: i64) -> i64 {
    age.max(micros(LANE_AGE))
}

async fn rest(pause: Duration) {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
}

/// Purges again and again what nothing has changed for `age`, until the client is closed or gone. Of all clients that do so one does, and
/// then none for a while: the lock of that name says so, which stays taken for as long.
pub(crate) async fn run(
    locks: Weak<Locks>,
    purger: Purger,
    age: Duration,
    stopped: CancellationToken,
) {
    let period = (age / 16).clamp(*PERIOD.start(), *PERIOD.end());
    let mut pause = FIRST.mul_f64(rand::random());
    loop {
        tokio::select! {
            () = stopped.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = period.mul_f64(rand::random_range(0.5..=1.0));
        let Some(locks) = locks.upgrade() else {
            return;
        };
        let turn = async {
            match take_turn(&locks, period).await {
                Ok(Some(turn)) => {
                    let lost = turn.lease.signal();
                    let purging = purger.purge(age, GENTLE);
                    tokio::select! {
                        () = lost.cancelled() => {}
                        purged = purging => tell(&purged),
                    }
                }
                Ok(None) => {}
                Err(error) => tell(&Err(error)),
            }
        };
        tokio::select! {
            () = stopped.cancelled() => return,
            () = turn => {}
        }
    }
}

/// Takes the lock that stays taken for a while, if it is free.
async fn take_turn(locks: &Arc<Locks>, period: Duration) -> Result<Option<Turn>, Error> {
    let name = Name::new(TURN)?;
    let terms = Terms {
        ttl: TURN_TTL,
        auto_renew: true,
        passes: true,
        hold_at_least: period / 2,
        max_hold: None,
        linger: Duration::ZERO,
        description: "deletes rows that nobody has used for long".into(),
        owner: None,
    };
    match locks.enter(&name, terms, Wait::Not, Moment::now())? {
        Entered::Taken(turn) => Ok(Some(turn)),
        Entered::Refused => Ok(None),
        Entered::Waits(ticket) => Ok(ticket.wait().await?.ok()),
    }
}

fn tell(purged: &Result<Purged, Error>) {
    match purged {
        Ok(Purged { rows, lanes }) => tracing::debug!(rows, lanes, "purged"),
        // It is tried again; what to do about it, the error says.
        Err(error) => tracing::warn!(error = %error.in_full(), "rows could not be purged"),
    }
}
