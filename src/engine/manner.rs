//! For what the packets of a lane wait, and how large they are: decisions only.
//!
//! A lane of stripes waits for all that its packet needs, in the order in which every packet locks stripes. Where many clients create
//! rows at once that is one packet for each of them. If two of a client waited in vain for the same stripes, somebody keeps one, most
//! likely: then its packets wait for those of one request at a time for a while, so that other requests are not kept from theirs, and a
//! lane looks in between what else can be had.

use std::time::Duration;

use super::gather::MAX_ROWS;
use super::group::Group;
use super::stage::LaneKind;
use crate::clock::Moment;
use crate::sql::packet::Mode;
use crate::stripe::StripeSet;

/// For so long all lanes of stripes wait for one request at a time, after two packets have waited in vain for the same ones.
const CAREFUL: Duration = Duration::from_secs(10);

/// Whether somebody keeps a stripe, by what became of the packets that waited for all of theirs. That one waits in vain may be chance,
/// where many are in line; but not that a stripe is among those of two, and of none that had what it waited for in between.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    /// One of these may be kept.
    stripes: StripeSet,
    until: Option<Moment>,
}

impl Suspicion {
    /// A packet has waited for these.
    pub(super) fn waited(&mut self, stripes: StripeSet, in_vain: bool, now: Moment) {
        let others = self.stripes.without(stripes);
        if !in_vain {
            self.stripes = others;
        } else if self.stripes.meets(stripes) {
            self.stripes = self.stripes.without(others);
            self.until = Some(now.after(CAREFUL));
        } else {
            self.stripes = stripes;
        }
    }

    /// Whether packets are to wait for the stripes of one request at a time.
    pub(super) fn is_careful(&self, now: Moment) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

/// For what a packet waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PacketWait {
    /// It passes over what is locked.
    #[default]
    Nothing,
    /// For what its first request needs.
    First,
    /// For the stripes of all its requests.
    All,
}

/// How a lane waits.
#[derive(Debug)]
pub(super) struct Manner {
    kind: LaneKind,
    /// For what its packet waits.
    wait: PacketWait,
    /// It has waited in vain, and no packet has waited with success since.
    stuck: bool,
    /// How many requests the next packet has at the most.
    most: usize,
}

impl Manner {
    pub(super) fn new(kind: LaneKind) -> Self {
        Self {
            kind,
            wait: PacketWait::First,
            stuck: false,
            most: MAX_ROWS,
        }
    }

    /// Decides for what the next packet waits. `shares`: others need the connection. `careful`: somebody keeps a stripe. `apart`: several
    /// packets would have to wait for what there is.
    pub(super) fn next(&mut self, shares: bool, careful: bool, apart: impl FnOnce() -> bool) {
        let wait = match self.kind {
            LaneKind::NeverWaits => PacketWait::Nothing,
            LaneKind::WaitsForStripe if !careful => PacketWait::All,
            LaneKind::WaitsForStripe | LaneKind::WaitsForRow => PacketWait::First,
        };
        let may_wait_long = self.kind == LaneKind::WaitsForRow || self.stuck;
        let passes = shares || (may_wait_long && self.wait != PacketWait::Nothing && apart());
        self.wait = if passes { PacketWait::Nothing } else { wait };
    }

    /// For what the packet waits.
    pub(super) fn wait(&self) -> PacketWait {
        self.wait
    }

    /// How the packet locks rows.
    pub(super) fn mode(&self) -> Mode {
        match self.kind {
            LaneKind::WaitsForRow if self.wait != PacketWait::Nothing => Mode::Wait,
            _ => Mode::Skip,
        }
    }

    /// The stripes for which the packet of a batch waits.
    pub(super) fn stripes(&self, batch: &[Group]) -> Option<StripeSet> {
        let stripes = batch.iter().map(Group::stripes);
        match self.wait {
            PacketWait::First if self.kind == LaneKind::WaitsForStripe => stripes.take(1).next(),
            PacketWait::All => stripes.reduce(StripeSet::with),
            PacketWait::First | PacketWait::Nothing => None,
        }
    }

    /// Whether the packet took or waited for all that this group needs, as its stage says; it waited for these stripes.
    pub(super) fn had(&self, group: &Group, waited: Option<StripeSet>) -> bool {
        match self.kind {
            LaneKind::NeverWaits => true,
            LaneKind::WaitsForStripe => group.is_within(waited),
            LaneKind::WaitsForRow => self.wait != PacketWait::Nothing,
        }
    }

    /// The packet had what it waited for.
    pub(super) fn waited(&mut self) {
        self.stuck &= self.wait == PacketWait::Nothing;
        self.most = (self.most * 2).min(MAX_ROWS);
    }

    /// How many requests the next packet has at the most.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// A packet of so many requests was undone, and one of them may be the reason: the next ones have half as many. How many go on together.
    pub(super) fn halve(&mut self, requests: usize) -> usize {
        self.most = requests.div_ceil(2).max(1);
        self.most
    }

    /// Somebody kept what the packet waited for.
    pub(super) fn waited_in_vain(&mut self) {
        self.stuck = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stripe::Stripe;

    fn set(stripes: &[u8]) -> StripeSet {
        let all: Vec<Stripe> = Stripe::all().collect();
        stripes
            .iter()
            .map(|stripe| all[usize::from(*stripe)])
            .collect()
    }

    #[test]
    fn a_stripe_that_two_have_waited_for_in_vain_is_kept() {
        let now = Moment::now();
        let mut suspicion = Suspicion::default();
        suspicion.waited(set(&[1, 2, 3]), true, now);
        assert!(!suspicion.is_careful(now), "it may be chance");
        // Others have what they want, and say nothing of these.
        suspicion.waited(set(&[4, 5]), false, now);
        suspicion.waited(set(&[3, 6]), false, now);
        suspicion.waited(set(&[2, 7]), true, now);
        assert!(suspicion.is_careful(now));
        assert!(!suspicion.is_careful(now.after(CAREFUL)));
        // It is known by now: the next one is believed at once.
        let later = now.after(CAREFUL * 2);
        suspicion.waited(set(&[2]), true, later);
        assert!(suspicion.is_careful(later));
    }

    #[test]
    fn what_was_had_in_between_is_not_kept() {
        let now = Moment::now();
        let mut suspicion = Suspicion::default();
        for _ in 0..3 {
            suspicion.waited(set(&[1, 2]), true, now);
            suspicion.waited(set(&[1, 2, 3]), false, now);
        }
        suspicion.waited(set(&[1]), true, now);
        suspicion.waited(set(&[2]), true, now);
        assert!(!suspicion.is_careful(now));
    }

    const APART: fn() -> bool = || true;

    fn next(manner: &mut Manner, shares: bool, careful: bool, apart: fn() -> bool) -> PacketWait {
        manner.next(shares, careful, apart);
        manner.wait()
    }

    #[test]
    fn a_lane_of_stripes_waits_for_all_unless_it_is_to_be_careful() {
        let mut manner = Manner::new(LaneKind::WaitsForStripe);
        for _ in 0..3 {
            assert_eq!(next(&mut manner, false, false, APART), PacketWait::All);
            manner.waited();
        }
        manner.waited_in_vain();
        assert_eq!(next(&mut manner, false, true, APART), PacketWait::Nothing);
        manner.waited();
        assert_eq!(next(&mut manner, false, true, APART), PacketWait::First);
        manner.waited_in_vain();
        assert_eq!(next(&mut manner, false, true, APART), PacketWait::Nothing);
        manner.waited();
        assert_eq!(next(&mut manner, false, true, APART), PacketWait::First);
        manner.waited();
        // What it waited for is free again; but another may be kept.
        assert_eq!(next(&mut manner, false, true, APART), PacketWait::First);
        manner.waited();
        assert_eq!(next(&mut manner, false, false, APART), PacketWait::All);
    }

    #[test]
    fn packets_that_are_undone_become_smaller_until_one_is_not() {
        let mut manner = Manner::new(LaneKind::WaitsForStripe);
        assert_eq!(manner.most(), MAX_ROWS);
        let halves: Vec<usize> = [5, 3, 2, 1].map(|rows| manner.halve(rows)).into();
        assert_eq!(halves, [3, 2, 1, 1]);
        manner.waited();
        assert_eq!(manner.most(), 2);
        for _ in 0..20 {
            manner.waited();
        }
        assert_eq!(manner.most(), MAX_ROWS);
    }

    #[test]
    fn nobody_looks_elsewhere_where_there_is_nothing_else() {
        let mut manner = Manner::new(LaneKind::WaitsForStripe);
        manner.waited_in_vain();
        for _ in 0..3 {
            assert_eq!(next(&mut manner, false, true, || false), PacketWait::First);
            manner.waited_in_vain();
        }
    }

    #[test]
    fn a_lane_of_rows_looks_at_the_others_in_between() {
        let mut manner = Manner::new(LaneKind::WaitsForRow);
        for wait in [
            PacketWait::Nothing,
            PacketWait::First,
            PacketWait::Nothing,
            PacketWait::First,
        ] {
            assert_eq!(next(&mut manner, false, false, APART), wait);
            manner.waited();
        }
        assert_eq!(
            next(&mut manner, true, false, || false),
            PacketWait::Nothing
        );
        assert_eq!(next(&mut manner, false, true, || false), PacketWait::First);
    }

    #[test]
    fn others_never_wait() {
        let mut manner = Manner::new(LaneKind::NeverWaits);
        assert_eq!(next(&mut manner, false, false, APART), PacketWait::Nothing);
    }
}
