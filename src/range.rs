//! Ranges of a counter's values.

use std::ops::{Bound, RangeBounds};

use crate::error::Error;

/// The values from which adding `delta` ends within `low..=high`; `None` if there are none.
pub(crate) fn start_range(delta: i64, low: i64, high: i64) -> Option<(i64, i64)> {
    let from = i128::from(low) - i128::from(delta);
    let to = i128::from(high) - i128::from(delta);
    let from = from.max(i128::from(i64::MIN));
    let to = to.min(i128::from(i64::MAX));
    // A range that no value reaches must not be clamped into one that some value does.
    if from > to {
        return None;
    }
    Some((i64::try_from(from).ok()?, i64::try_from(to).ok()?))
}

/// A range as its first and last value.
pub(crate) fn bounds(range: &impl RangeBounds<i64>) -> Result<(i64, i64), Error> {
    let low = match range.start_bound() {
        Bound::Included(low) => Some(*low),
        Bound::Excluded(low) => low.checked_add(1),
        Bound::Unbounded => Some(i64::MIN),
    };
    let high = match range.end_bound() {
        Bound::Included(high) => Some(*high),
        Bound::Excluded(high) => high.checked_sub(1),
        Bound::Unbounded => Some(i64::MAX),
    };
    match (low, high) {
        (Some(low), Some(high)) if low <= high => Ok((low, high)),
        _ => Err(Error::InvalidOption {
            option: "range",
            reason: "it is empty: no value lies within it".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_start_range_is_where_the_addition_ends_within(
            delta in prop_oneof![-5..=5_i64, any::<i64>()],
            bounds in prop_oneof![(-9..=9_i64, -9..=9_i64), any::<(i64, i64)>()],
            value in prop_oneof![-20..=20_i64, any::<i64>()],
        ) {
            let (low, high) = (bounds.0.min(bounds.1), bounds.0.max(bounds.1));
            let ends = value.checked_add(delta).is_some_and(|end| (low..=high).contains(&end));
            let range = start_range(delta, low, high);
            prop_assert_eq!(range.is_some_and(|(from, to)| (from..=to).contains(&value)), ends);
        }
    }

    #[test]
    fn ranges_of_all_kinds() {
        assert_eq!(bounds(&(0..)).expect("a range"), (0, i64::MAX));
        assert_eq!(bounds(&(..)).expect("a range"), (i64::MIN, i64::MAX));
        assert_eq!(bounds(&(0..10)).expect("a range"), (0, 9));
        assert_eq!(bounds(&(0..=10)).expect("a range"), (0, 10));
        assert!(bounds(&(5..5)).is_err());
        assert!(bounds(&(..i64::MIN)).is_err());
    }
}
