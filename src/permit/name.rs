//! What the slots of a semaphore are called in the table: `semaphore#slot`.

use crate::error::Error;
use crate::name::Name;
use crate::sql::row::RowKey;

/// Between a semaphore's name and the number of a slot. No semaphore's name has it, so no two slots share a row.
const BETWEEN: char = '#';
/// In the place of a slot's number.
const TURNSTILE: &str = "many";
/// The most permits of a semaphore.
pub(super) const MOST: u32 = 1_024;

/// A semaphore's name, which leaves room for any slot's number.
pub(super) fn checked(name: &str) -> Result<Name, Error> {
    let invalid = |reason| Error::InvalidName {
        name: name.chars().take(crate::name::MAX_CHARS + 1).collect(),
        reason,
    };
    if name.contains(BETWEEN) {
        return Err(invalid(
            "a semaphore's name has no '#', which stands between it and a slot's number; leave it out",
        ));
    }
    let checked = Name::new(name)?;
    if Name::new(&row_name(name, MOST - 1)).is_err() {
        return Err(invalid(
            "with '#' and a slot's number it has more than 255 characters; shorten it to 250",
        ));
    }
    Ok(checked)
}

/// How many permits there are, if there may be so many.
pub(super) fn checked_number(permits: u32) -> Result<u32, Error> {
    if (1..=MOST).contains(&permits) {
        return Ok(permits);
    }
    Err(Error::InvalidOption {
        option: "permits",
        reason: format!("{permits} is not from 1 to {MOST}; give the semaphore as many"),
    })
}

/// The row of a slot.
pub(super) fn row(semaphore: &Name, slot: u32) -> Result<RowKey, Error> {
    Name::new(&row_name(semaphore.as_str(), slot)).map(RowKey::permit)
}

/// What only one has who takes several permits.
pub(super) fn turnstile(semaphore: &Name) -> Result<RowKey, Error> {
    let name = format!("{semaphore}{BETWEEN}{TURNSTILE}");
    Name::new(&name).map(RowKey::permit)
}

fn row_name(semaphore: &str, slot: u32) -> String {
    format!("{semaphore}{BETWEEN}{slot}")
}

/// The number of the slot of this row's name.
pub(super) fn slot_of(row: &str) -> Option<u32> {
    row.rsplit_once(BETWEEN)?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_two_slots_share_a_row(a in "[a1 ]{1,3}", b in "[a1 ]{1,3}", i in 0..MOST, j in 0..MOST) {
            if let (Ok(one), Ok(other)) = (checked(&a), checked(&b)) {
                let (one, other) = (row(&one, i).expect("a row"), row(&other, j).expect("a row"));
                prop_assert_eq!(one == other, (&a, i) == (&b, j));
                prop_assert_eq!(slot_of(one.name.as_str()), Some(i));
                let turnstile = turnstile(&checked(&a).expect("a name")).expect("a row");
                prop_assert!(turnstile != one && turnstile != other);
            }
        }
    }

    #[test]
    fn what_cannot_be_a_semaphore_is_refused() {
        for name in ["", "a#1", "a ", &"a".repeat(251)] {
            assert!(checked(name).is_err(), "{name:?}");
        }
        assert!(checked(&"é".repeat(250)).is_ok());
        for permits in [0, 1_025, u32::MAX] {
            assert!(checked_number(permits).is_err(), "{permits}");
        }
        for permits in [1, 1_024] {
            assert_eq!(checked_number(permits).expect("a number"), permits);
        }
    }
}
