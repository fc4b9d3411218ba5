//! The stripe of a name: which of the hundred rows `center_lock_00` … `center_lock_99` orders its inserts.

use std::fmt;

use crate::mutant::{self, Mutant};
use crate::name::Name;

/// How many stripe rows the migration creates.
pub(crate) const STRIPES: u32 = 100;

/// One of the hundred stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Stripe(u8);

impl Stripe {
    /// CRC-32 (IEEE 802.3) of the name's UTF-8 bytes, modulo 100.
    pub(crate) fn of(name: &Name) -> Self {
        let mut hash = crc32fast::hash(name.as_str().as_bytes());
        if mutant::on(Mutant::StripeFormula) {
            hash = !hash;
        }
        let stripe = hash % STRIPES;
        Self(u8::try_from(stripe).unwrap_or_default())
    }

    /// All of them, in the order in which every packet locks them.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..STRIPES).map(|stripe| Self(u8::try_from(stripe).unwrap_or_default()))
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The name of the stripe's row.
impl fmt::Display for Stripe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "center_lock_{:02}", self.0)
    }
}

/// Some of the stripes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StripeSet(u128);

// A bit for each.
const _: () = assert!(STRIPES <= u128::BITS);

impl StripeSet {
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    pub(crate) fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether each of these comes behind all of the others, in the order in which every packet locks them.
    pub(crate) fn is_behind(self, others: Self) -> bool {
        // The lowest bit of these is higher than the highest of the others.
        self.0.trailing_zeros() + others.0.leading_zeros() >= u128::BITS
    }

    /// Whether both have one.
    pub(crate) fn meets(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    pub(crate) fn contains(self, stripe: Stripe) -> bool {
        self.0 & (1 << stripe.0) != 0
    }

    /// In the order in which every packet locks them.
    pub(crate) fn iter(self) -> impl Iterator<Item = Stripe> {
        Stripe::all().filter(move |stripe| self.contains(*stripe))
    }
}

impl FromIterator<Stripe> for StripeSet {
    fn from_iter<I: IntoIterator<Item = Stripe>>(stripes: I) -> Self {
        let bit = |set, stripe: Stripe| set | 1 << stripe.0;
        Self(stripes.into_iter().fold(0, bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_know_their_order() {
        let set = |stripes: &[u8]| stripes.iter().copied().map(Stripe).collect::<StripeSet>();
        assert!(set(&[5, 99]).is_behind(set(&[0, 4])));
        assert!(!set(&[4, 99]).is_behind(set(&[0, 4])));
        assert!(!set(&[0]).is_behind(set(&[99])));
        assert!(set(&[]).is_behind(set(&[99])) && set(&[0]).is_behind(set(&[])));
    }

    /// The expected values were computed by another implementation: Python's
    /// `zlib.crc32(name.encode()) % 100`.
    #[test]
    fn pinned_by_literal_values() {
        for (name, stripe) in PINNED {
            let name = Name::new(name).expect("a valid name");
            assert_eq!(Stripe::of(&name).to_string(), *stripe, "{name}");
        }
    }

    const PINNED: &[(&str, &str)] = &[
        ("sale_invite", "center_lock_81"),
        ("prize:2026", "center_lock_00"),
        ("a", "center_lock_07"),
        ("A", "center_lock_75"),
        ("job", "center_lock_84"),
        ("123456789", "center_lock_62"),
        ("é", "center_lock_26"),
        ("e\u{301}", "center_lock_45"),
        ("🎁", "center_lock_13"),
        ("center_lock_07", "center_lock_70"),
        ("order:1", "center_lock_69"),
        ("order:2", "center_lock_51"),
        ("a'b\\\"c", "center_lock_50"),
    ];
}
