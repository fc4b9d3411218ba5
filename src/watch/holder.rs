//! Who holds a lock, and what of that is news.

use chrono::{DateTime, Utc};

use crate::error::Error;
use crate::inspect::{LockInfo, LockState};

/// Who holds a lock, as a [`LockWatch`](crate::LockWatch) saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Holder {
    /// Who holds it: `host/pid`, or what the client was built with.
    pub held_by: String,
    /// What it is held for.
    pub description: String,
    /// The highest fencing token that this grant may give out; the holder's own is up to 65,535 lower. The next grant's are higher.
    pub highest_fencing_token: u64,
    /// When it was granted, by the server's clock, to about a tenth of a second. Where that clock went back, it may be later.
    pub since: DateTime<Utc>,
    /// When the lease ends if it is not renewed, by the server's clock. Renewals that come later are not told.
    pub until: DateTime<Utc>,
    /// It was released, but stays taken until its minimum hold ends.
    pub is_kept: bool,
    /// It is held shared: what is said of the holder is of the hold that ends last. Another process that takes a shared hold is told as a change.
    pub is_shared: bool,
}

impl Holder {
    /// `None` if it is free.
    pub(super) fn of(info: LockInfo) -> Option<Self> {
        let is_kept = match info.state {
            LockState::Held | LockState::Shared => false,
            LockState::Kept => true,
            LockState::Free | LockState::Done => return None,
        };
        Some(Self {
            since: granted(info.highest_fencing_token, info.modified),
            held_by: info.held_by,
            description: info.description,
            highest_fencing_token: info.highest_fencing_token,
            until: info.deadline,
            is_kept,
            is_shared: info.state == LockState::Shared,
        })
    }

    /// Whether it is the same grant, in the same state.
    fn is_same(&self, other: &Self) -> bool {
        // An owner who enters again, and a renewal, change neither.
        (self.highest_fencing_token, self.is_kept, self.is_shared)
            == (other.highest_fencing_token, other.is_kept, other.is_shared)
            && (self.is_shared || self.held_by == other.held_by)
    }
}

/// When a lock was granted: its token begins with the server's time in microseconds, unless an earlier one was higher; and the row changed
/// then, or later with a renewal.
fn granted(token: u64, modified: DateTime<Utc>) -> DateTime<Utc> {
    let told = i64::try_from(token).ok();
    let told = told.and_then(DateTime::from_timestamp_micros);
    told.map_or(modified, |told| told.min(modified))
}

/// What is known of a lock: nothing of it can be read, or it is free, or somebody holds it.
pub(super) type Known = Result<Option<Holder>, Error>;

/// Whether it is to be told, after what was told before.
pub(super) fn is_news(told: Option<&Known>, known: &Known) -> bool {
    match (told, known) {
        (None, _) | (Some(Ok(_)), Err(_)) | (Some(Err(_)), Ok(_)) => true,
        // It goes on.
        (Some(Err(_)), Err(_)) => false,
        (Some(Ok(Some(before))), Ok(Some(now))) => !before.is_same(now),
        (Some(Ok(before)), Ok(now)) => before.is_some() != now.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn time(micros: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(micros).expect("a time")
    }

    fn info(state: LockState, highest_fencing_token: u64, modified: i64) -> LockInfo {
        LockInfo {
            name: "a".to_owned(),
            state,
            held_by: "host/1".to_owned(),
            description: "work".to_owned(),
            deadline: time(2_000_000),
            remaining: Duration::ZERO,
            highest_fencing_token,
            depth: 1,
            modified: time(modified),
            wish: None,
        }
    }

    fn held(token: u64, modified: i64) -> Known {
        Ok(Holder::of(info(LockState::Held, token, modified)))
    }

    #[test]
    fn what_is_free_has_no_holder() {
        for state in [LockState::Free, LockState::Done] {
            assert_eq!(Holder::of(info(state, 1, 1)), None);
        }
        let kept = Holder::of(info(LockState::Kept, 1, 1)).expect("taken");
        assert!(kept.is_kept);
    }

    #[test]
    fn the_token_tells_since_when() {
        let since = |token, modified| {
            let holder = Holder::of(info(LockState::Held, token, modified));
            holder.expect("held").since
        };
        // Not renewed yet, renewed, and behind a token of a clock that went back.
        assert_eq!(since(1_065_536, 1_000_000), time(1_000_000));
        assert_eq!(since(1_065_536, 9_000_000), time(1_065_536));
        assert_eq!(since(u64::MAX, 9_000_000), time(9_000_000));
    }

    #[test]
    fn a_change_is_news_and_a_renewal_is_not() {
        let (free, one, renewed, next) = (Ok(None), held(1, 1), held(1, 2), held(2, 2));
        let failed: Known = Err(Error::Closed);
        let kept: Known = Ok(Holder::of(info(LockState::Kept, 1, 1)));
        for known in [&free, &one, &failed] {
            assert!(is_news(None, known), "{known:?} is how it begins");
        }
        for (before, now, news) in [
            (&free, &free, false),
            (&free, &one, true),
            (&one, &free, true),
            (&one, &renewed, false),
            (&one, &next, true),
            (&one, &kept, true),
            (&one, &failed, true),
            (&failed, &failed, false),
            (&failed, &one, true),
        ] {
            assert_eq!(is_news(Some(before), now), news, "{before:?}, {now:?}");
        }
    }
}
