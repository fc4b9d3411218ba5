//! Wishes. Who waits for a lock says in its row until when it waits; a grant answers that, and who still waits says so again. How long a wish
//! is known for tells what it is: for some seconds, for longer than [`URGENT`], or for longer than [`STANDBY`]. For a moment after each
//! release others give way to it.

use std::time::Duration;

use crate::clock::from_micros;
use crate::timing::{
    GIVE_WAY, GIVE_WAY_TO_FAR, GIVE_WAY_TO_STANDBY, PER_TURN, STANDBY, URGENT, WANT,
};

/// To whose wishes somebody gives way who asks for a lock: to those that are known for longer than so many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GivesWay(u16);

impl GivesWay {
    /// Who does not wait yet lets everybody go first who does.
    pub(crate) const TO_ALL: Self = Self(0);
    /// No wish is known for so long.
    pub(crate) const TO_NONE: Self = Self(3_600);

    /// `waits`: he waits himself, and lets those go first only whose wish is urgent.
    pub(crate) fn of(waits: bool) -> Self {
        if waits {
            Self::to_longer_than(URGENT)
        } else {
            Self::TO_ALL
        }
    }

    /// Our own wish is known for so long. It is rounded up, so that nobody gives way to himself.
    pub(crate) fn to_longer_than(wish: Duration) -> Self {
        let seconds = wish.as_secs() + u64::from(wish.subsec_nanos() > 0);
        u16::try_from(seconds).map_or(Self::TO_NONE, Self)
    }

    pub(crate) fn seconds(self) -> u16 {
        self.0
    }

    /// Whether a wish goes first that is known for so many microseconds still.
    pub(crate) fn is_to(self, wanted: i64) -> bool {
        from_micros(wanted) > Duration::from_secs(self.0.into())
    }
}

/// The wish of a process that has had no turn, though it has seen so many of others.
pub(crate) fn first_turn(turns: u32) -> Duration {
    WANT + PER_TURN * turns
}

/// How many turns somebody has seen who has had none and whose wish is known for so long still.
pub(crate) fn turns_seen(wanted: Duration) -> u32 {
    if wanted > URGENT {
        return 0;
    }
    let longer = wanted.saturating_sub(WANT).as_micros();
    u32::try_from(longer.div_ceil(PER_TURN.as_micros())).unwrap_or_default()
}

/// How long others give way to a wish that is known for so long still.
pub(crate) fn give_way(wanted: Duration) -> Duration {
    if wanted > STANDBY {
        GIVE_WAY_TO_STANDBY
    } else if wanted > URGENT {
        GIVE_WAY_TO_FAR
    } else {
        GIVE_WAY
    }
}

/// Nobody waits to whom `v.gives_way` gives way, or the lock has been free for long enough for him to come.
pub(super) fn unwanted() -> String {
    format!("{} OR {}", unheeded(), in_vain())
}

/// Nobody waits to whom `v.gives_way` gives way.
pub(super) fn unheeded() -> &'static str {
    "t.wanted_until<=TIMESTAMPADD(SECOND,v.gives_way,{at})"
}

/// The lock has been free for long enough for who waits to come.
pub(super) fn in_vain() -> String {
    let longer = |than: Duration| {
        let seconds = than.as_secs();
        format!("t.wanted_until>TIMESTAMPADD(SECOND,{seconds},{{at}})")
    };
    format!(
        "t.deadline<=TIMESTAMPADD(MICROSECOND,IF({},-{},IF({},-{},-{})),{{at}})",
        longer(STANDBY),
        GIVE_WAY_TO_STANDBY.as_micros(),
        longer(URGENT),
        GIVE_WAY_TO_FAR.as_micros(),
        GIVE_WAY.as_micros()
    )
}
