//! What is held, by whom, and until when.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::clock::from_micros;
use crate::engine::Engine;
use crate::error::Error;
use crate::sql::inspect;
use crate::sql::reply::{ACTIVE, DONE, KEPT, SHARED};
use crate::timing::{STANDBY, URGENT};

/// The state of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum LockState {
    /// Nobody holds it: it was released, or its lease has ended.
    Free,
    /// A lease is running.
    Held,
    /// It is held shared. [`held_by`](LockInfo::held_by), the description and the times are of the hold that ends last.
    Shared,
    /// It was released, but stays taken until its minimum hold ends.
    Kept,
    /// The slot of a [job](crate::Job): it is done.
    Done,
}

/// How pressing a [`Wish`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Urgency {
    /// Somebody waits.
    Waits,
    /// Somebody waits whom others let go first: a client far from the server that has waited for more than a second, or one that waits for a
    /// shared hold.
    Urgent,
    /// Somebody has waited for 30 seconds or more while nothing changed.
    StandsBy,
}

/// What a row says of those who wait for it. Whoever waits in another process than the holder's writes a wish, which counts for some time (10 to
/// 19 seconds; an urgent one 60 to 90, one of who stands by 300), and writes it again as long as he waits. It does not say who waits, nor how
/// many do.
///
/// A wish is no proof that somebody waits *now*: of a process that has died it stays until its time is over. And without one somebody may wait all the
/// same:
///
/// - tasks of the holder's own process stand in line in its memory;
/// - a grant ends the wish, and whoever waits on writes it again at his next look: a tenth of a second later, or a second if he stands by;
/// - who asks without waiting (`try_acquire`) writes none, nor does who finds somebody else at the slot of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Wish {
    /// How pressing it is.
    pub urgency: Urgency,
    /// Until when it counts if it is not written again, by the server's clock.
    pub until: DateTime<Utc>,
    /// How much of that time is left.
    pub remaining: Duration,
}

impl Wish {
    /// By the row's `wanted_until` and the server's time, in microseconds since 1970. `None`: nobody is known to wait.
    fn of(until: i64, now: i64) -> Option<Self> {
        let remaining = from_micros(until.saturating_sub(now));
        let urgency = if remaining.is_zero() {
            return None;
        } else if remaining > STANDBY {
            Urgency::StandsBy
        } else if remaining > URGENT {
            Urgency::Urgent
        } else {
            Urgency::Waits
        };
        Some(Self {
            urgency,
            until: time(until),
            remaining,
        })
    }
}

/// A lock as it stands in the table. With the feature `serde` it can be serialized: times as RFC 3339, the remaining time as
/// seconds and nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct LockInfo {
    /// Its name.
    pub name: String,
    /// Whether it is held.
    pub state: LockState,
    /// Who holds it, or held it last: `host/pid`, or what the client was built with. Of a re-entrant lock, who entered first.
    pub held_by: String,
    /// What it is, or was, held for.
    pub description: String,
    /// When the lease ends if it is not renewed, by the server's clock.
    pub deadline: DateTime<Utc>,
    /// How much of the lease is left; zero when it is free, or done.
    pub remaining: Duration,
    /// The highest fencing token that this grant may give out. The holder's own ([`LockGuard::fencing_token`](crate::LockGuard::fencing_token))
    /// is up to 65,535 lower: a grant reserves so many for the tasks of its process. Of a lock that is free: the last that was given out, or, where a
    /// lease has ended without a release, that may have been.
    pub highest_fencing_token: u64,
    /// How many levels of one owner hold it; 1 without an owner, 0 when nobody holds it. Of a lock that is held shared: how many shared holds
    /// there are; tasks of one process may have one together.
    pub depth: u64,
    /// When the row changed last, by the server's clock.
    pub modified: DateTime<Utc>,
    /// The wish of those who wait for it, as far as the row tells; `None` if nobody is known to wait. Of a lock that is held shared: somebody wants it
    /// for himself. Of a lock that is free: whoever waits has it next, or is gone, or a transaction has the lock.
    pub wish: Option<Wish>,
}

impl LockInfo {
    /// Reads a row of [`crate::sql::inspect`].
    pub(crate) fn from_row(row: &MySqlRow) -> Result<Self, sqlx::Error> {
        let status: u8 = row.try_get_unchecked(1)?;
        let count: i64 = row.try_get_unchecked(5)?;
        let deadline: i64 = row.try_get_unchecked(6)?;
        let modified: i64 = row.try_get_unchecked(7)?;
        let now: i64 = row.try_get_unchecked(8)?;
        let wanted_until: i64 = row.try_get_unchecked(9)?;
        let state = match status {
            ACTIVE if deadline > now => LockState::Held,
            SHARED if deadline > now => LockState::Shared,
            DONE if deadline > now => LockState::Done,
            KEPT if deadline > now => LockState::Kept,
            _ => LockState::Free,
        };
        let left = match state {
            LockState::Free | LockState::Done | LockState::Shared => 0,
            LockState::Held | LockState::Kept => deadline - now,
        };
        Ok(Self {
            name: row.try_get_unchecked(0)?,
            state,
            held_by: row.try_get_unchecked(2)?,
            description: row.try_get_unchecked(3)?,
            deadline: time(deadline),
            remaining: from_micros(left),
            highest_fencing_token: row.try_get_unchecked(4)?,
            depth: match state {
                LockState::Held => u64::try_from(count).unwrap_or_default(),
                LockState::Free | LockState::Kept | LockState::Done | LockState::Shared => 0,
            },
            modified: time(modified),
            wish: Wish::of(wanted_until, now),
        })
    }

    /// Of a lock that is held shared, what its holds say; it is free if there are none.
    fn with_holds(&mut self, holds: impl Iterator<Item = Self>) {
        let mut depth = 0;
        let last = holds
            .inspect(|_| depth += 1)
            .max_by_key(|hold| hold.deadline);
        match last {
            Some(last) => {
                self.held_by = last.held_by;
                self.description = last.description;
                self.deadline = last.deadline;
                self.remaining = last.remaining;
            }
            None => self.state = LockState::Free,
        }
        self.depth = depth;
    }

    /// Who holds it and what for, in one line.
    pub(crate) fn holder(&self) -> String {
        if self.description.is_empty() {
            self.held_by.clone()
        } else {
            format!("{} ({})", self.held_by, self.description)
        }
    }
}

/// Whom a query is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// It is repeated all the time, and answered at once.
    Watches,
    /// It may take its time.
    People,
}

async fn ask(engine: &Engine, sql: String, whom: For) -> Result<Vec<MySqlRow>, Error> {
    match whom {
        For::Watches => engine.query(sql).await,
        For::People => engine.show(sql).await,
    }
}

/// Reads locks, with the holds of those that are held shared.
pub(crate) async fn read(engine: &Engine, sql: String, whom: For) -> Result<Vec<LockInfo>, Error> {
    let infos = |rows: &[MySqlRow]| -> Result<Vec<LockInfo>, Error> {
        let infos = rows.iter().map(LockInfo::from_row);
        infos.collect::<Result<_, _>>().map_err(Error::from_sqlx)
    };
    let mut found = infos(&ask(engine, sql, whom).await?)?;
    let mut shared: Vec<&mut LockInfo> = found
        .iter_mut()
        .filter(|info| info.state == LockState::Shared)
        .collect();
    let mut rest = shared.as_mut_slice();
    while !rest.is_empty() {
        let fitting = inspect::fitting(rest.iter().map(|info| info.name.as_str()));
        let (locks, behind) = rest.split_at_mut(fitting);
        rest = behind;
        let sql = inspect::shared(locks.iter().map(|info| info.name.as_str()));
        let holds = infos(&ask(engine, sql, whom).await?)?;
        for lock in locks {
            let name = lock.name.clone();
            lock.with_holds(holds.iter().filter(|hold| hold.name == name).cloned());
        }
    }
    Ok(found)
}

pub(crate) fn time(micros: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(micros).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::micros;
    use crate::sql::wish::first_turn;
    use crate::timing::{LONGEST_WAIT, MOST_TURNS, WANT, WANT_STANDING_BY, WANT_URGENTLY};

    #[test]
    fn a_wish_is_as_pressing_as_it_is_long() {
        let now = 1_700_000_000_000_000;
        let of = |wish: Duration| Wish::of(now + micros(wish), now);
        let urgency = |wish| of(wish).map(|wish| wish.urgency);
        for (wish, expected) in [
            (WANT, Urgency::Waits),
            (first_turn(MOST_TURNS), Urgency::Waits),
            (WANT_URGENTLY, Urgency::Urgent),
            (WANT_URGENTLY + LONGEST_WAIT, Urgency::Urgent),
            (WANT_STANDING_BY, Urgency::StandsBy),
            // It is written again before it is taken for another one.
            (WANT_STANDING_BY / 2, Urgency::StandsBy),
        ] {
            assert_eq!(urgency(wish), Some(expected), "{wish:?}");
        }
        let wish = of(Duration::from_micros(7)).expect("a wish");
        assert_eq!(wish.remaining, Duration::from_micros(7));
        assert_eq!(wish.until, time(now + 7));
    }

    #[test]
    fn what_is_over_is_no_wish() {
        // What a row is created with; what a grant leaves; and one that was not repeated.
        for (until, now) in [(0, 1_000), (1_000, 1_000), (999, 1_000)] {
            assert_eq!(Wish::of(until, now), None, "{until}");
        }
    }
}

#[cfg(all(test, feature = "serde"))]
mod serde_tests {
    use super::*;

    #[test]
    fn what_was_written_can_be_read() {
        let info = LockInfo {
            name: "job".to_owned(),
            state: LockState::Held,
            held_by: "host/1".to_owned(),
            description: String::new(),
            deadline: time(1_700_000_000_000_001),
            remaining: Duration::from_micros(1_000_001),
            highest_fencing_token: u64::MAX,
            depth: 1,
            modified: time(0),
            wish: Wish::of(1_700_000_000_000_001, 1_699_999_999_000_001),
        };
        let text = serde_json::to_string(&info).expect("written");
        assert!(
            text.contains(r#""state":"held","held_by":"host/1""#)
                && text.contains(r#""deadline":"2023-11-14T22:13:20.000001Z""#),
            "{text}"
        );
        assert!(
            text.contains(r#""wish":{"urgency":"waits","until":"2023-11-14T22:13:20.000001Z""#),
            "{text}"
        );
        let read: LockInfo = serde_json::from_str(&text).expect("read");
        assert_eq!(read, info);
    }

    /// What a version wrote that knew no wishes.
    #[test]
    fn what_says_nothing_of_wishes_can_be_read() {
        let text = r#"{"name":"job","state":"free","held_by":"","description":"","deadline":"2023-11-14T22:13:20Z",
            "remaining":{"secs":0,"nanos":0},"highest_fencing_token":1,"depth":0,"modified":"2023-11-14T22:13:20Z"}"#;
        let read: LockInfo = serde_json::from_str(text).expect("read");
        assert_eq!(read.wish, None);
    }
}
