//! What sums a choice of ambiguous additions can have.

use std::collections::BTreeMap;

/// Sums up to this are told one by one; for greater ones only the limits and the common divisor tell.
const EXACT: u128 = 1 << 22;

/// The sums that some choice among numbers has.
pub(super) struct Sums {
    /// The sum of the negative ones: the least sum.
    least: i128,
    /// The sum of the magnitudes.
    span: u128,
    divisor: u128,
    /// Which multiples of the divisor are sums, counted from the least; `None`: not told one by one.
    exact: Option<Vec<u64>>,
}

impl Sums {
    pub(super) fn of(numbers: impl IntoIterator<Item = i64>) -> Self {
        let mut magnitudes: BTreeMap<u128, usize> = BTreeMap::new();
        let (mut least, mut span, mut divisor) = (0_i128, 0_u128, 0_u128);
        for number in numbers {
            let magnitude = u128::from(number.unsigned_abs());
            if magnitude == 0 {
                continue;
            }
            least += i128::from(number.min(0));
            span += magnitude;
            divisor = gcd(divisor, magnitude);
            *magnitudes.entry(magnitude).or_default() += 1;
        }
        let divisor = divisor.max(1);
        let steps = span / divisor;
        let exact = (magnitudes.len() > 1 && steps <= EXACT).then(|| {
            let bits = usize::try_from(steps).unwrap_or(usize::MAX) + 1;
            let mut set = vec![0_u64; bits.div_ceil(64)];
            set[0] = 1;
            for (magnitude, count) in magnitudes {
                let step = usize::try_from(magnitude / divisor).unwrap_or(usize::MAX);
                // Any number up to `count` is a choice among 1, 2, 4, … and what is left.
                let (mut left, mut part) = (count, 1);
                while left > 0 {
                    let taken = left.min(part);
                    add(&mut set, step * taken);
                    left -= taken;
                    part *= 2;
                }
            }
            set
        });
        Self {
            least,
            span,
            divisor,
            exact,
        }
    }

    /// Whether it may be a sum. A no is certain.
    pub(super) fn may_be(&self, sum: i128) -> bool {
        let Ok(above) = u128::try_from(sum - self.least) else {
            return false;
        };
        if above > self.span || !above.is_multiple_of(self.divisor) {
            return false;
        }
        let Some(set) = &self.exact else {
            return true;
        };
        let bit = usize::try_from(above / self.divisor).unwrap_or(usize::MAX);
        set.get(bit / 64)
            .is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }
}

/// Adds to the set all its members moved up by `step`.
fn add(set: &mut [u64], step: usize) {
    let (words, bits) = (step / 64, step % 64);
    for target in (words..set.len()).rev() {
        let mut moved = set[target - words] << bits;
        if bits > 0 && target > words {
            moved |= set[target - words - 1] >> (64 - bits);
        }
        set[target] |= moved;
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_are_those_of_all_choices(numbers in prop::collection::vec(-9_i64..=9, 0..9), target in -80_i128..=80) {
            let sums = Sums::of(numbers.iter().copied());
            let truth = (0..1_u32 << numbers.len()).any(|choice| {
                let chosen = numbers.iter().enumerate().filter(|(i, _)| choice >> i & 1 == 1);
                chosen.map(|(_, number)| i128::from(*number)).sum::<i128>() == target
            });
            prop_assert_eq!(sums.may_be(target), truth);
        }
    }

    #[test]
    fn great_sums_are_told_by_their_limits_and_divisor() {
        let sums = Sums::of([i64::MAX - 1, 6, -4]);
        assert!(sums.may_be(i128::from(i64::MAX) + 5));
        assert!(!sums.may_be(i128::from(i64::MAX) + 7), "too much");
        assert!(!sums.may_be(1), "odd");
        assert!(!sums.may_be(-6), "too little");
    }
}
