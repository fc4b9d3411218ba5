//! What this process saw of one row, and what it told the others about its own waiting.

use std::time::Duration;

use super::Asking;
use crate::clock::{Moment, from_micros};
use crate::lock::registry::pace::Pace;
use crate::lock::registry::rotation::Rotation;
use crate::mutant::{self, Mutant};
use crate::sql::reply::RowState;
use crate::sql::wish::{GivesWay, first_turn, give_way, turns_seen};
use crate::timing::{
    ANSWER, FAR, GIVE_WAY, LONG_WAIT, LONGEST_WAIT, LOOK_STANDING_BY, PER_TURN, WAITED_SINCE, WANT,
    WANT_AGAIN, WANT_STANDING_BY, WANT_URGENTLY,
};
use crate::token::Token;

/// A wish for which a process gave way this often, and nobody came, is one that somebody has had: its own, or that
/// of a process that no longer waits.
const UNANSWERED: u32 = 3;
/// A later wish is later by more than this: what the server and the answer's way may differ by.
const LATER: Duration = Duration::from_millis(100);

/// Who asks instead of looking looks after so many questions all the same: looks tell who the others are, and how far the server is.
const LOOK_SELDOM: u8 = 8;

/// How often in a row this process gave way to a wish for which nobody came, and until when that wish is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unanswered {
    times: u32,
    pub(crate) until: Moment,
}

impl Unanswered {
    /// There is no such wish any more.
    pub(crate) fn is_over(self, now: Moment) -> bool {
        self.times == 0 || self.until <= now
    }
}

/// What was seen of the row.
#[derive(Debug)]
pub(crate) struct Watch {
    fence: u64,
    pace: Pace,
    /// When the lock was last seen, by an answer, by a look, or because it was ours.
    seen: Option<Moment>,
    /// How long a question to the server takes, if that is so long that what a look tells is over when the acquire comes there:
    /// such a client asks instead of looking.
    far: Option<Duration>,
    /// So many questions were asked since the last look.
    asked: u8,
    /// Since when we wait without a turn.
    waits_since: Option<Moment>,
    /// The last row that was seen is wanted urgently, by others that have waited longer.
    behind: bool,
    /// Nothing has changed for long, or had when the lock became free.
    stands_by: bool,
    /// The next look is a second away.
    seldom: bool,
    /// Whose token the row has, as far as it was seen since it moved: a client, or an owner.
    holder: Option<u32>,
    /// This owner seemed to hold it, asked, and was refused, while this was the row's fence.
    not_entered: Option<(Token, u64)>,
    /// When to look again.
    pub(super) next: Moment,
    /// Another process goes first until then, unless the fence moves.
    give_way: Option<Moment>,
    pub(crate) unanswered: Unanswered,
    /// Until when the others know that we wait, unless a grant has answered the wish, and when they were told.
    wanted: Moment,
    told: Moment,
    /// When the holder was rung last, whose lease may idle, and how often for this grant.
    rung: Option<Moment>,
    rings: u32,
    rotation: Rotation,
}

impl Watch {
    /// `unanswered`: what an earlier place of the name knew.
    pub(super) fn new(client: u32, now: Moment, unanswered: Option<Unanswered>) -> Self {
        Self {
            fence: 0,
            pace: Pace::new(now),
            seen: None,
            far: None,
            asked: 0,
            waits_since: None,
            behind: false,
            stands_by: false,
            seldom: false,
            holder: None,
            not_entered: None,
            next: now,
            give_way: None,
            unanswered: unanswered.unwrap_or(Unanswered {
                times: 0,
                until: now,
            }),
            wanted: now,
            told: now,
            rung: None,
            rings: 0,
            rotation: Rotation::new(client),
        }
    }

    /// The lock became ours.
    pub(super) fn own(&mut self, fence: u64, now: Moment) {
        self.fence = fence;
        self.seen = Some(now);
        self.pace.own(now);
        self.give_way = None;
        self.stands_by = false;
        // The grant has answered our wish too.
        self.wanted = now;
        self.waits_since = None;
        self.rotation.own_turn(now);
    }

    /// An acquire that was sent as `asking` was refused.
    pub(super) fn refused(&mut self, row: Option<&RowState>, asking: Asking, now: Moment) {
        self.seen = Some(now);
        self.waits_since.get_or_insert(now);
        self.note(row, false, now);
        let Some(row) = row else { return };
        if asking == Asking::New && row.wanted > 0 {
            self.rotation.came_later();
        }
        if row.is_free() {
            // Somebody waits already, and has it next.
            self.give_way = Some(now.after(row.give_way().saturating_sub(row.free_for())));
        }
    }

    /// The watcher looked at the row. `patient`: nobody's time is over soon.
    pub(super) fn looked(&mut self, row: Option<&RowState>, patient: bool, now: Moment) {
        self.seen = Some(now);
        self.asked = 0;
        if let Some(row) = row {
            self.rotation.saw(row.client, now);
            let wanted = from_micros(row.wanted);
            self.rotation.newcomer_has_seen(turns_seen(wanted));
        }
        self.note(row, patient, now);
        self.holder = row.filter(|row| !row.is_free()).map(|row| row.client);
        if self.give_way.is_some_and(|until| until <= now) {
            self.give_way = None;
            self.unanswered.times += 1;
        }
        if let Some(row) = row
            && self.behind
            && row.is_free()
            && self.give_way.is_none()
            && let Some(rest) = row.give_way().checked_sub(row.free_for())
            && !rest.is_zero()
        {
            self.give_way = Some(now.after(rest));
        }
    }

    /// How urgent our wish is: we are far away, and have waited for long.
    fn urgent_wish(&self, now: Moment) -> Option<Duration> {
        self.far?;
        let waited = now.since(self.waits_since?);
        (waited >= LONG_WAIT).then(|| WANT_URGENTLY + waited.min(LONGEST_WAIT))
    }

    /// Takes in what the row shows, and sets the time of the next look.
    fn note(&mut self, row: Option<&RowState>, patient: bool, now: Moment) {
        if let Some(row) = row {
            let moved = row.fence != self.fence;
            self.pace.saw(!row.is_free(), moved, now);
            if !row.is_free() {
                self.stands_by = self.pace.is_long(now);
            }
            self.behind = if row.is_wanted_by_standby() {
                !self.stands_by
            } else {
                // Of several that are far away the one that has waited longest goes first.
                let ours = self.urgent_wish(now).unwrap_or_default();
                row.is_wanted_urgently() && !self.stands_by && from_micros(row.wanted) > ours
            };
            if moved {
                self.fence = row.fence;
                self.holder = None;
                self.give_way = None;
                self.unanswered.times = 0;
                self.rings = 0;
            }
        }
        // The others know, and nobody's time is over soon.
        // (At a door that is held shared a writer's wish is known for a second, and repeated by its looks.)
        let known =
            row.is_some_and(|row| !row.is_free() && !row.is_shared() && row.is_wanted_by_standby());
        self.seldom = self.stands_by && known && patient;
        let mut pause = self.pace.pause(self.rotation.is_next(), now);
        if let Some(distance) = self.far {
            // One question falls into the time for which others give way.
            pause = pause.min(GIVE_WAY.saturating_sub(distance));
        }
        self.next = if self.seldom {
            // On whole seconds, so that one query looks at all names for which this client stands by.
            now.after(LOOK_STANDING_BY).rounded_down(LOOK_STANDING_BY)
        } else {
            now.after(pause)
        };
        if let Some(row) = row
            && row.remaining > 0
        {
            self.next = self.next.min(now.after(from_micros(row.remaining)));
        }
    }

    /// The time to look has come, and a question to the server takes so long. Whether to ask instead; looks are only seldom needed then.
    pub(super) fn asks_instead(&mut self, distance: Duration) -> bool {
        let far = distance >= FAR && !mutant::on(Mutant::DistanceUnheeded);
        self.far = far.then_some(distance);
        self.asked = self.asked.saturating_add(1);
        self.far.is_some() && self.asked <= LOOK_SELDOM && !self.behind && !self.seldom
    }

    /// The lock was seen a moment ago.
    pub(super) fn is_fresh(&self, now: Moment) -> bool {
        self.seen.is_some_and(|seen| now.since(seen) <= ANSWER)
    }

    /// Nothing has been seen of the lock yet.
    pub(super) fn is_blind(&self) -> bool {
        self.seen.is_none()
    }

    /// Whether this owner may hold the lock: only an acquire can tell.
    pub(super) fn may_enter(&self, owner: Token) -> bool {
        self.not_entered != Some((owner, self.fence))
            && self.holder.is_none_or(|holder| holder == owner.client())
    }

    /// The same, once the lock was seen to be held.
    pub(super) fn seems_held_by(&self, owner: Token) -> bool {
        self.holder.is_some() && self.may_enter(owner)
    }

    /// An owner asked and does not hold the lock.
    pub(super) fn not_entered(&mut self, owner: Token, row: &RowState) {
        self.not_entered = Some((owner, row.fence));
    }

    /// To whose wishes we give way when we ask.
    pub(super) fn gives_way_to(&self, asking: Asking, now: Moment) -> GivesWay {
        if mutant::on(Mutant::NewcomersOvertake) && self.rotation.is_newcomer() {
            return GivesWay::TO_NONE;
        }
        match asking {
            Asking::New => GivesWay::TO_ALL,
            Asking::Waiting | Asking::AtRow(_) if self.stands_by => GivesWay::TO_NONE,
            Asking::Waiting | Asking::AtRow(_) => self
                .urgent_wish(now)
                .map_or(GivesWay::of(true), GivesWay::to_longer_than),
        }
    }

    /// Whether another process goes first, until then.
    pub(super) fn gives_way(&self) -> Option<Moment> {
        self.give_way
    }

    /// The lock is free: how long to let those go first that have waited longer. Then the next look is set.
    pub(super) fn courtesy(&mut self, now: Moment) -> bool {
        let courtesy = self.rotation.courtesy();
        if let Some(courtesy) = courtesy {
            self.next = now.after(courtesy);
        }
        courtesy.is_some()
    }

    /// For how long to say that we wait, if the others do not know, or have forgotten.
    pub(super) fn wish(&mut self, row: &RowState, now: Moment) -> Option<Duration> {
        let (wait, known) = if self.stands_by {
            // It is renewed before the others take it for another one.
            let left = from_micros(row.wanted);
            (WANT_STANDING_BY, left > WANT_STANDING_BY / 2)
        } else if let Some(wish) = self.urgent_wish(now) {
            (wish, from_micros(row.wanted) + WAITED_SINCE >= wish)
        } else if let Some(turns) = self.rotation.overdue() {
            let wish = first_turn(turns);
            (wish, from_micros(row.wanted) + PER_TURN * 2 >= wish)
        } else {
            (WANT, row.wanted > 0)
        };
        let again = !known && self.told.after(WANT_AGAIN) <= now;
        if self.wanted > now && !again {
            return None;
        }
        self.wanted = now.after(wait);
        self.told = now;
        Some(wait)
    }

    /// Whom to ring: a client whose lease may idle. Our wish is known, or on its way: it is there sooner than the bell is heard, or we ring
    /// again.
    pub(super) fn rings(&mut self, row: &RowState, now: Moment) -> Option<u32> {
        let client = row.rung_client().filter(|_| self.wanted > now)?;
        // Once is enough, unless that was lost.
        let pause = (WANT_AGAIN * (1 << self.rings.min(8))).min(LOOK_STANDING_BY);
        if self.rung.is_some_and(|rung| rung.after(pause) > now) {
            return None;
        }
        self.rung = Some(now);
        self.rings += 1;
        Some(client)
    }

    /// Nobody waits any more. Whether the others think so.
    pub(super) fn take_back(&mut self, now: Moment) -> bool {
        self.stands_by = false;
        let known = self.wanted > now;
        self.wanted = now;
        self.waits_since = None;
        known
    }

    /// Our release is known. Whether another process, which is known to wait for so long still, goes first.
    pub(super) fn let_go_first(
        &mut self,
        wanted: Duration,
        fence: Option<u64>,
        now: Moment,
    ) -> bool {
        self.seen = Some(now);
        let Unanswered { times, until } = self.unanswered;
        let wish = now.after(wanted);
        let newer = wish > until.after(LATER);
        if mutant::on(Mutant::NobodyGivesWay) || wanted.is_zero() || (times >= UNANSWERED && !newer)
        {
            return false;
        }
        // Once, unless it does not come.
        if newer {
            self.unanswered = Unanswered {
                times: 0,
                until: wish,
            };
        }
        self.fence = fence.unwrap_or(self.fence);
        self.holder = None;
        self.pace.own(now);
        self.give_way = Some(now.after(give_way(wanted)));
        self.next = now.after(self.pace.pause(false, now));
        true
    }
}
