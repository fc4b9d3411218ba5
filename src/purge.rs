//! Deleting rows of locks that nobody has used for long, and of operation ids that were forgotten.
//!
//! Off unless it is called: in production rows usually stay.

use std::time::Duration;

use sqlx::Row;

use crate::client::LockClient;
use crate::clock::micros;
use crate::engine::backoff::Backoff;
use crate::engine::session::{Failure, Session};
use crate::error::Error;
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

/// What a purge deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purged {
    /// Rows of locks and of operation ids.
    pub rows: u64,
    /// Rows of lanes of clients that are gone.
    pub lanes: u64,
}

impl LockClient {
    /// Deletes the rows of locks that are free, and of operation ids whose retention has ended, if
    /// nothing changed them for `older_than` (at least one hour). Counters stay: they are data. Fencing
    /// tokens still rise afterwards.
    ///
    /// It works in small steps beside a full load, on a connection of its own, and needs the DELETE
    /// privilege.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for less than an hour; others as the server gives cause for: what was
    /// deleted so far stays deleted.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends it after the current step at the latest.
    pub async fn purge(&self, older_than: Duration) -> Result<Purged, Error> {
        if older_than < MIN_AGE || older_than > MAX_DURATION {
            return Err(Error::InvalidOption {
                option: "older_than",
                reason: format!("use at least {MIN_AGE:?} and at most {MAX_DURATION:?}"),
            });
        }
        let age = micros(older_than);
        let mut session = self.inner().open_session(Commit::Explicit).await?;
        let mut purged = Purged::default();
        let mut after = None;
        loop {
            let sql = purge::page(after.as_ref(), age, PAGE);
            let rows = session.rows(sql).await.map_err(Error::from_sqlx)?;
            let Some(last) = rows.last() else { break };
            let read =
                |row: &sqlx::mysql::MySqlRow| -> Result<(String, u8, u64, bool), sqlx::Error> {
                    Ok((
                        row.try_get_unchecked(0)?,
                        row.try_get_unchecked(1)?,
                        row.try_get_unchecked(2)?,
                        row.try_get_unchecked::<i64, _>(3)? == 1,
                    ))
                };
            let (name, kind, ..) = read(last).map_err(Error::from_sqlx)?;
            after = Some((name, kind));
            let mut doomed = Vec::new();
            for row in &rows {
                let (name, kind, fence, may_go) = read(row).map_err(Error::from_sqlx)?;
                let kind = match kind {
                    1 => Kind::Lock,
                    3 => Kind::Once,
                    _ => continue,
                };
                // A name that this library did not write stays.
                if may_go && let Ok(checked) = Name::new(&name) {
                    doomed.push(Doomed {
                        stripe: Stripe::of(&checked),
                        name,
                        kind,
                        fence,
                    });
                }
            }
            for rows in doomed.chunks(STEP) {
                purged.rows += self
                    .step(&mut session, |dialect| purge::step(rows, age, dialect))
                    .await?;
            }
        }
        let age = age.max(micros(LANE_AGE));
        purged.lanes = self.purge_lanes(&mut session, age).await?;
        Ok(purged)
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
