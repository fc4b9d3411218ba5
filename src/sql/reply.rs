//! A batch's rows as it found them, and what it granted: one short text for the whole batch.
//!
//! `GRANTED,…;NOW;POSITION STATUS MINE FENCE REMAINING PREVIOUS COUNT WANTED [CLIENT],POSITION …`: positions instead
//! of names keep it small, so that a client that does not read it cannot block the server inside
//! the transaction. A row that does not exist, or was skipped, is left out.
//!
//! The rows are as they were before the batch; but of a counter whose operation is granted, `PREVIOUS` and `COUNT` are what
//! they become.

use std::time::Duration;

use crate::clock::{from_micros, micros};
use crate::mutant::{self, Mutant};
use crate::sql::wish::{GivesWay, give_way};
use crate::timing::{DRAIN, LONGEST_WISH, READERS_TURN, STANDBY, URGENT};

/// The row is free, or does not count.
pub(crate) const FREE: u8 = 0;
/// The row is held, or in use.
pub(crate) const ACTIVE: u8 = 1;
/// Released, but kept until its minimum hold ends.
pub(crate) const KEPT: u8 = 2;
/// A lock that is, or was, held shared: what holds it stands in rows of their own. Its deadline never comes; `count` is until when a
/// writer wishes that nobody enters any more, and `previous` when it was opened, in microseconds since 1970 on the server.
pub(crate) const SHARED: u8 = 3;
/// The slot of a job is done: it is never free again.
pub(crate) const DONE: u8 = 4;
/// What a lease is marked with that may idle. A level of an owner is marked with a random number.
pub(crate) const IDLES: i64 = 1;

/// A row as it was found. All times are microseconds by the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowState {
    /// When it was found so, and the operation was carried out if it was: microseconds since 1970 on the server.
    pub(crate) at: i64,
    /// The operation was carried out.
    pub(crate) granted: bool,
    pub(crate) status: u8,
    /// `holder` is the operation's token.
    pub(crate) mine: bool,
    pub(crate) fence: u64,
    /// From `at` to the deadline; negative if that is past.
    pub(crate) remaining: i64,
    /// Of a counter, its value before the last change. Of a lock, what its lease is marked with, as [`IDLES`]; of one that is held shared,
    /// when it was opened, since 1970.
    pub(crate) previous: i64,
    /// Of a counter, its value. Of a lock, how many levels its owner has; of one that is, or was, held shared, until when a writer wishes that
    /// nobody enters, since 1970.
    pub(crate) count: i64,
    /// For how long after `at` somebody is known to wait for the lock; 0 if nobody is.
    pub(crate) wanted: i64,
    /// The client that the holder's token is from; 0 unless it was asked for.
    pub(crate) client: u32,
}

impl RowState {
    /// A row that somebody else holds.
    #[cfg(test)]
    pub(crate) const HELD: Self = Self {
        at: 0,
        granted: false,
        status: ACTIVE,
        mine: false,
        fence: 1,
        remaining: 5,
        previous: 0,
        count: 1,
        wanted: 0,
        client: 0,
    };

    /// Whether its deadline, seen at `server_now`, is what a row is created with: as a rule its packet has created it. A counter that was deleted is
    /// taken for new as well.
    pub(crate) fn is_new(&self, server_now: i64) -> bool {
        self.remaining == -server_now
    }

    /// Its deadline, in microseconds since 1970 on the server.
    pub(crate) fn deadline(&self) -> i64 {
        self.at.saturating_add(self.remaining)
    }

    /// The client to ring when its lease is wanted: it may idle.
    pub(crate) fn rung_client(self) -> Option<u32> {
        let idles = !self.is_free() && self.status == ACTIVE && self.previous == IDLES;
        (idles && self.client != 0).then_some(self.client)
    }

    /// Whether a lock could be granted on this row.
    pub(crate) fn is_free(&self) -> bool {
        self.status == FREE || self.remaining <= 0
    }

    /// Whether its shared holds tell whether it is held.
    pub(crate) fn is_shared(&self) -> bool {
        self.status == SHARED
    }

    /// The same row, of which it is known for how long its shared holds run: not at all if they have ended.
    pub(crate) fn held_for(self, remaining: Option<i64>) -> Self {
        // Long enough ago that nobody lets others go first for that.
        const LONG_AGO: i64 = -10_000_000;
        let remaining = remaining.unwrap_or(LONG_AGO);
        Self { remaining, ..self }
    }

    /// For how long a writer is known to wish that nobody enters, in microseconds.
    pub(crate) fn drained_for(&self) -> i64 {
        if self.is_shared() {
            self.wished_for()
        } else {
            0
        }
    }

    /// For how long a wish still runs that nobody enters. One that is further ahead than any ever is, is of a clock that has gone back since.
    fn wished_for(&self) -> i64 {
        let ahead = self.count.saturating_sub(self.at);
        if ahead > micros(LONGEST_WISH) {
            0
        } else {
            ahead.max(0)
        }
    }

    /// Whether a shared hold could be granted, as in [`Self::admits`].
    pub(crate) fn admits_shared(&self, gives_way: GivesWay) -> bool {
        // A writer wishes it; one that has freed the lock takes it next.
        let kept_out = self.wished_for() > 0 && !mutant::on(Mutant::WishUnheard);
        if self.is_shared() {
            let since = self.at.saturating_sub(self.previous);
            let their_turn = since < micros(READERS_TURN) && since >= -micros(DRAIN);
            !kept_out || their_turn
        } else {
            self.is_free() && !kept_out && !self.is_promised(gives_way)
        }
    }

    /// Whether it is the slot of a job, and done.
    pub(crate) fn is_done(&self) -> bool {
        self.status == DONE
    }

    /// Whether somebody waited when the lock became free, a moment ago, to whom one gives way: he has it next.
    fn is_promised(&self, gives_way: GivesWay) -> bool {
        self.free_for() < self.give_way() && gives_way.is_to(self.wanted)
    }

    /// Whether no lease holds the lock, and nobody goes first.
    pub(crate) fn admits(&self, gives_way: GivesWay) -> bool {
        self.is_free() && !self.is_promised(gives_way)
    }

    /// Whether a client far away has waited for it for long.
    pub(crate) fn is_wanted_urgently(&self) -> bool {
        from_micros(self.wanted) > URGENT
    }

    /// Whether somebody waits for it who looks seldom.
    pub(crate) fn is_wanted_by_standby(&self) -> bool {
        from_micros(self.wanted) > STANDBY
    }

    /// How long those who come later let those go first who wait, from its release on.
    pub(crate) fn give_way(&self) -> Duration {
        give_way(from_micros(self.wanted))
    }

    /// For how long a lock has been free.
    pub(crate) fn free_for(&self) -> Duration {
        from_micros(self.remaining.saturating_neg())
    }

    /// Whether it is a counter that was never set, or was deleted: its deadline is what a row is created with.
    pub(crate) fn is_unset(&self) -> bool {
        self.deadline() == 0
    }

    /// A counter's value: it starts again when its window has ended.
    pub(crate) fn value(&self) -> i64 {
        if self.remaining <= 0 { 0 } else { self.count }
    }
}

/// What one batch found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// Microseconds since 1970 on the server when it decided, or read.
    pub(crate) server_now: i64,
    /// By position in the batch; `None` where there is no such row.
    pub(crate) rows: Vec<Option<RowState>>,
}

impl Reply {
    /// Decodes the text; `None` when it is not such a text.
    pub(crate) fn decode(text: &str, operations: usize) -> Option<Self> {
        let (granted, text) = text.split_once(';')?;
        let (now, list) = text.split_once(';')?;
        let server_now = now.parse().ok()?;
        let mut rows: Vec<Option<RowState>> = vec![None; operations];
        for entry in list.split(',').filter(|entry| !entry.is_empty()) {
            let mut fields = entry.split(' ');
            let position: usize = fields.next()?.parse().ok()?;
            let state = RowState {
                at: server_now,
                granted: false,
                status: fields.next()?.parse().ok()?,
                mine: fields.next()? == "1",
                fence: fields.next()?.parse().ok()?,
                remaining: fields.next()?.parse().ok()?,
                previous: fields.next()?.parse().ok()?,
                count: fields.next()?.parse().ok()?,
                wanted: fields.next()?.parse().ok()?,
                client: fields.next().map_or(Ok(0), str::parse).ok()?,
            };
            if fields.next().is_some() {
                return None;
            }
            if rows.get_mut(position)?.replace(state).is_some() {
                return None;
            }
        }
        for position in granted.split(',').filter(|position| !position.is_empty()) {
            let position: usize = position.parse().ok()?;
            let row = rows.get_mut(position)?.as_mut()?;
            if std::mem::replace(&mut row.granted, true) {
                return None;
            }
        }
        Some(Self { server_now, rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn missing_rows_are_none() {
        let reply = Reply::decode("1;17;1 1 0 99 -5 3 4 0,2 0 0 0 0 0 0 0", 3).expect("a reply");
        assert_eq!(reply.server_now, 17);
        assert_eq!(reply.rows[0], None);
        assert_eq!(
            reply.rows[1],
            Some(RowState {
                at: 17,
                granted: true,
                status: 1,
                mine: false,
                fence: 99,
                remaining: -5,
                previous: 3,
                count: 4,
                wanted: 0,
                client: 0
            })
        );
        assert_eq!(reply.rows[2].map(|row| row.granted), Some(false));
    }

    #[test]
    fn cut_doubled_or_foreign_texts_are_refused() {
        for text in [
            "",
            "17",
            "17;0 1 0 99 -5 3 4 0",
            ";17",
            ";17;0 1 0 99 -5 3 4",
            ";17;0 1 0 99 -5 3 4 0 0 0",
            ";17;0 1 0 99 -5 3 4 0 x",
            ";17;2 1 0 99 -5 3 4 0",
            ";17;2",
            ";17;0,0",
            ";17;x",
            ";17;0 1 0 99 -5 3 4 0,0 1 0 99 -5 3 4 0",
            ";x;",
            "x;17;0 1 0 99 -5 3 4 0",
            "0,0;17;0 1 0 99 -5 3 4 0",
            // Granted, and not there.
            "1;17;0 1 0 99 -5 3 4 0",
            "2;17;0 1 0 99 -5 3 4 0",
            "0;17;0",
        ] {
            assert_eq!(Reply::decode(text, 2), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_decoded_or_refused_without_a_panic(text in ".*", n in 0usize..4) {
            let _ = Reply::decode(&text, n);
        }

        #[test]
        fn every_cut_of_a_reply_is_refused_or_whole(n in 1usize..20, cut in 0usize..400) {
            let rows: Vec<String> = (0..n).map(|i| format!("{i} 1 1 1790000000000000 -1 2 3 0")).collect();
            let text = format!(";1790000000000000;{}", rows.join(","));
            let cut = cut.min(text.len());
            if let Some(reply) = Reply::decode(&text[..cut], n) {
                // What was decoded is a prefix of the truth except in its last number.
                for row in reply.rows.iter().flatten() {
                    prop_assert_eq!(row.fence, 1_790_000_000_000_000);
                }
            }
        }
    }
}
